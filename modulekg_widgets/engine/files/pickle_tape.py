"""What pickles make, as plain values, and the tape that their opcodes read from and note it on."""

from __future__ import annotations

from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MOST_GLOBALS = 20_000
LONGEST_GLOBAL = 1_000
LONGEST_TEXT = 1 << 20  # bytes of a text that is kept; a longer one is known by its length
LONGEST_NUMBER = 1 << 12  # bytes of a whole number
LARGEST_KEY = 1 << 61  # larger numbers can be chosen to have one hash, which makes a dict slow
WINDOW = 4 << 20
HEAD = 1 << 12


class LimitError(ValueError):
    """That there is more than is read of any file, which need not be forged."""


# what is no text, number or None: Global, Made, Persistent, Long, Key, tuple, list (of a set, too) and dict
Value = Any


@dataclass(frozen=True, slots=True)
class Global:
    """A class or function that whoever loads the pickle imports; `path` is `module` and its name."""

    module: str
    path: str


class Made:
    """What loading would make by calling `maker`: its arguments, then its state, and what is put into it."""

    __slots__ = ("args", "entries", "items", "maker", "state")

    def __init__(self, maker: Value, args: Value) -> None:
        self.maker = maker
        self.args = args
        self.state: Value = None
        self.items: list[Value] | None = None
        self.entries: dict[Value, Value] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Persistent:
    """What a pickle leaves to its reader to find, as the storages of tensors."""

    key: Value


@dataclass(frozen=True, slots=True)
class Long:
    """A text or bytes that are too long to keep: how many bytes, the first of them, and how a text is encoded."""

    length: int
    head: bytes
    encoding: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Key:
    """A key of a dict that is neither text nor number, kept by identity: hashing it could take for ever."""

    value: Value


class Tape:
    """The bytes that `read(offset, length)` gives, in parts, and the stack, marks and memo of a pickle in them.

    `globals` and `persistent` collect what every pickle on it names.
    """

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read, self._size = read, size
        self.position = 0
        self.globals: dict[tuple[str, str], Global] = {}
        self.persistent: list[Persistent] = []
        self.window, self.base, self.last = b"", 0, -1
        self.forget()

    def forget(self) -> None:
        self.stack: list[Value] = []
        self.marks: list[int] = []
        self.memo: dict[int, Value] = {}
        self.push = self.stack.append

    def slide(self, at: int, length: int = WINDOW) -> int:
        """Have at least `length` bytes in the window, or all that are left; where they begin in it."""
        if at >= 0 and (at + length <= len(self.window) or self.base + len(self.window) >= self._size):
            return at
        self.base += at
        left = max(self._size - self.base, 0)
        self.window = self._read(self.base, min(left, max(length, WINDOW)))
        # whatever is long asks for its own room
        self.last = len(self.window) if len(self.window) == left else len(self.window) - (LONGEST_GLOBAL << 3)
        return 0

    def take(self, at: int, length: int) -> tuple[bytes, int]:
        if length > self._size - self.base - at:
            raise ValueError("it is cut off")
        at = self.slide(at, length)
        return self.window[at : at + length], at + length

    def line(self, at: int, longest: int = LONGEST_TEXT) -> tuple[bytes, int]:
        at = self.slide(at, min(longest + 1, max(self._size - self.base - at, 0)))
        end = self.window.find(b"\n", at, at + longest + 1)
        if end < 0:
            raise ValueError("a line without an end")
        return self.window[at:end], end + 1

    def text(self, at: int, length: int) -> int:
        if length > LONGEST_TEXT:
            return self.long(at, length, "utf-8")
        raw, at = self.take(at, length)
        self.push(raw.decode("utf-8", "replace"))
        return at

    def text_line(self, at: int) -> int:
        length = self._line_length(self.base + at)
        if length > LONGEST_TEXT:
            return self.long(at, length, "raw-unicode-escape") + 1
        raw, at = self.take(at, length)
        self.push(raw.decode("raw-unicode-escape", "replace"))
        return at + 1

    def _line_length(self, start: int) -> int:
        for at in range(start, self._size, WINDOW):
            end = self._read(at, min(WINDOW, self._size - at)).find(b"\n")
            if end >= 0:
                return at + end - start
        raise ValueError("a line without an end")

    def long(self, at: int, length: int, encoding: str = "") -> int:
        """Leave out what is long; bytes that are not there are found missing by the opcode after them."""
        head, end = self.take(at, HEAD)
        self.push(Long(length, head, encoding))
        return end - HEAD + length

    def number(self, at: int, length: int) -> int:
        if length > LONGEST_NUMBER:
            raise ValueError(f"a whole number of {length:,} bytes")
        raw, at = self.take(at, length)
        self.push(int.from_bytes(raw, "little", signed=True))
        return at

    def named(self, module: Value, name: Value) -> Global:
        if type(module) is not str or type(name) is not str or max(len(module), len(name)) > LONGEST_GLOBAL:
            raise ValueError("something to import that has no name")
        module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
        found = self.globals.get((module, name))
        if found is None:
            if len(self.globals) >= MOST_GLOBALS:
                raise LimitError(f"it names more than {MOST_GLOBALS:,} things to import")
            found = self.globals[module, name] = Global(module, f"{module}.{name}")
        return found

    def since_mark(self) -> list[Value]:
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def remember(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def refer(self, key: Value) -> None:
        self.persistent.append(Persistent(key))
        self.push(self.persistent[-1])

    def put_in(self, target: Value, pairs: list[Value]) -> None:
        entries = _entries(target)
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            entries[key if _is_simple(key) else Key(key)] = value

    def put_one(self, target: Value, key: Value, value: Value) -> None:
        _entries(target)[key if _is_simple(key) else Key(key)] = value

    def append(self, target: Value, values: list[Value]) -> None:
        if isinstance(target, Made):
            target.items = target.items if target.items is not None else []
            target = target.items
        target.extend(values)


def _entries(target: Value) -> dict[Value, Value]:
    if type(target) is not Made:
        return target
    if target.entries is None:
        target.entries = {}
    return target.entries


def _is_simple(key: Value) -> bool:
    if type(key) is int:
        return -LARGEST_KEY < key < LARGEST_KEY
    return type(key) in (str, bool, float, bytes) or key is None
