"""What pickles make, as plain values, and the tape that their opcodes read from and note it on."""

from __future__ import annotations

from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

MOST_GLOBALS = 20_000
LONGEST_GLOBAL = 1_000
LONGEST_TEXT = 1 << 20  # bytes of a text that is kept; a longer one is known by its length
LONGEST_NUMBER = 1 << 12  # bytes of a whole number
MOST_OPCODES = 4_000_000  # 100,000 tensors take 3.2 million
MOST_KEPT = 64 << 20  # bytes of memory of all texts that are kept
MOST_HEADS = 16 << 20  # of the starts of those that are not
MOST_READ = 1 << 30  # bytes of one file
PLAIN_KEYS = 256  # of larger numbers, so many can be chosen to be in each other's way that a dict is slow
SPARSE = 4_096  # numbers beyond all that are remembered, for the same reason
SPARSE_WORK = 32
MOST_GAPS = 1 << 16  # numbers that are left out between those that are remembered
WINDOW = 4 << 20
FIRST_WINDOW = 1 << 16  # where something was passed over, which may be so again
ROOM = LONGEST_GLOBAL << 3  # whatever is longer asks for its own
HEAD = 1 << 12
WIDEST = 4  # bytes of a letter

# what takes longer than an opcode, in opcodes
LINE, NAMED, REFERENCE, ESCAPE = 3, 2, 3, 4
LETTERS = 6  # 1 << LETTERS of a line


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


class Persistent:
    """What a pickle leaves to its reader to find, as the storages of tensors."""

    __slots__ = ("key",)

    def __init__(self, key: Value) -> None:
        self.key = key


@dataclass(frozen=True, slots=True)
class Long:
    """A text or bytes that are too long to keep: how many bytes, the first of them, and how a text is encoded."""

    length: int
    head: bytes
    encoding: str = ""


