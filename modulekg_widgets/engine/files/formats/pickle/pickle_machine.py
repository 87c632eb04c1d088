"""Pickle machine: stack, marks and memo of a pickle, and the plain values that its opcodes make."""

from __future__ import annotations

from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

MAX_GLOBALS = 20_000
MAX_GLOBAL_NAME = 1_000
MAX_TEXT_BYTES = 1 << 20  # bytes of a text that is kept; a longer one is known by its length
MAX_INTEGER_BYTES = 1 << 12  # bytes of a whole number
MAX_OPCODES = 4_000_000  # 100,000 tensors take 3.2 million
MAX_TOTAL_TEXT_BYTES = 64 << 20  # bytes of memory of all texts that are kept
MAX_TOTAL_HEAD_BYTES = 16 << 20  # of the starts of those that are not
MAX_READ_BYTES = 1 << 30  # bytes of one file
MAX_HASHED_INTEGER = 256  # of larger numbers, so many can be chosen to be in each other's way that a dict is slow
MAX_SPARSE_MEMO = 4_096  # numbers beyond all that are remembered, for the same reason
SPARSE_MEMO_COST = 32
MAX_MEMO_GAPS = 1 << 16  # numbers that are left out between those that are remembered
WINDOW_BYTES = 4 << 20
GETATTR = "builtins.getattr"
FIRST_WINDOW_BYTES = 1 << 16  # where something was passed over, which may be so again
LOOKAHEAD_BYTES = MAX_GLOBAL_NAME << 3  # whatever is longer asks for its own
HEAD_BYTES = 1 << 12
MAX_CHARACTER_BYTES = 4  # bytes of a letter

# what takes longer than an opcode, in opcodes
LINE_COST, GLOBAL_COST, PERSISTENT_COST, ESCAPE_COST = 3, 2, 3, 4
LINE_COST_SHIFT = 6  # 1 << LETTERS of a line


class LimitError(ValueError):
    """More data than is read of any file, which need not be forged."""


# beside texts, numbers and None: the classes below, tuple, list (of a set, too) and dict
PickleValue = Any


@dataclass(frozen=True, slots=True)
class GlobalReference:
    """A class or function that loading the pickle would import; `path` is the module and its name."""

    module: str
    path: str


class ObjectRecord:
    """An object that loading would make by calling `maker`: arguments, state, list items and dict entries."""

    __slots__ = ("args", "entries", "items", "maker", "state")

    def __init__(self, maker: PickleValue, args: PickleValue) -> None:
        self.maker = maker
        self.args = args
        self.state: PickleValue = None
        self.items: list[PickleValue] | None = None
        self.entries: dict[PickleValue, PickleValue] | None = None


class PersistentReference:
    """A persistent id, which the format resolves itself, as for storages of tensors."""

    __slots__ = ("key",)

    def __init__(self, key: PickleValue) -> None:
        self.key = key


@dataclass(frozen=True, slots=True)
class TruncatedText:
    """Text or bytes above the size limit: their length, first bytes and encoding."""

    length: int
    head: bytes
    encoding: str = ""


class IdentityKey:
    """A dict key that is compared by identity, as hashing it could take too long."""

    __slots__ = ("value",)

    def __init__(self, value: PickleValue) -> None:
        self.value = value


