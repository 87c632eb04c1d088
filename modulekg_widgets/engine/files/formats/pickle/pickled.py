"""What a pickle tells of a model: tensors by dotted names, modules with classes and settings, plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from modulekg_widgets.engine.errors import shown
from modulekg_widgets.engine.files.formats.pickle.pickle_machine import Global, Key, LimitError, Made, Persistent, Value
from modulekg_widgets.engine.files.formats.pickle.pickled_tensors import (
    MOST_DIMENSIONS,
    Found,
    PickledTensors,
    class_path,
    number_of,
)
from modulekg_widgets.engine.files.records import ModulePart, Plain, TensorRecord
from modulekg_widgets.engine.torch_runtime.private import BUFFERS, MODULES, PARAMETERS

MOST_TENSORS = 120_000
MOST_FOLLOWED = 1_600_000  # values, each as often as it is reached
NUMBERS = 4  # of a list that are looked at in the time of a value that is passed over
COST = 8  # of looking at a value, and again of going into it, in values that are passed over
MOST_METADATA = 200
DEEPEST = 100  # of values in values
DEEPEST_METADATA = 3
LONGEST_NAME = 1_000
LONGEST_TEXT = 1_000
MOST_NAMES = 64 << 20  # characters of all names
MOST_OF_OPTIMIZER = 16  # entries, of which one has what it remembers of parameters
MOST_SHOWN = 8  # values of a list that are told one by one
LARGEST_NUMBER = 1 << 64

_NO_SETTINGS = frozenset({"training"})
OPTIMIZER = ("state", "param_groups")  # what an optimizer's state has, and nothing else of a model
SCRIPTED = "__torch__."


class ScriptedClass(NamedTuple):
    """What a TorchScript archive tells of a class: its name without marks, which tensors are what, and constants."""

    name: str
    parameters: frozenset[str] = frozenset()
    buffers: frozenset[str] = frozenset()
    constants: tuple[tuple[str, Plain], ...] = ()


class Inventory:
    """Goes through what a pickle makes, and collects `tensors`, `modules`, `metadata` and `warnings`.

    Values that are reached on several ways are listed by each of them, and no value is followed into itself.
    """

    def __init__(
        self, tensors: PickledTensors, scripted: Callable[[Value], ScriptedClass], left: int | None = None
    ) -> None:
        self._found, self._scripted = tensors, scripted
        self.left, self._letters = MOST_FOLLOWED if left is None else left, MOST_NAMES
        self._above: set[int] = set()  # the values that the one at hand is in
        self._in_optimizer = False
        self._names: set[str] = set()
        self.tensors: list[TensorRecord] = []
        self.modules: list[ModulePart] = []
        self.metadata: dict[str, Plain] = {}
        self.warnings: tuple[str, ...] = ()

    def add(self, value: Value, path: str = "", role: str | None = None) -> None:
        """List what is in a value at a dotted path; raises `LimitError` for more than is read of any."""
        self._spend(COST)
        found = self._found.of(value)
        if found is not None:
            self._add_tensor(path, found, role)
        else:
            self._spend(COST)
            self._go_into(value, path)

    def _go_into(self, value: Value, path: str) -> None:
        if id(value) not in self._above and len(self._above) < DEEPEST:
            self._above.add(id(value))
            self._add_inner(value, path)
            self._above.remove(id(value))
        elif len(self._above) >= DEEPEST:
            self.warnings = (f"what is nested more than {DEEPEST} deep is not listed",)

    def _add_tensor(self, path: str, found: Found, role: str | None) -> None:
        name = self._unused(path or "tensor")  # one that was saved alone has no name
        self._letters -= len(name)
        if len(self.tensors) >= MOST_TENSORS or self._letters < 0:
            raise LimitError(f"it has more than {MOST_TENSORS:,} tensors, or {MOST_NAMES:,} letters of names")
        self._names.add(name)
        shape, dtype, nbytes, offset, strides, own_role = found
        role = "buffer" if self._in_optimizer else role or own_role
        self.tensors.append(TensorRecord(name, shape, dtype, nbytes, offset, "", strides, role))

    def _spend(self, values: int) -> None:
        self.left -= values
        if self.left < 0:
            raise LimitError(f"it refers to more than {MOST_FOLLOWED:,} values")

    def _unused(self, name: str) -> str:
        while name in self._names:
            self._spend(1)
            name = f"{name}#{len(self.tensors)}"
        return name

    def _add_inner(self, value: Value, path: str) -> None:
        if type(value) is not Made:
            return self._add_members(value, path)
        if class_of(value).startswith(SCRIPTED) and type(value.state) is dict:
            return self._add_scripted(value, path)
        state = _module_state(value)
        if state is not None:
            return self._add_module(class_of(value), state, path)
        return self._add_members(value, path)

    def _add_members(self, value: Value, path: str) -> None:
        members = self._members(value)
        around, is_optimizer = self._in_optimizer, is_optimizer_state([name for name, _ in members[:MOST_OF_OPTIMIZER]])
        for name, member in members:
            if not self._add_plain(name, member, path) and type(member) in _HOLDERS:
                self._in_optimizer = around or (is_optimizer and name == OPTIMIZER[0])
                self.add(member, _joined(path, name))
        self._in_optimizer = around

    def _add_plain(self, name: Value, member: Value, path: str) -> bool:
        """Whether a member is told as text or number, once for all."""
        if len(self._above) > DEEPEST_METADATA or len(self.metadata) >= MOST_METADATA:
            return False
        told = self._plain(member)
        if told is None and member is not None:
            return False
        self.metadata.setdefault(_joined(path, name), told)
        return True

    def _plain(self, member: Value) -> Plain:
        self._spend(len(member) // NUMBERS if type(member) in (list, tuple) else 0)
        return plain(member)

    def _members(self, value: Value) -> list[tuple[Value, Value]]:
        """The names and values in a container, or the attributes of an object and what was put into it."""
        parts = _parts(value)
        self._spend(sum(map(len, parts)))
        return [pair for part in parts for pair in _pairs(part)]

    def _add_module(self, class_name: str, state: dict[Value, Value], path: str) -> None:
        settings = self._settings(state)
        self.modules.append(ModulePart(path, class_name, settings))
        for place, role in ((PARAMETERS, "parameter"), (BUFFERS, "buffer"), (MODULES, None)):
            for name, member in self._members(state.get(place)):
                if type(member) in _HOLDERS:
                    self.add(member, _joined(path, name), role)
        for name, member in self._members(state):
            # torch's own attributes, as _flat_weights of LSTM, repeat what is listed
            if type(member) in _HOLDERS and not str(name).startswith("_") and name not in settings:
                self.add(member, _joined(path, name))

    def _add_scripted(self, module: Made, path: str) -> None:
        known = self._scripted(module.maker)
        self._spend(len(known.constants))
        settings = dict(known.constants) | self._settings(module.state)
        self.modules.append(ModulePart(path, known.name, settings))
        for name, member in self._members(module.state):
            if type(member) in _HOLDERS and name not in settings:
                role = "parameter" if name in known.parameters else "buffer" if name in known.buffers else None
                self.add(member, _joined(path, name), role)

    def _settings(self, state: dict[Value, Value]) -> dict[str, Plain]:
        settings: dict[str, Plain] = {}
        for name, member in self._members(state):
            if type(name) is str and not name.startswith("_") and name not in _NO_SETTINGS:
                told = self._plain(member)
                if told is not None or member is None:
                    settings[name[:LONGEST_NAME]] = told
        return settings


def is_optimizer_state(names: Sequence[object]) -> bool:
    """True for the keys of an optimizer's state, whose tensors are no parameters of the model."""
    return all(name in names for name in OPTIMIZER)


