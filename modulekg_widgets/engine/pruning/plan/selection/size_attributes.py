"""Attributes of modules that hold sizes: integers, integers in tuples and lists, and those of plain objects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import nn

from modulekg_widgets.engine.pruning.cut.edits import SizeValue, is_plain_object
from modulekg_widgets.engine.torch_runtime.modules import module_state

MIN_SIZE = 2  # smaller numbers are flags and counters


@dataclass(frozen=True, slots=True)
class Attribute:
    """One integer attribute of a module."""

    module: str
    name: str  # dotted behind the module, as `config.hidden_size`
    index: int | None  # in a tuple or list
    value: SizeValue = field(compare=False)
    holder: int = field(default=0, compare=False)  # what has it: of modules that share a configuration, the same

    @property
    def identity(self) -> tuple[int, str, int | None]:
        """The identity of the number, independent of the name it is reached by."""
        return self.holder, self.name.rpartition(".")[2], self.index

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}" if self.module else self.name

    @property
    def size(self) -> int:
        return self.value if isinstance(self.value, int) else self.value[self.index or 0]

    def with_size(self, value: SizeValue, size: int) -> SizeValue:
        """`value` with `size` at the position of this attribute."""
        if isinstance(value, int):
            return size
        parts = list(value)
        parts[self.index or 0] = size
        return parts if isinstance(value, list) else tuple(parts)

    def in_module(self, path: str, module: nn.Module) -> Attribute | None:
        """The same attribute of another module."""
        return next(
            (each for each in attributes_of(path, module) if (each.name, each.index) == (self.name, self.index)), None
        )

    def __str__(self) -> str:
        return self.path if self.index is None else f"{self.path}[{self.index}]"


def attributes_of(path: str, module: nn.Module) -> Iterator[Attribute]:
    """The sizes that a module holds, then those of plain objects in it."""
    state = module_state(module)
    yield from _integer_attributes(path, "", state)
    for name, value in state.copy().items():  # another thread may run the model
        if is_plain_object(value):
            yield from _integer_attributes(path, f"{name}.", value.__dict__)


def _integer_attributes(path: str, prefix: str, state: dict[str, object]) -> Iterator[Attribute]:
    for name, value in state.copy().items():
        if type(value) is int and value >= MIN_SIZE:
            yield Attribute(path, prefix + name, None, value, id(state))
        elif (
            isinstance(value, tuple | list)
            and type(value) in (tuple, list)
            and all(type(part) is int for part in value)
        ):
            for index, part in enumerate(value):
                if part >= MIN_SIZE:
                    yield Attribute(path, prefix + name, index, value, id(state))
