"""The source line of the user's code that called an operator."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache, cached_property
from itertools import islice
from types import CodeType, FrameType
from typing import NamedTuple

import torch

from modulekg_widgets.engine.identity.classes import notebook_cell
from modulekg_widgets.engine.torch_runtime.bytecode import code_names

_TORCH = os.path.dirname(torch.__file__) + os.sep
_ENGINE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_EXPORTS = {"to_dlpack", "_to_dlpack"}
_ADDRESSES = {"data_ptr", "from_dlpack", "__dlpack__", "untyped_storage", "storage"}
# what code draws with, but for torch, or reads the time with
_NONDETERMINISTIC = {
    "random", "randint", "randrange", "choice", "choices", "shuffle", "getrandbits", "urandom", "integers", "time",
    "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time", "now",
}  # fmt: skip
_USER, _LIBRARY, _RECORDER = range(3)


class _Line(NamedTuple):
    file: str
    line: int


class Source(_Line):
    """A line of code; two calls in it have equal ones."""

    call: tuple[CodeType, int] | None = None  # the code, and where its instruction stands in it

    def __str__(self) -> str:
        return f"{notebook_cell(self.file) or _short_path(self.file)}:{self.line}"

    @cached_property
    def end(self) -> tuple[int, int] | None:
        """The line and the column in bytes where the expression ends that made the call; None where Python drops it."""
        positions = None if self.call is None else getattr(self.call[0], "co_positions", None)
        if self.call is None or positions is None:
            return None  # before Python 3.11
        _, line, _, column = next(islice(positions(), self.call[1] // 2, None), (None,) * 4)
        return None if line is None or column is None else (line, column)


@cache
def _short_path(file: str) -> str:
    """The file below the folder that Python imports it from, as `torchvision/models/resnet.py`."""
    for folder in sorted(filter(None, sys.path), key=len, reverse=True):
        if file.startswith(folder.rstrip(os.sep) + os.sep):
            return os.path.relpath(file, folder).replace(os.sep, "/")
    return os.path.basename(file)


class CallerLocator:
    """Finds the source line behind a call: the innermost one outside torch, else in a module of torch."""

    def __init__(self, meet: Callable[[CodeType], None] | None = None) -> None:
        self._meet = meet  # called with each code of the user's, once
        self._kinds: dict[CodeType, int] = {}
        self._sources: dict[tuple[CodeType, int], Source] = {}

    def find(self, frame: FrameType | None) -> Source | None:
        """The line that led to `frame`, a frame of the recorder; None when no module is running."""
        kinds = self._kinds
        fallback: FrameType | None = None
        inside = False
        while frame is not None:
            code = frame.f_code
            kind = kinds.get(code)
            if kind is None:
                kind = kinds[code] = _code_kind(code)
                if kind == _USER and self._meet is not None:
                    self._meet(code)
            if kind == _USER:
                return self._source(frame)
            if kind == _LIBRARY:
                inside = True
                if fallback is None and code.co_name == "forward":
                    fallback = frame
            elif inside and code.co_name == "call_model":
                break
            frame = frame.f_back
        return None if fallback is None else self._source(fallback)

    def _source(self, frame: FrameType) -> Source:
        """The line of a frame, one object for all calls by one instruction."""
        key = frame.f_code, frame.f_lasti
        found = self._sources.get(key)
        if found is None:
            found = self._sources[key] = Source(frame.f_code.co_filename, frame.f_lineno)
            found.call = key
        return found

    def is_users(self, code: CodeType) -> bool:
        """True if the code belongs neither to torch nor to this engine."""
        return _code_kind(code) == _USER


def exports_memory(code: CodeType) -> bool:
    """True if the code exports the memory of tensors, as to DLPack."""
    return not _EXPORTS.isdisjoint(code.co_names)


def is_nondeterministic(code: CodeType) -> bool:
    """True if the code may take another path each time, judged by the names of random functions and clocks."""
    return not _NONDETERMINISTIC.isdisjoint(code.co_names)


def bypasses_operators(code: CodeType) -> bool:
    """True if the code replaces or reads the memory of tensors without an operator, as `p.data = value`."""
    if not _ADDRESSES.isdisjoint(code.co_names):
        return True
    return "data" in code.co_names and "data" in code_names(code).attributes_stored


def _code_kind(code: CodeType) -> int:
    file = code.co_filename
    return _RECORDER if file.startswith(_ENGINE) else _LIBRARY if file.startswith(_TORCH) else _USER
