"""The classes of a TorchScript archive, from the text of its code: which tensors are parameters, and constants."""

from __future__ import annotations

import re
from itertools import islice

from modulekg_widgets.engine.files.archive import Archive
from modulekg_widgets.engine.files.pickle_tape import Global, Value
from modulekg_widgets.engine.files.pickled import SCRIPTED, ScriptedClass
from modulekg_widgets.engine.files.records import Plain

LARGEST_CODE = 4 << 20  # bytes of one file
MOST_CODE = 8 << 20  # of all that are read
LONGEST_NAMES = 1 << 16  # characters of the names of a class's parameters or buffers
MOST_CONSTANTS = 200
LONGEST_CONSTANT = 200

_CLASS = re.compile(r"^class (?P<name>\w+)\(", re.MULTILINE)
_TENSORS = re.compile(rf"^  __(?P<kind>parameters|buffers)__ = \[(?P<names>.{{0,{LONGEST_NAMES}}})\]$", re.MULTILINE)
_CONSTANT = re.compile(rf"^  (?P<name>\w+) : Final\[\w+\] = (?P<value>.{{1,{LONGEST_CONSTANT}}})$", re.MULTILINE)
_TEXT = re.compile(r'"([^"\\]*)"')
_MARK = re.compile(r"___torch_mangle_\d+\.")  # tells apart classes of one name


class ScriptedClasses:
    """Finds classes by what names them in the pickle; each file of code is read once."""

    def __init__(self, archive: Archive) -> None:
        self._archive, self._left = archive, MOST_CODE
        self._known: dict[str, ScriptedClass] = {}
        self._files: dict[str, dict[str, str]] = {}

    def __call__(self, maker: Value) -> ScriptedClass:
        if type(maker) is not Global:
            return ScriptedClass("")
        if maker.path not in self._known:
            self._known[maker.path] = self._read(maker)
        return self._known[maker.path]

    def _read(self, maker: Global) -> ScriptedClass:
        name = _MARK.sub("", maker.path.removeprefix(SCRIPTED))
        text = self._bodies(f"code/{maker.module.replace('.', '/')}.py").get(maker.path[len(maker.module) + 1 :])
        if text is None:
            return ScriptedClass(name)
        tensors = {
            found["kind"]: frozenset(_TEXT.findall(found["names"])) for found in islice(_TENSORS.finditer(text), 2)
        }
        constants = tuple(
            (found["name"], _constant(found["value"])) for found in islice(_CONSTANT.finditer(text), MOST_CONSTANTS)
        )
        return ScriptedClass(
            name, tensors.get("parameters", frozenset()), tensors.get("buffers", frozenset()), constants
        )

    def _bodies(self, file: str) -> dict[str, str]:
        """The text of each class of a file of code, up to the next class."""
        if file not in self._files:
            size = self._archive.size(file) if file in self._archive else 0
            self._left -= size
            readable = 0 < size <= LARGEST_CODE and self._left >= 0
            text = self._archive.read(file, largest=LARGEST_CODE).decode("utf-8", "replace") if readable else ""
            starts = list(_CLASS.finditer(text))
            ends = [*(found.start() for found in starts), len(text)][1:]
            self._files[file] = {
                found["name"]: text[found.start() : end] for found, end in zip(starts, ends, strict=True)
            }
        return self._files[file]


def _constant(text: str) -> Plain:
    if text in ("True", "False"):
        return text == "True"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text.strip('"')