class Key:
    """A key of a dict that is neither text nor a small number, kept by identity: hashing it could take for ever."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


class Tape:
    """The bytes that `read(offset, length)` gives, in parts, and the stack, marks and memo of a pickle in them.

    `globals` and `persistent` collect what every pickle on it names. `steps` are as many as opcodes may be followed,
    of which one that takes longer takes several; tapes of one file share them.
    """

    def __init__(self, read: Callable[[int, int], bytes], size: int, steps: Iterator[int] | None = None) -> None:
        self._read, self._size = read, size
        self.steps = iter(range(MOST_OPCODES)) if steps is None else steps
        self._unread, self._room, self._heads, self._gaps = MOST_READ, MOST_KEPT, MOST_HEADS, MOST_GAPS
        self._ahead = FIRST_WINDOW
        self.position = 0
        self.globals: dict[tuple[str, str], Global] = {}
        self.persistent: list[Persistent] = []
        self.window, self.base, self.last = b"", 0, -1
        self.forget()

    def forget(self) -> None:
        self.stack: list[Value] = []
        self.marks: list[int] = []
        self.memo: list[Value] = []
        self.sparse: dict[int, Value] = {}
        self.push = self.stack.append

    def spend(self, steps: int) -> None:
        """Take steps from those that are left; where none are, the next opcode is not followed."""
        next(islice(self.steps, steps, steps), None)

    def slide(self, at: int, length: int = ROOM) -> int:
        """Have at least `length` bytes in the window, or all that are left; where they begin in it."""
        if at >= 0 and (at + length <= len(self.window) or self.base + len(self.window) >= self._size):
            return at
        self._ahead = min(self._ahead << 2, WINDOW) if 0 <= at <= len(self.window) else FIRST_WINDOW
        self.base += at
        left = max(self._size - self.base, 0)
        length = min(left, max(length, self._ahead))
        self.window = self._part(self.base, length)
        self.last = len(self.window) if len(self.window) == left else len(self.window) - ROOM
        return 0

    def _part(self, place: int, length: int) -> bytes:
        self._unread -= length
        if self._unread < 0:
            raise LimitError(f"its pickle has more than {MOST_READ:,} bytes")
        return self._read(place, length)

    def _has_room(self, length: int) -> bool:
        """Whether a text of so many bytes can be kept, which takes the room for it."""
        if length > self._room:
            if length <= LONGEST_GLOBAL << 2:
                raise LimitError(f"its texts take more than {MOST_KEPT:,} bytes")
            return False
        self._room -= length
        return True

    def take_room(self, length: int) -> None:
        if not self._has_room(length):
            raise LimitError(f"its texts and numbers take more than {MOST_KEPT:,} bytes")

    def take(self, at: int, length: int) -> tuple[bytes, int]:
        if length > self._size - self.base - at:
            raise ValueError("it is cut off, download or copy it again")
        at = self.slide(at, length)
        return self.window[at : at + length], at + length

    def line(self, at: int, longest: int = LONGEST_TEXT) -> tuple[bytes, int]:
        self.spend(LINE)
        at = self.slide(at)
        end = self.window.find(b"\n", at, at + longest + 1)
        if end < 0:
            at = self.slide(at, min(longest + 1, max(self._size - self.base - at, 0)))
            end = self.window.find(b"\n", at, at + longest + 1)
        if end < 0:
            raise ValueError("a line without an end")
        self.spend(end - at >> LETTERS)
        return self.window[at:end], end + 1

    def text(self, at: int, length: int) -> int:
        if length > LONGEST_TEXT:
            return self.long(at, length, "utf-8")
        raw, end = self.take(at, length)
        if not self._has_room(length if raw.isascii() else length * WIDEST):
            return self.long(end - length, length, "utf-8")
        self.push(raw.decode("utf-8", "replace"))
        return end

    def text_line(self, at: int) -> int:
        self.spend(LINE)
        at = self.slide(at)
        end = self.window.find(b"\n", at)
        length = end - at if end >= 0 else self._line_length(at)
        self.spend(min(length, LONGEST_TEXT) >> LETTERS)
        # an escape is of at least six letters, and makes the others as wide as itself
        if length > LONGEST_TEXT or not self._has_room(length * WIDEST):
            return self.long(at, length, "raw-unicode-escape") + 1
        raw, at = self.take(at, length)
        self.push(raw.decode("raw-unicode-escape", "replace"))
        return at + 1

    def _line_length(self, at: int) -> int:
        """The length of a line that goes beyond the window."""
        start = self.base + at
        for place in range(self.base + len(self.window), self._size, WINDOW):
            end = self._part(place, min(WINDOW, self._size - place)).find(b"\n")
            if end >= 0:
                return place + end - start
        raise ValueError("a line without an end")

    def data(self, at: int, length: int) -> int:
        if length > LONGEST_TEXT or not self._has_room(length):
            return self.long(at, length)
        raw, at = self.take(at, length)
        self.push(raw)
        return at

    def long(self, at: int, length: int, encoding: str = "") -> int:
        """Leave out what is long; bytes that are not there are found missing by the opcode after them."""
        size = min(HEAD, length)
        head, end = self.take(at, size)
        self._heads -= size
        self.push(Long(length, head if self._heads >= 0 else b"", encoding))
        return end - size + length

    def number(self, at: int, length: int) -> int:
        if length > LONGEST_NUMBER:
            raise ValueError(f"a whole number of {length:,} bytes")
        self.take_room(length)
        raw, at = self.take(at, length)
        self.push(int.from_bytes(raw, "little", signed=True))
        return at

    def named(self, module: Value, name: Value) -> Global:
        if type(module) is not str or type(name) is not str or max(len(module), len(name)) > LONGEST_GLOBAL:
            raise ValueError("something to import that has no name")
        self.spend(NAMED)
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
        """Remember what was made last by a number; almost all follow each other, in whichever order."""
        if 0 <= index < len(self.memo):
            self.memo[index] = self.stack[-1]
        elif 0 <= index - len(self.memo) <= self._gaps:
            self._gaps -= index - len(self.memo)
            self.memo.extend([None] * (index - len(self.memo)))
            self.memo.append(self.stack[-1])
        else:
            self._remember_sparsely(index)

    def _remember_sparsely(self, index: int) -> None:
        if len(self.sparse) >= SPARSE:
            raise LimitError(f"it remembers values by more than {SPARSE:,} numbers that do not follow each other")
        self.spend(SPARSE_WORK)
        self.sparse[index] = self.stack[-1]

    def recall(self, index: int) -> Value:
        if index < len(self.memo):
            return self.memo[index]
        self.spend(SPARSE_WORK)
        return self.sparse[index]

    def refer(self, key: Value) -> None:
        self.spend(REFERENCE)
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
        return -PLAIN_KEYS < key < PLAIN_KEYS
    return type(key) in (str, bool, bytes) or key is None