_SHORT = frozenset({int, float, bool, str})
_HOLDERS = frozenset({Made, Persistent, dict, list, tuple})
_MAKERS = frozenset({"copyreg._reconstructor", "copyreg.__newobj__", "copyreg.__newobj_ex__"})
_DICTS = frozenset({"collections.OrderedDict", "collections.defaultdict", "collections.Counter", "builtins.dict"})


def class_of(made: Made) -> str:
    """The path of the class of an object, which protocols 0 and 1 pass to a function."""
    path = class_path(made.maker)
    if path in _MAKERS and type(made.args) is tuple and made.args:
        return class_path(made.args[0])
    return path


def _module_state(made: Made) -> dict[Value, Value] | None:
    """The attributes of a module, which a traced one of torch.fx passes to a function; None for no module."""
    for state in (made.state, made.args[0] if type(made.args) is tuple and made.args else None):
        if type(state) is dict and PARAMETERS in state and type(state.get(MODULES)) in (dict, Made):
            return state
    return None


class _Pairs:
    """The entries of a dict in a list."""

    def __init__(self, values: list[Value]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)


_Part = dict[Value, Value] | list[Value] | tuple[Value, ...] | _Pairs
_CONTAINERS = frozenset({dict, list, tuple, Made, _Pairs})


def _parts(value: Value) -> list[_Part]:
    """The containers that make up a value, none of which is gone through here."""
    parts = _parts_of(value) if type(value) is Made else [value]
    return [({"state": part} if type(part) is Made else part) for part in parts if type(part) in _CONTAINERS]


