"""Pickle opcodes, interpreted without importing, calling or building anything.

The opcodes are those of protocols 0 to 5, as Python's pickletools documents them. Each makes at most one value and
refers to those before it, so that what a pickle makes is never larger than the pickle.
"""

from __future__ import annotations

import gc
import pickle
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from modulekg_widgets.engine.errors import ModelFileError, printable
from modulekg_widgets.engine.files.formats.pickle.pickle_machine import (
    ESCAPE_COST,
    MAX_CHARACTER_BYTES,
    MAX_GLOBAL_NAME,
    MAX_INTEGER_BYTES,
    MAX_OPCODES,
    LimitError,
    ObjectRecord,
    PickleMachine,
    PickleValue,
)

Opcode = Callable[[PickleMachine, int], int]


def _constant(value: PickleValue) -> Opcode:
    def push(tape: PickleMachine, at: int) -> int:
        tape.push(value)
        return at

    return push


def _number_of(length: int, signed: bool = False) -> Opcode:
    def push(tape: PickleMachine, at: int) -> int:
        tape.push(int.from_bytes(tape.window[at : at + length], "little", signed=signed))
        return at + length

    return push


def _length_prefixed(length: int, then: Callable[[PickleMachine, int, int], int]) -> Opcode:
    """An opcode with a payload whose length is stored in `length` bytes before it."""

    def push(tape: PickleMachine, at: int) -> int:
        return then(tape, at + length, int.from_bytes(tape.window[at : at + length], "little"))

    return push


def _line_opcode(act: Callable[[PickleMachine, bytes], None]) -> Opcode:
    def follow(tape: PickleMachine, at: int) -> int:
        line, at = tape.line(at)
        act(tape, line)
        return at

    return follow


def _stack_opcode(act: Callable[[PickleMachine], None]) -> Opcode:
    def follow(tape: PickleMachine, at: int) -> int:
        act(tape)
        return at

    return follow


def _skip(length: int) -> Opcode:
    return lambda tape, at: at + length


def _byte(tape: PickleMachine, at: int) -> int:
    tape.push(tape.window[at])
    return at + 1


def _tuple(tape: PickleMachine, at: int) -> int:
    tape.push(tuple(tape.pop_mark()))
    return at


def _tuple_of(number: int) -> Opcode:
    def push(tape: PickleMachine, at: int) -> int:
        stack = tape.stack
        if len(stack) < number:
            raise IndexError
        stack[-number:] = [tuple(stack[-number:])]
        return at

    return push


def _reduce(tape: PickleMachine, at: int) -> int:
    """REDUCE and NEWOBJ: record a class or function with its arguments."""
    args = tape.stack.pop()
    tape.note_call(tape.stack[-1], args)
    tape.stack[-1] = ObjectRecord(tape.stack[-1], args)
    return at


def _newobj_ex(tape: PickleMachine) -> None:
    names, args = tape.stack.pop(), tape.stack.pop()
    tape.stack[-1] = ObjectRecord(tape.stack[-1], args)
    tape.stack[-1].state = names


def _object(tape: PickleMachine) -> None:
    maker, *args = tape.pop_mark()
    tape.push(ObjectRecord(maker, tuple(args)))


def _instance(tape: PickleMachine, at: int) -> int:
    at = _global(tape, at)
    maker = tape.stack.pop()
    tape.push(ObjectRecord(maker, tuple(tape.pop_mark())))
    return at


def _global(tape: PickleMachine, at: int) -> int:
    module, at = tape.line(at, MAX_GLOBAL_NAME)
    name, at = tape.line(at, MAX_GLOBAL_NAME)
    tape.push(tape.global_reference(module.decode("utf-8", "replace"), name.decode("utf-8", "replace")))
    return at


def _stack_global(tape: PickleMachine) -> None:
    name, module = tape.stack.pop(), tape.stack.pop()
    tape.push(tape.global_reference(module, name))


def _extension(tape: PickleMachine, at: int, code: int) -> int:
    """An extension code, which stands for an entry of the loading process's registry."""
    tape.push(tape.global_reference("copyreg", f"_extension_registry[{code}]"))
    return at


def _build(tape: PickleMachine) -> None:
    state = tape.stack.pop()
    target = tape.stack[-1]
    if isinstance(target, ObjectRecord):
        target.state = state


def _set_items(tape: PickleMachine) -> None:
    pairs = tape.pop_mark()
    tape.set_items(tape.stack[-1], pairs)


def _set_item(tape: PickleMachine) -> None:
    value, key = tape.stack.pop(), tape.stack.pop()
    tape.set_item(tape.stack[-1], key, value)


def _dict(tape: PickleMachine) -> None:
    pairs = tape.pop_mark()
    tape.push({})
    tape.set_items(tape.stack[-1], pairs)


def _appends(tape: PickleMachine) -> None:
    values = tape.pop_mark()
    tape.append(tape.stack[-1], values)


