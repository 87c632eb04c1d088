"""What the readers of graphs share: how much a file may tell, names that occur once, settings and places in short."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from modulekg_widgets.engine.errors import ModelFileError, shown
from modulekg_widgets.engine.files.records import Plain

MOST_OPERATORS = 200_000
MOST_TEXT = 128 << 20  # bytes of all names and settings that are kept of a file
LONGEST_TEXT = 200  # characters of a setting
MOST_ELEMENTS = 16  # of a list among the settings
_FRAME = re.compile(r'File "([^"<>\n]{1,4096})", line (\d{1,9})')
_LONGEST_TRACE = 20_000  # characters of it that are looked at


class Allowance:
    """What may still be kept of a file; each record takes its part, and a file that goes beyond is refused."""

    def __init__(self, file: str) -> None:
        self._file = shown(file)
        self._operators, self._text = MOST_OPERATORS, MOST_TEXT
        self._kept: dict[str, str] = {}

    def operator(self) -> None:
        """Take the part of an operator."""
        self._operators -= 1
        if self._operators < 0:
            raise ModelFileError(f"{self._file} has more than {MOST_OPERATORS:,} operators: it is forged, or too large")
        self.text(500)

    def fits(self, operators: int) -> bool:
        """Whether so many operators more could be kept."""
        return operators <= self._operators

    def text(self, size: int) -> None:
        """Take the part of a text, or of a record of that size."""
        self._text -= size
        if self._text < 0:
            raise ModelFileError(f"{self._file} has more than {MOST_TEXT >> 20} MB of names: it is forged")

    def name(self, name: str) -> str:
        """The same name, kept once however often a file has it."""
        known = self._kept.get(name)
        if known is None:
            self.text(len(name) + 150)
            known = self._kept[name] = name
        else:
            self.text(8)
        return known


class Occurrences:
    """Names that occur once: a second "add" becomes "add_1", or the next that is free."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._next: dict[str, int] = dict.fromkeys(taken, 1)

    def __contains__(self, name: str) -> bool:
        return name in self._next

    def once(self, name: str) -> str:
        """The name, or with a number behind it if it was given before."""
        if name not in self._next:
            self._next[name] = 1
            return name
        number = self._next[name]
        while (free := f"{name}_{number}") in self._next:
            number += 1
        self._next[name] = number + 1
        self._next[free] = 1
        return free


class Scope:
    """The names of values as a body writes them, and as the file's graph has them: a body may use a name again."""

    def __init__(self, outer: Scope | None = None) -> None:
        self._outer = outer
        self._names: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        scope: Scope | None = self
        while scope is not None:
            if name in scope._names:
                return scope._names[name]
            scope = scope._outer
        return name

    def __setitem__(self, name: str, unique: str) -> None:
        self._names[name] = unique


def short(value: object) -> Plain:
    """A setting as a plain value: lists as texts of their first elements, long texts cut, no NaN."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 1 << 63 else str(value)[:LONGEST_TEXT]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return short_text(value)
    if isinstance(value, Mapping):
        return short_text("{" + ", ".join(f"{short(key)}: {short(part)}" for key, part in _first(value.items())) + "}")
    if isinstance(value, Iterable):
        parts = list(_first(value))
        more = ", …" if len(parts) > MOST_ELEMENTS else ""
        return short_text("[" + ", ".join(_element(part) for part in parts[:MOST_ELEMENTS]) + more + "]")
    return None


def short_text(text: str) -> str:
    """A text of one line's length."""
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


def source_of(trace: str) -> str:
    """The last place in a file that a stack trace names, as "resnet.py:285"; "" where there is none."""
    frames = _FRAME.findall(trace[-_LONGEST_TRACE:])
    if not frames:
        return ""
    path, line = frames[-1]
    name = path.replace("\\", "/").rpartition("/")[2]
    return f"{short_text(name)}:{line}"


def _first(values: Iterable) -> Iterable:
    return (value for value, _ in zip(values, range(MOST_ELEMENTS + 1), strict=False))


def _element(value: object) -> str:
    return str(short(value))