class PickleMachine:
    """The stack machine of a pickle, reading its bytes in parts through `read(offset, length)`.

    `globals` and `persistent` collect what every pickle on it names. `steps` are as many as opcodes may be followed,
    of which one that takes longer takes several; tapes of one file share them. `members` are paths of the form
    "module.Class.NAME": members of enumerations, which Python 3.11.0 to 3.11.3 pickles as a call of `getattr`.
    """

    def __init__(
        self,
        read: Callable[[int, int], bytes],
        size: int,
        steps: Iterator[int] | None = None,
        members: frozenset[str] = frozenset(),
    ) -> None:
        self._members = members
        self._getattr_uses = self._members_read = 0
        self._read, self._size = read, size
        self.steps = iter(range(MAX_OPCODES)) if steps is None else steps
        self._unread, self._room, self._heads, self._gaps = (
            MAX_READ_BYTES,
            MAX_TOTAL_TEXT_BYTES,
            MAX_TOTAL_HEAD_BYTES,
            MAX_MEMO_GAPS,
        )
        self._ahead = FIRST_WINDOW_BYTES
        self.position = 0
        self.globals: dict[tuple[str, str], GlobalReference] = {}
        self.persistent: list[PersistentReference] = []
        self.window, self.base, self.last = b"", 0, -1
        self.clear()

    def clear(self) -> None:
        self.stack: list[PickleValue] = []
        self.marks: list[int] = []
        self.memo: list[PickleValue] = []
        self.sparse: dict[int, PickleValue] = {}
        self.push = self._counting_push if self._members else self.stack.append

    def _counting_push(self, value: PickleValue) -> None:
        self._getattr_uses += type(value) is GlobalReference and value.path == GETATTR
        self.stack.append(value)

    def note_call(self, maker: PickleValue, args: PickleValue) -> None:
        """Counts a call that reads one of `members`."""
        if type(maker) is GlobalReference and maker.path == GETATTR and type(args) is tuple and len(args) == 2:
            owner, name = args
            is_named = type(owner) is GlobalReference and type(name) is str
            self._members_read += is_named and f"{owner.path}.{name}" in self._members

    @property
    def paths(self) -> list[str]:
        """Sorted paths of what loading imports, without a `getattr` that reads `members` only."""
        only_members = 0 < self._getattr_uses == self._members_read
        return sorted(each.path for each in self.globals.values() if not (only_members and each.path == GETATTR))

    def spend(self, steps: int) -> None:
        """Use up steps; with none left, the next opcode is not executed."""
        next(islice(self.steps, steps, steps), None)

    def ensure_window(self, at: int, length: int = LOOKAHEAD_BYTES) -> int:
        """Make sure that `length` bytes, or all that remain, are in the window; returns their position in it."""
        if at >= 0 and (at + length <= len(self.window) or self.base + len(self.window) >= self._size):
            return at
        self._ahead = min(self._ahead << 2, WINDOW_BYTES) if 0 <= at <= len(self.window) else FIRST_WINDOW_BYTES
        self.base += at
        left = max(self._size - self.base, 0)
        length = min(left, max(length, self._ahead))
        self.window = self._read_window(self.base, length)
        self.last = len(self.window) if len(self.window) == left else len(self.window) - LOOKAHEAD_BYTES
        return 0

    def _read_window(self, place: int, length: int) -> bytes:
        self._unread -= length
        if self._unread < 0:
            raise LimitError(f"its pickle has more than {MAX_READ_BYTES:,} bytes")
        return self._read(place, length)

    def _can_store(self, length: int) -> bool:
        """True if so many bytes of text can still be stored; they are charged then."""
        if length > self._room:
            if length <= MAX_GLOBAL_NAME << 2:
                raise LimitError(f"its texts take more than {MAX_TOTAL_TEXT_BYTES:,} bytes")
            return False
        self._room -= length
        return True

    def charge_memory(self, length: int) -> None:
        if not self._can_store(length):
            raise LimitError(f"its texts and numbers take more than {MAX_TOTAL_TEXT_BYTES:,} bytes")

    def read_bytes(self, at: int, length: int) -> tuple[bytes, int]:
        if length > self._size - self.base - at:
            raise ValueError("it is cut off, download or copy it again")
        at = self.ensure_window(at, length)
        return self.window[at : at + length], at + length

    def line(self, at: int, longest: int = MAX_TEXT_BYTES) -> tuple[bytes, int]:
        self.spend(LINE_COST)
        at = self.ensure_window(at)
        end = self.window.find(b"\n", at, at + longest + 1)
        if end < 0:
            at = self.ensure_window(at, min(longest + 1, max(self._size - self.base - at, 0)))
            end = self.window.find(b"\n", at, at + longest + 1)
        if end < 0:
            raise ValueError("a line without an end")
        self.spend(end - at >> LINE_COST_SHIFT)
        return self.window[at:end], end + 1

    def text(self, at: int, length: int) -> int:
        if length > MAX_TEXT_BYTES:
            return self.push_truncated(at, length, "utf-8")
        raw, end = self.read_bytes(at, length)
        if not self._can_store(length if raw.isascii() else length * MAX_CHARACTER_BYTES):
            return self.push_truncated(end - length, length, "utf-8")
        self.push(raw.decode("utf-8", "replace"))
        return end

    def push_text_line(self, at: int) -> int:
        self.spend(LINE_COST)
        at = self.ensure_window(at)
        end = self.window.find(b"\n", at)
        length = end - at if end >= 0 else self._line_length(at)
        self.spend(min(length, MAX_TEXT_BYTES) >> LINE_COST_SHIFT)
        # an escape is of at least six letters, and makes the others as wide as itself
        if length > MAX_TEXT_BYTES or not self._can_store(length * MAX_CHARACTER_BYTES):
            return self.push_truncated(at, length, "raw-unicode-escape") + 1
        raw, at = self.read_bytes(at, length)
        self.push(raw.decode("raw-unicode-escape", "replace"))
        return at + 1

    def _line_length(self, at: int) -> int:
        """Returns the length of a line that ends beyond the window."""
        start = self.base + at
        for place in range(self.base + len(self.window), self._size, WINDOW_BYTES):
            end = self._read_window(place, min(WINDOW_BYTES, self._size - place)).find(b"\n")
            if end >= 0:
                return place + end - start
        raise ValueError("a line without an end")

    def data(self, at: int, length: int) -> int:
        if length > MAX_TEXT_BYTES or not self._can_store(length):
            return self.push_truncated(at, length)
        raw, at = self.read_bytes(at, length)
        self.push(raw)
        return at

    def push_truncated(self, at: int, length: int, encoding: str = "") -> int:
        """Push a truncated value; missing bytes are noticed by the next opcode."""
        size = min(HEAD_BYTES, length)
        head, end = self.read_bytes(at, size)
        self._heads -= size
        self.push(TruncatedText(length, head if self._heads >= 0 else b"", encoding))
        return end - size + length

    def number(self, at: int, length: int) -> int:
        if length > MAX_INTEGER_BYTES:
            raise ValueError(f"a whole number of {length:,} bytes")
        self.charge_memory(length)
        raw, at = self.read_bytes(at, length)
        self.push(int.from_bytes(raw, "little", signed=True))
        return at

    def global_reference(self, module: PickleValue, name: PickleValue) -> GlobalReference:
        if type(module) is not str or type(name) is not str or max(len(module), len(name)) > MAX_GLOBAL_NAME:
            raise ValueError("something to import that has no name")
        self.spend(GLOBAL_COST)
        module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
        found = self.globals.get((module, name))
        if found is None:
            if len(self.globals) >= MAX_GLOBALS:
                raise LimitError(f"it names more than {MAX_GLOBALS:,} things to import")
            found = self.globals[module, name] = GlobalReference(module, f"{module}.{name}")
        return found

    def pop_mark(self) -> list[PickleValue]:
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def memoize(self, index: int) -> None:
        """Store the top of the stack in the memo; almost all indices are consecutive."""
        if 0 <= index < len(self.memo):
            self.memo[index] = self.stack[-1]
        elif 0 <= index - len(self.memo) <= self._gaps:
            self._gaps -= index - len(self.memo)
            self.memo.extend([None] * (index - len(self.memo)))
            self.memo.append(self.stack[-1])
        else:
            self._memoize_sparse(index)

    def _memoize_sparse(self, index: int) -> None:
        if len(self.sparse) >= MAX_SPARSE_MEMO:
            raise LimitError(
                f"it remembers values by more than {MAX_SPARSE_MEMO:,} numbers that do not follow each other"
            )
        self.spend(SPARSE_MEMO_COST)
        self.sparse[index] = self.stack[-1]

    def memoized(self, index: int) -> PickleValue:
        if index < len(self.memo):
            return self.memo[index]
        self.spend(SPARSE_MEMO_COST)
        return self.sparse[index]

    def push_persistent(self, key: PickleValue) -> None:
        self.spend(PERSISTENT_COST)
        self.persistent.append(PersistentReference(key))
        self.push(self.persistent[-1])

    def set_items(self, target: PickleValue, pairs: list[PickleValue]) -> None:
        entries = _entries(target)
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            entries[key if _is_simple(key) else IdentityKey(key)] = value

    def set_item(self, target: PickleValue, key: PickleValue, value: PickleValue) -> None:
        _entries(target)[key if _is_simple(key) else IdentityKey(key)] = value

    def append(self, target: PickleValue, values: list[PickleValue]) -> None:
        if isinstance(target, ObjectRecord):
            target.items = target.items if target.items is not None else []
            target = target.items
        target.extend(values)


def _entries(target: PickleValue) -> dict[PickleValue, PickleValue]:
    if type(target) is not ObjectRecord:
        return target
    if target.entries is None:
        target.entries = {}
    return target.entries


def _is_simple(key: PickleValue) -> bool:
    if type(key) is int:
        return -MAX_HASHED_INTEGER < key < MAX_HASHED_INTEGER
    return type(key) in (str, bool, bytes) or key is None
