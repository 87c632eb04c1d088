"""Pickles followed without doing what they say: nothing is imported, called or built, only noted down.

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

from modulekg_widgets.engine.errors import ModelFileError, shown
from modulekg_widgets.engine.files.formats.pickle.pickle_machine import (
    ESCAPE,
    LONGEST_GLOBAL,
    LONGEST_NUMBER,
    MOST_OPCODES,
    WIDEST,
    LimitError,
    Made,
    Tape,
    Value,
)

Opcode = Callable[[Tape, int], int]


def _constant(value: Value) -> Opcode:
    def push(tape: Tape, at: int) -> int:
        tape.push(value)
        return at

    return push


def _number_of(length: int, signed: bool = False) -> Opcode:
    def push(tape: Tape, at: int) -> int:
        tape.push(int.from_bytes(tape.window[at : at + length], "little", signed=signed))
        return at + length

    return push


def _counted(length: int, then: Callable[[Tape, int, int], int]) -> Opcode:
    """What follows its own length, which is itself in `length` bytes."""

    def push(tape: Tape, at: int) -> int:
        return then(tape, at + length, int.from_bytes(tape.window[at : at + length], "little"))

    return push


def _lined(act: Callable[[Tape, bytes], None]) -> Opcode:
    def follow(tape: Tape, at: int) -> int:
        line, at = tape.line(at)
        act(tape, line)
        return at

    return follow


def _stacked(act: Callable[[Tape], None]) -> Opcode:
    def follow(tape: Tape, at: int) -> int:
        act(tape)
        return at

    return follow


def _skipped(length: int) -> Opcode:
    return lambda tape, at: at + length


def _byte(tape: Tape, at: int) -> int:
    tape.push(tape.window[at])
    return at + 1


def _tuple(tape: Tape, at: int) -> int:
    tape.push(tuple(tape.since_mark()))
    return at


def _tuple_of(number: int) -> Opcode:
    def push(tape: Tape, at: int) -> int:
        stack = tape.stack
        if len(stack) < number:
            raise IndexError
        stack[-number:] = [tuple(stack[-number:])]
        return at

    return push


def _made(tape: Tape, at: int) -> int:
    """REDUCE and NEWOBJ, which differ in how the object is made, and not in what it is made of."""
    args = tape.stack.pop()
    tape.stack[-1] = Made(tape.stack[-1], args)
    return at


def _made_with_names(tape: Tape) -> None:
    names, args = tape.stack.pop(), tape.stack.pop()
    tape.stack[-1] = Made(tape.stack[-1], args)
    tape.stack[-1].state = names


def _object(tape: Tape) -> None:
    maker, *args = tape.since_mark()
    tape.push(Made(maker, tuple(args)))


def _instance(tape: Tape, at: int) -> int:
    at = _global(tape, at)
    maker = tape.stack.pop()
    tape.push(Made(maker, tuple(tape.since_mark())))
    return at


def _global(tape: Tape, at: int) -> int:
    module, at = tape.line(at, LONGEST_GLOBAL)
    name, at = tape.line(at, LONGEST_GLOBAL)
    tape.push(tape.named(module.decode("utf-8", "replace"), name.decode("utf-8", "replace")))
    return at


def _stack_global(tape: Tape) -> None:
    name, module = tape.stack.pop(), tape.stack.pop()
    tape.push(tape.named(module, name))


def _extension(tape: Tape, at: int, code: int) -> int:
    """A number that stands for something in a table of the process that loads the file."""
    tape.push(tape.named("copyreg", f"_extension_registry[{code}]"))
    return at


def _build(tape: Tape) -> None:
    state = tape.stack.pop()
    target = tape.stack[-1]
    if isinstance(target, Made):
        target.state = state


def _set_items(tape: Tape) -> None:
    pairs = tape.since_mark()
    tape.put_in(tape.stack[-1], pairs)


def _set_item(tape: Tape) -> None:
    value, key = tape.stack.pop(), tape.stack.pop()
    tape.put_one(tape.stack[-1], key, value)


def _dict(tape: Tape) -> None:
    pairs = tape.since_mark()
    tape.push({})
    tape.put_in(tape.stack[-1], pairs)


def _appends(tape: Tape) -> None:
    values = tape.since_mark()
    tape.append(tape.stack[-1], values)


def _append(tape: Tape) -> None:
    value = tape.stack.pop()
    tape.append(tape.stack[-1], [value])


def _pop(tape: Tape) -> None:
    if tape.marks and tape.marks[-1] == len(tape.stack):
        tape.marks.pop()
    else:
        tape.stack.pop()


def _pop_mark(tape: Tape) -> None:
    tape.since_mark()


def _double(tape: Tape, at: int) -> int:
    tape.push(struct.unpack_from(">d", tape.window, at)[0])
    return at + 8


def _digits(tape: Tape, line: bytes) -> bytes:
    if len(line) > LONGEST_NUMBER:
        raise ValueError(f"a number of {len(line):,} digits")
    tape.spend(len(line) >> 2)
    tape.take_room(len(line))
    return line


def _whole(tape: Tape, line: bytes) -> int:
    return int(_digits(tape, line).rstrip(b"L"), 10)


def _index(tape: Tape, line: bytes) -> int:
    index = _whole(tape, line)
    if not 0 <= index < 1 << 32:
        raise ValueError("something is remembered under no number")
    return index


def _int(tape: Tape, line: bytes) -> None:
    tape.push({b"00": False, b"01": True}[line] if line in (b"00", b"01") else _whole(tape, line))


def _string(tape: Tape, line: bytes) -> None:
    quoted = line.strip()
    if len(quoted) < 2 or quoted[:1] not in (b"'", b'"') or quoted[:1] != quoted[-1:]:
        raise ValueError("a text without quotes")
    tape.take_room(len(quoted) if quoted.isascii() and b"\\" not in quoted else len(quoted) * WIDEST)
    tape.push(_unescaped(tape, quoted[1:-1]).decode("utf-8", "replace"))


_ESCAPE = re.compile(rb"\\(?:(?P<letter>[\\'\"abfnrtv\n])|(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9A-Fa-f]{2})?)")
_LETTERS = dict(zip(b"\\'\"abfnrtv\n", (*(bytes([code]) for code in b"\\'\"\a\b\f\n\r\t\v"), b""), strict=True))


def _unescaped(tape: Tape, text: bytes) -> bytes:
    """Bytes as a literal of Python has them; not by codecs.escape_decode, which warns of others."""
    tape.spend(ESCAPE * text.count(b"\\"))
    return _ESCAPE.sub(_escaped, text)


def _escaped(found: re.Match[bytes]) -> bytes:
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
        pickle.PROTO: _skipped(1),
        pickle.FRAME: _skipped(8),
        pickle.POP: _stacked(_pop),
        pickle.POP_MARK: _stacked(_pop_mark),
        pickle.DUP: _stacked(lambda p: p.push(p.stack[-1])),
        pickle.NONE: _constant(None),
        pickle.NEWTRUE: _constant(True),
        pickle.NEWFALSE: _constant(False),
        pickle.INT: _lined(_int),
        pickle.LONG: _lined(lambda p, line: p.push(_whole(p, line))),
        pickle.FLOAT: _lined(lambda p, line: p.push(float(_digits(p, line)))),
        pickle.BININT: _number_of(4, signed=True),
        pickle.BININT1: _byte,
        pickle.BININT2: _number_of(2),
        pickle.LONG1: _counted(1, Tape.number),
        pickle.LONG4: _counted(4, Tape.number),
        pickle.BINFLOAT: _double,
        pickle.STRING: _lined(_string),
        pickle.SHORT_BINSTRING: _counted(1, Tape.text),
        pickle.BINSTRING: _counted(4, Tape.text),
        pickle.UNICODE: Tape.text_line,
        pickle.SHORT_BINUNICODE: _counted(1, Tape.text),
        pickle.BINUNICODE: _counted(4, Tape.text),
        pickle.BINUNICODE8: _counted(8, Tape.text),
        pickle.SHORT_BINBYTES: _counted(1, Tape.data),
        pickle.BINBYTES: _counted(4, Tape.data),
        pickle.BINBYTES8: _counted(8, Tape.data),
        pickle.BYTEARRAY8: _counted(8, Tape.data),
        pickle.NEXT_BUFFER: _constant(None),
        pickle.READONLY_BUFFER: _skipped(0),
        pickle.EMPTY_TUPLE: _constant(()),
        pickle.TUPLE1: _tuple_of(1),
        pickle.TUPLE2: _tuple_of(2),
        pickle.TUPLE3: _tuple_of(3),
        pickle.EMPTY_LIST: _stacked(lambda p: p.push([])),
        pickle.LIST: _stacked(lambda p: p.push(p.since_mark())),
        pickle.APPEND: _stacked(_append),
        pickle.APPENDS: _stacked(_appends),
        pickle.EMPTY_SET: _stacked(lambda p: p.push([])),
        pickle.FROZENSET: _tuple,
        pickle.ADDITEMS: _stacked(_appends),
        pickle.EMPTY_DICT: _stacked(lambda p: p.push({})),
        pickle.DICT: _stacked(_dict),
        pickle.SETITEM: _stacked(_set_item),
        pickle.SETITEMS: _stacked(_set_items),
        pickle.GLOBAL: _global,
        pickle.STACK_GLOBAL: _stacked(_stack_global),
        pickle.INST: _instance,
        pickle.OBJ: _stacked(_object),
        pickle.REDUCE: _made,
        pickle.NEWOBJ: _made,
        pickle.NEWOBJ_EX: _stacked(_made_with_names),
        pickle.BUILD: _stacked(_build),
        pickle.EXT1: _counted(1, _extension),
        pickle.EXT2: _counted(2, _extension),
        pickle.EXT4: _counted(4, _extension),
        pickle.PERSID: _lined(lambda p, line: p.refer(line.decode("ascii", "replace"))),
        pickle.BINPERSID: _stacked(lambda p: p.refer(p.stack.pop())),
        pickle.GET: _lined(lambda p, line: p.push(p.recall(_index(p, line)))),
        pickle.PUT: _lined(lambda p, line: p.remember(_index(p, line))),
        pickle.MEMOIZE: _stacked(lambda p: p.remember(len(p.memo))),
    }.items()
}
STOP, MARK, TUPLE = pickle.STOP[0], pickle.MARK[0], pickle.TUPLE[0]
GET, LONG_GET, PUT, LONG_PUT = pickle.BINGET[0], pickle.LONG_BINGET[0], pickle.BINPUT[0], pickle.LONG_BINPUT[0]
_WORD = struct.Struct("<I")


class Pickles(Tape):
    """One pickle after the other; `position` is after the last one.

    Raises `ValueError` for what is no pickle, `LimitError` for what has more opcodes than are followed.
    """

    @classmethod
    def of(cls, content: bytes, steps: Iterator[int] | None = None) -> Pickles:
        return cls(lambda offset, length: content[offset : offset + length], len(content), steps)

    def load(self) -> Value:
        """What the next pickle makes."""
        self.forget()
        try:
            return self._followed()
        except (ModelFileError, LimitError):
            raise
        except (IndexError, KeyError, TypeError, AttributeError, OverflowError, struct.error, ValueError) as error:
            reason = str(error) if type(error) is ValueError else "it is cut off or forged, download or copy it again"
            raise ValueError(
                f"the pickle at byte {self.position:,} cannot be followed: {shown(reason, 200)}"
            ) from error

    def _followed(self) -> Value:
        push, stack, marks, memo, word = self.push, self.stack, self.marks, self.memo, _WORD.unpack_from
        at = self.slide(self.position - self.base)
        window = self.window
        for _ in self.steps:
            if at > self.last:
                at = self.slide(at)
                window = self.window
            code = window[at]
            at += 1
            # the opcodes that are nine of ten are followed here, which takes half of the time
            if code == LONG_PUT:
                if word(window, at)[0] == len(memo):
                    memo.append(stack[-1])
                else:
                    self.remember(word(window, at)[0])
                at += 4
            elif code == GET:
                push(memo[window[at]] if window[at] < len(memo) else self.recall(window[at]))
                at += 1
            elif code == MARK:
                marks.append(len(stack))
            elif code == TUPLE:
                start = marks.pop()
                stack[start:] = [tuple(stack[start:])]
            elif code == PUT:
                self.remember(window[at])
                at += 1
            elif code == LONG_GET:
                index = word(window, at)[0]
                push(memo[index] if index < len(memo) else self.recall(index))
                at += 4
            elif code == STOP:
                self.position = self.base + at
                return stack.pop()
            else:
                at = OPCODES[code](self, at)
                window = self.window
        raise LimitError(f"it has more than {MOST_OPCODES:,} opcodes, or fewer that take longer")


@contextmanager
def without_collecting() -> Iterator[None]:
    """Millions of values that stay make the garbage collector look at all of them again and again, for nothing."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