def _append(tape: PickleMachine) -> None:
    value = tape.stack.pop()
    tape.append(tape.stack[-1], [value])


def _pop(tape: PickleMachine) -> None:
    if tape.marks and tape.marks[-1] == len(tape.stack):
        tape.marks.pop()
    else:
        tape.stack.pop()


def _pop_mark(tape: PickleMachine) -> None:
    tape.pop_mark()


def _binfloat(tape: PickleMachine, at: int) -> int:
    tape.push(struct.unpack_from(">d", tape.window, at)[0])
    return at + 8


def _digits(tape: PickleMachine, line: bytes) -> bytes:
    if len(line) > MAX_INTEGER_BYTES:
        raise ValueError(f"a number of {len(line):,} digits")
    tape.spend(len(line) >> 2)
    tape.charge_memory(len(line))
    return line


def _int_line(tape: PickleMachine, line: bytes) -> int:
    return int(_digits(tape, line).rstrip(b"L"), 10)


def _index(tape: PickleMachine, line: bytes) -> int:
    index = _int_line(tape, line)
    if not 0 <= index < 1 << 32:
        raise ValueError("something is remembered under no number")
    return index


def _int(tape: PickleMachine, line: bytes) -> None:
    tape.push({b"00": False, b"01": True}[line] if line in (b"00", b"01") else _int_line(tape, line))


def _string(tape: PickleMachine, line: bytes) -> None:
    quoted = line.strip()
    if len(quoted) < 2 or quoted[:1] not in (b"'", b'"') or quoted[:1] != quoted[-1:]:
        raise ValueError("a text without quotes")
    tape.charge_memory(len(quoted) if quoted.isascii() and b"\\" not in quoted else len(quoted) * MAX_CHARACTER_BYTES)
    tape.push(_unescaped(tape, quoted[1:-1]).decode("utf-8", "replace"))


_ESCAPE = re.compile(rb"\\(?:(?P<letter>[\\'\"abfnrtv\n])|(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9A-Fa-f]{2})?)")
_LETTERS = dict(zip(b"\\'\"abfnrtv\n", (*(bytes([code]) for code in b"\\'\"\a\b\f\n\r\t\v"), b""), strict=True))


def _unescaped(tape: PickleMachine, text: bytes) -> bytes:
    """Decodes the escapes of a Python bytes literal; codecs.escape_decode would warn of unknown ones."""
    tape.spend(ESCAPE_COST * text.count(b"\\"))
    return _ESCAPE.sub(_unescape_match, text)


def _unescape_match(found: re.Match[bytes]) -> bytes:
    if found["letter"]:
        return _LETTERS[found["letter"][0]]
    if found["octal"]:
        return bytes([int(found["octal"], 8) & 0xFF])
    if not found["hex"]:
        raise ValueError("a text with an escape that is cut off")
    return bytes.fromhex(found["hex"].decode())


