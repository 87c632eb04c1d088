"""Axes that probably share one size attribute of a module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from torch import nn

from modulekg_widgets.engine.axes.axis import Axis
from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.pruning.cut.edits import SizeValue, is_plain_object
from modulekg_widgets.engine.pruning.plan.selection.selection import Proportion, Proportions
from modulekg_widgets.engine.torch_runtime.modules import module_state
from modulekg_widgets.engine.tracing.dataflow import split_name

# --------------------
# Module attributes that hold sizes: integers, integers in tuples and lists, and those of plain objects.


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


# ----------------------------------------


def with_shared_sizes(proportions: Proportions, chosen: Sequence[Axis]) -> Proportions:
    """The proportions, with axes that share a size attribute tied as well."""
    groups = [tuple(chosen[at].term for at in group) for group in shared_size_groups(chosen)]
    more = [Proportion(terms) for terms in groups if not any(term in proportions.by_term for term in terms)]
    return Proportions((*proportions.groups, *more)) if more else proportions


def shared_size_groups(chosen: Sequence[Axis]) -> Iterator[list[int]]:
    """Groups of axes that one module produces with fewer attributes of their size.

    So do the states of a recurrent layer of several layers or directions, which has one `hidden_size` for all.
    """
    return (group for _, _, group in _shared_sizes(chosen))


def shared_size_names(chosen: Sequence[Axis]) -> dict[Term, tuple[str, tuple[Term, ...]]]:
    """For each such axis the attribute's name, as `hidden_size of rnn`, and its axes."""
    found: dict[Term, tuple[str, tuple[Term, ...]]] = {}
    for path, names, group in _shared_sizes(chosen):
        terms = tuple(chosen[at].term for at in group)
        number = f"{' and '.join(map(printable, names))} of {printable(path) or 'the model'}"
        found.update((term, (number, terms)) for term in terms if term not in found)
    return found


def _shared_sizes(chosen: Sequence[Axis]) -> Iterator[tuple[str, list[str], list[int]]]:
    """The path, the attributes and the axes of each such module."""
    found: dict[tuple[str, int], dict[int, None]] = {}
    modules = {}
    for at, axis in enumerate(chosen):
        for node, dim in axis.tensor_dims:
            if node.is_parameter and dim == 0:
                path, _ = split_name(node.graph, node.label)
                modules[path] = node.graph.modules[path].module
                found.setdefault((path, axis.size), {})[at] = None
    for (path, size), group in found.items():
        own = attributes_of(path, modules[path]) if len(group) > 1 else ()
        names = [each.name for each in own if each.size == size]
        if 0 < len(names) < len(group):
            yield path, names, list(group)
