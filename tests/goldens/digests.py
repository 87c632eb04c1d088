"""Outputs as texts that are the same everywhere, and the short form in which they are stored.

A text is stored whole up to `WHOLE` characters; of a longer one its SHA-256 and its lines, long ones as digests, so
that a difference can name the new lines all the same. Floats are rounded; lines of sources, addresses, and names of
classes inside the package are left out.
"""

from __future__ import annotations

import base64
import builtins
import dataclasses
import difflib
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch

import modulekg_widgets

WHOLE = 2000  # characters
SHORT = 1800  # characters of shortened lines
MAX_LINES = 400  # of which digests are stored
DIGITS = 6
PUBLIC = {*dir(modulekg_widgets), *dir(builtins)}  # names of classes that a text may have
_FLOAT = re.compile(r"(?<![\w.])-?\d+\.\d+(?:[eE][+-]?\d+)?(?![\w.]*\w)")
_LINE = re.compile(r"\.py(?::|\", line )\d+")
_BEFORE_PATH = frozenset(" \t\n\"'([,;:<>")
_WIDGET = re.compile(r"IPY_MODEL_\w+")
_REPR = re.compile(r"<([A-Z]\w+)(?=: | of )")
_ERROR = re.compile(r"\b[A-Z]\w+Error(?=: )")
_INSIDE = re.compile(r"modulekg_widgets\.(?:engine|widgets)(?:\.[a-z_]\w*)*\.(?:(?P<made>[a-z]\w*)|[A-Z]\w*)\b")
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}")


@dataclasses.dataclass(frozen=True)
class Case:
    """What gives an output, how far its floats count, and whether it takes 0.8 s or more."""

    make: Callable[[], Any]
    digits: int = DIGITS
    slow: bool = False

    def text(self) -> str:
        """The output as a text of lines."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            np.random.seed(0)
            return cleaned(text_of(self.make(), self.digits), self.digits)


def text_of(value: Any, digits: int = DIGITS) -> str:
    """A string as it is; anything else as lines of `path: JSON`, two levels deep."""
    if isinstance(value, str):
        return value
    plain = as_plain(value, digits)
    if not isinstance(plain, dict):
        return "\n".join(map(_json, plain)) if isinstance(plain, list) else _json(plain)
    lines = []
    for key, part in sorted(plain.items()):
        if isinstance(part, dict) and part:
            lines += [f"{key}.{name}: {_json(each)}" for name, each in sorted(part.items())]
        elif isinstance(part, str) and "\n" in part:
            lines += [f"{key}:", *(f"  {line}" for line in part.splitlines())]
        else:
            lines.append(f"{key}: {_json(part)}")
    return "\n".join(lines)


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=True)


def as_plain(value: Any, digits: int = DIGITS) -> Any:
    """A value as JSON has it: tables as records, arrays and tensors as lists, bytes as base64, sets sorted."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | np.floating):
        return rounded(float(value), digits)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bytes | bytearray | memoryview):
        return "base64 " + base64.b64encode(bytes(value)).decode()
    if isinstance(value, torch.Tensor):
        return as_plain(value.detach().cpu().tolist(), digits)
    if isinstance(value, pd.DataFrame):
        columns = [str(column) for column in value.columns]
        rows = [[as_plain(each, digits) for each in row] for row in value.itertuples(index=False, name=None)]
        index = [] if isinstance(value.index, pd.RangeIndex) else [["index", *map(str, value.index)]]
        return [columns, *index, *rows]
    if isinstance(value, pd.Series):
        return as_plain(value.to_dict(), digits)
    if isinstance(value, Mapping):
        return {str(key): as_plain(part, digits) for key, part in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((as_plain(part, digits) for part in value), key=_json)
    if isinstance(value, np.ndarray):
        return as_plain(value.tolist(), digits)
    if isinstance(value, list | tuple | range):
        return [as_plain(part, digits) for part in value]
    return str(value)


def rounded(value: float, digits: int) -> Any:
    """The value to so many significant digits; infinite ones and what is not a number by name."""
    if not math.isfinite(value):
        return str(value)
    return float(f"{value:.{digits}g}")


def cleaned(text: str, digits: int = DIGITS) -> str:
    """The text without what may change: lines of sources, addresses, inner classes, the version, late digits."""
    text = _REPR.sub(lambda match: match[0] if match[1] in PUBLIC else "<CLASS", text)
    text = _INSIDE.sub(lambda match: match["made"] or "CLASS", text)  # classes of modules of files are made, by name
    text = _ERROR.sub(lambda match: match[0] if match[0] in PUBLIC else "ERROR", text)
    text = text.replace("\r\n", "\n").replace(modulekg_widgets.__version__, "VERSION")
    text = _WIDGET.sub("IPY_MODEL", _without_sources(_ADDRESS.sub("0xADDRESS", text)))
    return _FLOAT.sub(lambda match: repr(rounded(float(match[0]), digits)), text)


def _without_sources(text: str) -> str:
    """The text with `file.py:LINE` for places in files; in time that grows with its length alone."""
    parts: list[str] = []
    done = 0
    for match in _LINE.finditer(text):
        begin = match.start()
        while begin > done and text[begin - 1] not in _BEFORE_PATH:
            begin -= 1
        parts += [text[done:begin], text[begin : match.start()].rpartition("/")[2], ".py:LINE"]
        done = match.end()
    return "".join([*parts, text[done:]])


def stored(text: str) -> dict[str, Any]:
    """The form in which a golden file has a text."""
    lines = text.split("\n")
    found: dict[str, Any] = {"sha256": hashlib.sha256(_bytes(text)).hexdigest()}
    if len(text) <= WHOLE:
        return {**found, "text": lines if len(lines) > 1 else text}
    short = [shortened(line) for line in lines]
    if sum(map(len, short)) <= SHORT:
        return {**found, "lines": short}
    if len(lines) <= MAX_LINES:
        return {**found, "digests": "".join(map(line_digest, lines))}
    return found


def shortened(line: str) -> str:
    """A line; a long one as its beginning and a digest."""
    return line if len(line) <= 110 else f"{line[:60]} … {hashlib.sha256(_bytes(line)).hexdigest()[:8]}"


def line_digest(line: str) -> str:
    """Four hexadecimal digits."""
    return hashlib.sha256(_bytes(line)).hexdigest()[:4]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def difference(golden: Mapping[str, Any], text: str) -> list[str]:
    """The lines that differ: removed and added ones where they are stored, new ones where digests alone are."""
    lines = text.split("\n")
    if "text" in golden:
        before = golden["text"] if isinstance(golden["text"], list) else [golden["text"]]
        return list(difflib.unified_diff(before, lines, "golden", "now", lineterm="", n=1))
    if "lines" in golden:
        whole = {shortened(line): line for line in lines}
        compared = difflib.unified_diff(golden["lines"], list(map(shortened, lines)), "golden", "now", lineterm="", n=1)
        return [f"+{whole.get(line[1:], line[1:])}" if line.startswith("+") else line for line in compared]
    if "digests" not in golden:
        return [f"(now a text of {len(lines)} lines; the golden file has a digest of all of it)"]
    packed = golden["digests"]
    before = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    after = [line_digest(line) for line in lines]
    found = []
    for kind, i, j, k, m in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind != "equal":
            found.append(f"@@ {j - i} lines from line {i + 1} of the golden text are now {m - k} lines:")
            found += [f"+{line}" for line in lines[k:m]]
    return found
