"""Helpers of the graph readers: read budget, unique names, name scopes, abbreviated settings, source lines."""

from __future__ import annotations

import math
import re
from collections import ChainMap
from collections.abc import Iterable, Mapping

from modulekg_widgets.engine.errors import ModelFileError, printable
from modulekg_widgets.engine.files.records import FileModuleRecord, PlainValue

MAX_UNITS = 240 << 20  # a unit is a byte that is kept of a file, or the 8 ns that it takes to look at it
OPERATOR_COST, TENSOR_COST, VALUE_COST, BODY_COST, ATTRIBUTE_COST, FIELD_COST = (
    1200,
    1500,
    400,
    2000,
    140,
    90,
)  # units of each
MAX_NAME = 4_000  # characters
MAX_MODULES = 30_000
MAX_CLASSES = 2_000  # of modules: each becomes a class of Python
MAX_TEXT = 200  # characters of a setting
MAX_ELEMENTS = 16  # of a list among the settings
NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"  # what torch.export writes on operators that no module has
_FRAME = re.compile(r'File "([^"<>\n]{1,4096})", line (\d{1,9})')
_MAX_TRACE = 20_000  # characters of it that are looked at


class ReadBudget:
    """Read budget of one file: each record charges some units, and a file beyond the limit is refused.

    That is room for 60,000 operators with all that exporters write of them.
    """

    def __init__(self, file: str) -> None:
        self.file = printable(file)
        self._left = MAX_UNITS
        self._kept: dict[str, str] = {}

    def charge(self, units: int) -> None:
        """Charge the units of a record, or of bytes that are examined."""
        self._left -= units
        if self._left < 0:
            raise ModelFileError(
                f"{self.file} has more operators, tensors and names than the {MAX_UNITS >> 20} MB that are read: "
                "larger files are not opened"
            )

    def name(self, name: str) -> str:
        """Returns the interned name, so that each one is stored once per file."""
        known = self._kept.get(name)
        if known is not None:
            self.charge(40)
            return known
        if not isinstance(name, str):  # what protobuf gives for bytes that are no text
            raise ModelFileError(f"{self.file} has a name that is not text, {printable(repr(name))}: it is forged")
        if len(name) > MAX_NAME:
            raise ModelFileError(f"{self.file} has a name of {len(name):,} characters, {printable(name)}: it is forged")
        self.charge(len(name) + 150)
        self._kept[name] = name
        return name


class NamedModules:
    """Modules that a graph names, with their class names, "" if unknown."""

    def __init__(self, allowance: ReadBudget) -> None:
        self._allowance = allowance
        self._classes: dict[str, str] = {}
        self._names: set[str] = set()

    def add(self, path: str, class_name: str = "") -> str:
        """Add a module, or the class of a known one; raises `ModelFileError` beyond the limits."""
        known = self._classes.get(path)
        if known or (known is not None and not class_name):
            return path
        path, class_name = self._allowance.name(path), self._allowance.name(class_name)
        self._classes[path] = class_name
        self._names.add(class_name)
        if len(self._classes) > MAX_MODULES or len(self._names) > MAX_CLASSES:
            raise ModelFileError(
                f"{self._allowance.file} has more than {MAX_MODULES:,} modules, or {MAX_CLASSES:,} classes of "
                "them: larger files are not opened"
            )
        return path

    def parts(self) -> tuple[FileModuleRecord, ...]:
        """Returns the modules added so far."""
        return tuple(FileModuleRecord(path, class_name) for path, class_name in self._classes.items())


class UniqueNames:
    """Unique names: a second "add" becomes "add_1", or the next free number."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._next: dict[str, int] = dict.fromkeys(taken, 1)

    def __contains__(self, name: str) -> bool:
        return name in self._next

    def unique(self, name: str) -> str:
        """Returns the name, with a number appended if it is in use."""
        if name not in self._next:
            self._next[name] = 1
            return name
        number = self._next[name]
        while (free := f"{name}_{number}") in self._next:
            number += 1
        self._next[name] = number + 1
        self._next[free] = 1
        return free


class NameScope(ChainMap[str, str]):
    """Names of values in a graph body, mapped to unique names of the file; scopes are nested."""

    def __missing__(self, name: str) -> str:
        return name


def abbreviate_value(value: object) -> PlainValue:
    """Returns a setting as a plain value: lists as text of their first elements, long text cut, NaN as text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 1 << 63 else str(value)[:MAX_TEXT]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return abbreviate_text(value)
    if isinstance(value, list) and len(value) <= MAX_ELEMENTS and all(type(part) is int for part in value):
        return abbreviate_text(str(value))  # as most lists are
    if isinstance(value, Mapping):
        return abbreviate_text(
            "{"
            + ", ".join(f"{abbreviate_value(key)}: {abbreviate_value(part)}" for key, part in _first(value.items()))
            + "}"
        )
    if isinstance(value, Iterable):
        parts = list(_first(value))
        more = ", …" if len(parts) > MAX_ELEMENTS else ""
        return abbreviate_text("[" + ", ".join(_element(part) for part in parts[:MAX_ELEMENTS]) + more + "]")
    return None


def abbreviate_text(text: str) -> str:
    """Returns a text cut to the length of one line."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def source_location(trace: str) -> str:
    """Returns the last source line in a stack trace, as "resnet.py:285"; "" if there is none."""
    seen = trace[-_MAX_TRACE:]
    at, frame = len(seen), None
    while frame is None:
        at = seen.rfind('File "', 0, at)
        if at < 0:
            return ""
        frame = _FRAME.match(seen, at)
    path, line = frame.groups()
    name = path.replace("\\", "/").rpartition("/")[2]
    return f"{abbreviate_text(name)}:{line}"


def _first(values: Iterable) -> Iterable:
    return (value for value, _ in zip(values, range(MAX_ELEMENTS + 1), strict=False))


def _element(value: object) -> str:
    return str(abbreviate_value(value))