def _pairs(part: _Part) -> Iterable[tuple[Value, Value]]:
    if isinstance(part, dict):
        return part.items()
    if isinstance(part, _Pairs):
        return (pair for pair in part.values if type(pair) in (list, tuple) and len(pair) == 2)
    return enumerate(part)


def _parts_of(made: Made) -> list[Value]:
    path = class_path(made.maker)
    args = made.args if type(made.args) is tuple else ()
    if path.startswith("torch.jit._pickle.") and args:
        own = [args[0]]
    elif path in _DICTS:
        # Python 2 gives an ordered dict its pairs at once
        own = [_Pairs(args[0])] if args and type(args[0]) is list else []
    elif made.state is None:
        own = [args]
    else:
        own = [*_attributes(made.state)]
    return [*own, made.items, made.entries]


def _attributes(state: Value) -> tuple[Value, ...]:
    """A state, or both of an object that has slots, too."""
    if type(state) is tuple and len(state) == 2 and all(type(part) is dict or part is None for part in state):
        return state
    return (state,)


def _joined(path: str, key: Value) -> str:
    text = key if type(key) is str else _key_text(key)
    name = f"{path}.{text}" if path else text
    if len(name) > LONGEST_NAME:
        raise ValueError(f"it has a name of more than {LONGEST_NAME:,} letters")
    return name


def _key_text(key: Value) -> str:
    value = key.value if type(key) is Key else key
    if type(value) in (list, tuple) and len(value) > MOST_SHOWN:
        return f"{len(value):,} values"  # whatever they are: this may be asked for each tensor
    told = plain(value)
    return f"<{type(value).__name__}>" if told is None and key is not None else str(told)


def plain(value: Value) -> Plain:
    """A value as text or number where it is so short that it can be shown; None where it cannot, and for None."""
    kind = type(value)
    if kind is int:
        return value if -LARGEST_NUMBER < value < LARGEST_NUMBER else f"a number of {value.bit_length():,} bits"
    if kind is str:
        return value if len(value) <= LONGEST_TEXT else value[: LONGEST_TEXT - 1] + "…"
    if kind in (bool, float):
        return value
    if kind is Global:
        return value.path
    if kind is Made:
        return _plain_object(value)
    if kind in (tuple, list) and value:
        return _plain_list(value)
    return None


def _plain_object(made: Made) -> Plain:
    path = class_path(made.maker)
    args = made.args
    if path == "torch.device" and type(args) is tuple and args and type(args[0]) is str:
        return ":".join(shown(str(plain(part))) for part in args[:2] if type(part) in (str, int))
    if path == "torch.Size" and type(args) is tuple and args:
        short = type(args[0]) in (tuple, list) and len(args[0]) <= MOST_DIMENSIONS
        return _plain_list(args[0]) if short else None
    return number_of(made)


def _plain_list(values: Value) -> str | None:
    """A short list as it is written in Python, and a long one by its length; None where it holds more than numbers."""
    if not _SHORT.issuperset(map(type, values)):
        return None
    if len(values) > MOST_SHOWN:
        return f"{len(values):,} values"
    told = [repr(plain(value)) for value in values]
    if type(values) is list:
        return f"[{', '.join(told)}]"
    return f"({', '.join(told)}{',' if len(told) == 1 else ''})"
