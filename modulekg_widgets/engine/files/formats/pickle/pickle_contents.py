"""Model in a pickle: tensors by dotted names, modules with classes and settings, plain values as metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.files.formats.pickle.pickle_machine import (
    GlobalReference,
    IdentityKey,
    LimitError,
    ObjectRecord,
    PersistentReference,
    PickleValue,
)
from modulekg_widgets.engine.files.formats.pickle.pickled_tensors import (
    MAX_DIMENSIONS,
    PickledTensor,
    TensorRebuilder,
    class_path,
    scalar_value,
)
from modulekg_widgets.engine.files.records import FileModuleRecord, PlainValue, TensorRecord
from modulekg_widgets.engine.torch_runtime.private import BUFFERS, MODULES, PARAMETERS

MAX_TENSORS = 120_000
MAX_VALUES = 1_600_000  # values, each as often as it is reached
NUMBERS_PER_VALUE = 4  # of a list that are looked at in the time of a value that is passed over
VISIT_COST = 8  # of looking at a value, and again of going into it, in values that are passed over
MAX_METADATA = 200
MAX_DEPTH = 100  # of values in values
MAX_METADATA_DEPTH = 3
MAX_NAME = 1_000
MAX_TEXT = 1_000
MAX_NAME_CHARACTERS = 64 << 20  # characters of all names
MAX_OPTIMIZER_ENTRIES = 16  # entries, of which one has what it remembers of parameters
MAX_LISTED_VALUES = 8  # values of a list that are told one by one
MAX_INTEGER = 1 << 64

_IGNORED_SETTINGS = frozenset({"training"})
OPTIMIZER_KEYS = ("state", "param_groups")  # what an optimizer's state has, and nothing else of a model
SCRIPT_PREFIX = "__torch__."


class ScriptedClass(NamedTuple):
    """A TorchScript class: unmangled name, names of parameters and buffers, and constants."""

    name: str
    parameters: frozenset[str] = frozenset()
    buffers: frozenset[str] = frozenset()
    constants: tuple[tuple[str, PlainValue], ...] = ()


class PickleContents:
    """Walks a pickled object and collects `tensors`, `modules`, `metadata` and `warnings`.

    Values that are reached on several ways are listed by each of them, and no value is followed into itself.
    """

    def __init__(
        self, tensors: TensorRebuilder, scripted: Callable[[PickleValue], ScriptedClass], budget: int | None = None
    ) -> None:
        self._found, self._scripted = tensors, scripted
        self.budget, self._letters = MAX_VALUES if budget is None else budget, MAX_NAME_CHARACTERS
        self._above: set[int] = set()  # the values that the one at hand is in
        self._in_optimizer = False
        self._names: set[str] = set()
        self.tensors: list[TensorRecord] = []
        self.modules: list[FileModuleRecord] = []
        self.metadata: dict[str, PlainValue] = {}
        self.warnings: tuple[str, ...] = ()

    def add(self, value: PickleValue, path: str = "", role: str | None = None) -> None:
        """Add the content of a value at a dotted path; raises `LimitError` beyond the limits."""
        self._spend(VISIT_COST)
        found = self._found.rebuild(value)
        if found is not None:
            self._add_tensor(path, found, role)
        else:
            self._spend(VISIT_COST)
            self._visit(value, path)

    def _visit(self, value: PickleValue, path: str) -> None:
        if id(value) not in self._above and len(self._above) < MAX_DEPTH:
            self._above.add(id(value))
            self._add_inner(value, path)
            self._above.remove(id(value))
        elif len(self._above) >= MAX_DEPTH:
            self.warnings = (f"values nested more than {MAX_DEPTH} deep are not listed",)

    def _add_tensor(self, path: str, found: PickledTensor, role: str | None) -> None:
        name = self._unique_name(path or "tensor")  # one that was saved alone has no name
        self._letters -= len(name)
        if len(self.tensors) >= MAX_TENSORS or self._letters < 0:
            raise LimitError(f"it has more than {MAX_TENSORS:,} tensors, or {MAX_NAME_CHARACTERS:,} letters of names")
        self._names.add(name)
        shape, dtype, nbytes, offset, strides, own_role = found
        role = "buffer" if self._in_optimizer else role or own_role
        self.tensors.append(TensorRecord(name, shape, dtype, nbytes, offset, "", strides, role))

    def _spend(self, values: int) -> None:
        self.budget -= values
        if self.budget < 0:
            raise LimitError(f"it refers to more than {MAX_VALUES:,} values")

    def _unique_name(self, name: str) -> str:
        while name in self._names:
            self._spend(1)
            name = f"{name}#{len(self.tensors)}"
        return name

    def _add_inner(self, value: PickleValue, path: str) -> None:
        if type(value) is not ObjectRecord:
            return self._add_members(value, path)
        if object_class(value).startswith(SCRIPT_PREFIX) and type(value.state) is dict:
            return self._add_scripted(value, path)
        state = _module_state(value)
        if state is not None:
            return self._add_module(object_class(value), state, path)
        return self._add_members(value, path)

    def _add_members(self, value: PickleValue, path: str) -> None:
        members = self._members(value)
        around, is_optimizer = (
            self._in_optimizer,
            is_optimizer_state([name for name, _ in members[:MAX_OPTIMIZER_ENTRIES]]),
        )
        for name, member in members:
            if not self._add_plain(name, member, path) and type(member) in _HOLDERS:
                self._in_optimizer = around or (is_optimizer and name == OPTIMIZER_KEYS[0])
                self.add(member, _joined(path, name))
        self._in_optimizer = around

    def _add_plain(self, name: PickleValue, member: PickleValue, path: str) -> bool:
        """Adds a member to the metadata if it is plain; True if it was."""
        if len(self._above) > MAX_METADATA_DEPTH or len(self.metadata) >= MAX_METADATA:
            return False
        told = self._plain(member)
        if told is None and member is not None:
            return False
        self.metadata.setdefault(_joined(path, name), told)
        return True

    def _plain(self, member: PickleValue) -> PlainValue:
        self._spend(len(member) // NUMBERS_PER_VALUE if type(member) in (list, tuple) else 0)
        return plain_value(member)

    def _members(self, value: PickleValue) -> list[tuple[PickleValue, PickleValue]]:
        """The names and values in a container, or the attributes and items of an object."""
        parts = _parts(value)
        self._spend(sum(map(len, parts)))
        return [pair for part in parts for pair in _pairs(part)]

    def _add_module(self, class_name: str, state: dict[PickleValue, PickleValue], path: str) -> None:
        settings = self._settings(state)
        self.modules.append(FileModuleRecord(path, class_name, settings))
        for place, role in ((PARAMETERS, "parameter"), (BUFFERS, "buffer"), (MODULES, None)):
            for name, member in self._members(state.get(place)):
                if type(member) in _HOLDERS:
                    self.add(member, _joined(path, name), role)
        for name, member in self._members(state):
            # torch's own attributes, as _flat_weights of LSTM, repeat what is listed
            if type(member) in _HOLDERS and not str(name).startswith("_") and name not in settings:
                self.add(member, _joined(path, name))

    def _add_scripted(self, module: ObjectRecord, path: str) -> None:
        known = self._scripted(module.maker)
        self._spend(len(known.constants))
        settings = dict(known.constants) | self._settings(module.state)
        self.modules.append(FileModuleRecord(path, known.name, settings))
        for name, member in self._members(module.state):
            if type(member) in _HOLDERS and name not in settings:
                role = "parameter" if name in known.parameters else "buffer" if name in known.buffers else None
                self.add(member, _joined(path, name), role)

    def _settings(self, state: dict[PickleValue, PickleValue]) -> dict[str, PlainValue]:
        settings: dict[str, PlainValue] = {}
        for name, member in self._members(state):
            if type(name) is str and not name.startswith("_") and name not in _IGNORED_SETTINGS:
                told = self._plain(member)
                if told is not None or member is None:
                    settings[name[:MAX_NAME]] = told
        return settings


def is_optimizer_state(names: Sequence[object]) -> bool:
    """True for the keys of an optimizer state, whose tensors are no parameters of the model."""
    return all(name in names for name in OPTIMIZER_KEYS)


_SCALAR_TYPES = frozenset({int, float, bool, str})
_HOLDERS = frozenset({ObjectRecord, PersistentReference, dict, list, tuple})
_RECONSTRUCTORS = frozenset({"copyreg._reconstructor", "copyreg.__newobj__", "copyreg.__newobj_ex__"})
_DICT_CLASSES = frozenset(
    {"collections.OrderedDict", "collections.defaultdict", "collections.Counter", "builtins.dict"}
)


def object_class(made: ObjectRecord) -> str:
    """Returns the class path of an object; protocols 0 and 1 pass the class to a function."""
    path = class_path(made.maker)
    if path in _RECONSTRUCTORS and type(made.args) is tuple and made.args:
        return class_path(made.args[0])
    return path


def _module_state(made: ObjectRecord) -> dict[PickleValue, PickleValue] | None:
    """The `__dict__` of an nn.Module, or of a traced one of torch.fx; None for other objects."""
    for state in (made.state, made.args[0] if type(made.args) is tuple and made.args else None):
        if type(state) is dict and PARAMETERS in state and type(state.get(MODULES)) in (dict, ObjectRecord):
            return state
    return None


class _Pairs:
    """Dict entries in a list."""

    def __init__(self, values: list[PickleValue]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)


_Part = dict[PickleValue, PickleValue] | list[PickleValue] | tuple[PickleValue, ...] | _Pairs
_CONTAINERS = frozenset({dict, list, tuple, ObjectRecord, _Pairs})


def _parts(value: PickleValue) -> list[_Part]:
    """The containers that make up a value, not walked yet."""
    parts = _parts_of(value) if type(value) is ObjectRecord else [value]
    return [({"state": part} if type(part) is ObjectRecord else part) for part in parts if type(part) in _CONTAINERS]


def _pairs(part: _Part) -> Iterable[tuple[PickleValue, PickleValue]]:
    if isinstance(part, dict):
        return part.items()
    if isinstance(part, _Pairs):
        return (pair for pair in part.values if type(pair) in (list, tuple) and len(pair) == 2)
    return enumerate(part)


def _parts_of(made: ObjectRecord) -> list[PickleValue]:
    path = class_path(made.maker)
    args = made.args if type(made.args) is tuple else ()
    if path.startswith("torch.jit._pickle.") and args:
        own = [args[0]]
    elif path in _DICT_CLASSES:
        # Python 2 gives an ordered dict its pairs at once
        own = [_Pairs(args[0])] if args and type(args[0]) is list else []
    elif made.state is None:
        own = [args]
    else:
        own = [*_attributes(made.state)]
    return [*own, made.items, made.entries]


def _attributes(state: PickleValue) -> tuple[PickleValue, ...]:
    """The state of an object; of one with slots, both parts of it."""
    if type(state) is tuple and len(state) == 2 and all(type(part) is dict or part is None for part in state):
        return state
    return (state,)


def _joined(path: str, key: PickleValue) -> str:
    text = key if type(key) is str else _key_text(key)
    name = f"{path}.{text}" if path else text
    if len(name) > MAX_NAME:
        raise ValueError(f"it has a name of more than {MAX_NAME:,} letters")
    return name


def _key_text(key: PickleValue) -> str:
    value = key.value if type(key) is IdentityKey else key
    if type(value) in (list, tuple) and len(value) > MAX_LISTED_VALUES:
        return f"{len(value):,} values"  # whatever they are: this may be asked for each tensor
    told = plain_value(value)
    return f"<{type(value).__name__}>" if told is None and key is not None else str(told)


def plain_value(value: PickleValue) -> PlainValue:
    """Returns a short value as text or number; None if it is not plain, and for None."""
    kind = type(value)
    if kind is int:
        return value if -MAX_INTEGER < value < MAX_INTEGER else f"a number of {value.bit_length():,} bits"
    if kind is str:
        return value if len(value) <= MAX_TEXT else value[: MAX_TEXT - 1] + "…"
    if kind in (bool, float):
        return value
    if kind is GlobalReference:
        return value.path
    if kind is ObjectRecord:
        return _plain_object(value)
    if kind in (tuple, list) and value:
        return _plain_list(value)
    return None


def _plain_object(made: ObjectRecord) -> PlainValue:
    path = class_path(made.maker)
    args = made.args
    if path == "torch.device" and type(args) is tuple and args and type(args[0]) is str:
        return ":".join(printable(str(plain_value(part))) for part in args[:2] if type(part) in (str, int))
    if path == "torch.Size" and type(args) is tuple and args:
        short = type(args[0]) in (tuple, list) and len(args[0]) <= MAX_DIMENSIONS
        return _plain_list(args[0]) if short else None
    return scalar_value(made)


def _plain_list(values: PickleValue) -> str | None:
    """A short list as its Python repr, a long one as its length; None if it holds other values than scalars."""
    if not _SCALAR_TYPES.issuperset(map(type, values)):
        return None
    if len(values) > MAX_LISTED_VALUES:
        return f"{len(values):,} values"
    told = [repr(plain_value(value)) for value in values]
    if type(values) is list:
        return f"[{', '.join(told)}]"
    return f"({', '.join(told)}{',' if len(told) == 1 else ''})"