OPCODES: dict[int, Opcode] = {
    code[0]: opcode
    for code, opcode in {
        pickle.PROTO: _skip(1),
        pickle.FRAME: _skip(8),
        pickle.POP: _stack_opcode(_pop),
        pickle.POP_MARK: _stack_opcode(_pop_mark),
        pickle.DUP: _stack_opcode(lambda p: p.push(p.stack[-1])),
        pickle.NONE: _constant(None),
        pickle.NEWTRUE: _constant(True),
        pickle.NEWFALSE: _constant(False),
        pickle.INT: _line_opcode(_int),
        pickle.LONG: _line_opcode(lambda p, line: p.push(_int_line(p, line))),
        pickle.FLOAT: _line_opcode(lambda p, line: p.push(float(_digits(p, line)))),
        pickle.BININT: _number_of(4, signed=True),
        pickle.BININT1: _byte,
        pickle.BININT2: _number_of(2),
        pickle.LONG1: _length_prefixed(1, PickleMachine.number),
        pickle.LONG4: _length_prefixed(4, PickleMachine.number),
        pickle.BINFLOAT: _binfloat,
        pickle.STRING: _line_opcode(_string),
        pickle.SHORT_BINSTRING: _length_prefixed(1, PickleMachine.text),
        pickle.BINSTRING: _length_prefixed(4, PickleMachine.text),
        pickle.UNICODE: PickleMachine.push_text_line,
        pickle.SHORT_BINUNICODE: _length_prefixed(1, PickleMachine.text),
        pickle.BINUNICODE: _length_prefixed(4, PickleMachine.text),
        pickle.BINUNICODE8: _length_prefixed(8, PickleMachine.text),
        pickle.SHORT_BINBYTES: _length_prefixed(1, PickleMachine.data),
        pickle.BINBYTES: _length_prefixed(4, PickleMachine.data),
        pickle.BINBYTES8: _length_prefixed(8, PickleMachine.data),
        pickle.BYTEARRAY8: _length_prefixed(8, PickleMachine.data),
        pickle.NEXT_BUFFER: _constant(None),
        pickle.READONLY_BUFFER: _skip(0),
        pickle.EMPTY_TUPLE: _constant(()),
        pickle.TUPLE1: _tuple_of(1),
        pickle.TUPLE2: _tuple_of(2),
        pickle.TUPLE3: _tuple_of(3),
        pickle.EMPTY_LIST: _stack_opcode(lambda p: p.push([])),
        pickle.LIST: _stack_opcode(lambda p: p.push(p.pop_mark())),
        pickle.APPEND: _stack_opcode(_append),
        pickle.APPENDS: _stack_opcode(_appends),
        pickle.EMPTY_SET: _stack_opcode(lambda p: p.push([])),
        pickle.FROZENSET: _tuple,
        pickle.ADDITEMS: _stack_opcode(_appends),
        pickle.EMPTY_DICT: _stack_opcode(lambda p: p.push({})),
        pickle.DICT: _stack_opcode(_dict),
        pickle.SETITEM: _stack_opcode(_set_item),
        pickle.SETITEMS: _stack_opcode(_set_items),
        pickle.GLOBAL: _global,
        pickle.STACK_GLOBAL: _stack_opcode(_stack_global),
        pickle.INST: _instance,
        pickle.OBJ: _stack_opcode(_object),
        pickle.REDUCE: _reduce,
        pickle.NEWOBJ: _reduce,
        pickle.NEWOBJ_EX: _stack_opcode(_newobj_ex),
        pickle.BUILD: _stack_opcode(_build),
        pickle.EXT1: _length_prefixed(1, _extension),
        pickle.EXT2: _length_prefixed(2, _extension),
        pickle.EXT4: _length_prefixed(4, _extension),
        pickle.PERSID: _line_opcode(lambda p, line: p.push_persistent(line.decode("ascii", "replace"))),
        pickle.BINPERSID: _stack_opcode(lambda p: p.push_persistent(p.stack.pop())),
        pickle.GET: _line_opcode(lambda p, line: p.push(p.memoized(_index(p, line)))),
        pickle.PUT: _line_opcode(lambda p, line: p.memoize(_index(p, line))),
        pickle.MEMOIZE: _stack_opcode(lambda p: p.memoize(len(p.memo))),
    }.items()
}
STOP, MARK, TUPLE = pickle.STOP[0], pickle.MARK[0], pickle.TUPLE[0]
GET, LONG_GET, PUT, LONG_PUT = pickle.BINGET[0], pickle.LONG_BINGET[0], pickle.BINPUT[0], pickle.LONG_BINPUT[0]
_WORD = struct.Struct("<I")


class PickleStream(PickleMachine):
    """Reader of consecutive pickles; `position` is the offset after the last one.

    Raises `ValueError` for what is no pickle, `LimitError` for what has more opcodes than are followed.
    """

    @classmethod
    def of(cls, content: bytes, steps: Iterator[int] | None = None) -> PickleStream:
        return cls(lambda offset, length: content[offset : offset + length], len(content), steps)

    def load(self) -> PickleValue:
        """Returns the value of the next pickle."""
        self.clear()
        try:
            return self._followed()
        except (ModelFileError, LimitError):
            raise
        except (IndexError, KeyError, TypeError, AttributeError, OverflowError, struct.error, ValueError) as error:
            reason = str(error) if type(error) is ValueError else "it is cut off or forged, download or copy it again"
            raise ValueError(
                f"the pickle at byte {self.position:,} cannot be followed: {printable(reason, 200)}"
            ) from error

    def _followed(self) -> PickleValue:
        push, stack, marks, memo, word = self.push, self.stack, self.marks, self.memo, _WORD.unpack_from
        at = self.ensure_window(self.position - self.base)
        window = self.window
        for _ in self.steps:
            if at > self.last:
                at = self.ensure_window(at)
                window = self.window
            code = window[at]
            at += 1
            # the opcodes that are nine of ten are followed here, which takes half of the time
            if code == LONG_PUT:
                if word(window, at)[0] == len(memo):
                    memo.append(stack[-1])
                else:
                    self.memoize(word(window, at)[0])
                at += 4
            elif code == GET:
                push(memo[window[at]] if window[at] < len(memo) else self.memoized(window[at]))
                at += 1
            elif code == MARK:
                marks.append(len(stack))
            elif code == TUPLE:
                start = marks.pop()
                stack[start:] = [tuple(stack[start:])]
            elif code == PUT:
                self.memoize(window[at])
                at += 1
            elif code == LONG_GET:
                index = word(window, at)[0]
                push(memo[index] if index < len(memo) else self.memoized(index))
                at += 4
            elif code == STOP:
                self.position = self.base + at
                return stack.pop()
            else:
                at = OPCODES[code](self, at)
                window = self.window
        raise LimitError(f"it has more than {MAX_OPCODES:,} opcodes, or fewer that take longer")


@contextmanager
def gc_paused() -> Iterator[None]:
    """Context manager that pauses the garbage collector, which would scan millions of live values again and again."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
