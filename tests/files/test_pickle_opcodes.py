"""Pickles are followed without being loaded: every protocol, every opcode that imports or calls, and what is forged."""

from __future__ import annotations

import argparse
import collections
import datetime
import pickle
import pickletools
import random
import struct
import time
import warnings
from typing import Any

import pytest

from modulekg_widgets.engine.files.formats.pickle.pickle_machine import (
    MAX_TEXT_BYTES,
    GlobalReference,
    IdentityKey,
    LimitError,
    ObjectRecord,
    PersistentReference,
    TruncatedText,
)
from modulekg_widgets.engine.files.formats.pickle.pickle_opcodes import OPCODES, PickleStream

PLAIN = {
    "numbers": [0, 1, -1, 255, 256, 65_535, 65_536, -(2**31), 2**31, 2**63, -(2**200), 1.5, -0.0, 1e300],
    "texts": ["", "a", "ü€😀", "x" * 300, "line\nbreak\\", "\x00"],
    "constants": (None, True, False),
    "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
    "dicts": {"a": {}, 1: [], None: (), 2: {"b": "c"}},
}


def load(content: bytes) -> Any:
    return PickleStream.of(content).load()


def named(content: bytes) -> set[str]:
    pickles = PickleStream.of(content)
    pickles.load()
    return {found.path for found in pickles.globals.values()}


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


@pytest.mark.parametrize("protocol", range(6))
def test_plain_values_are_what_was_pickled(protocol: int) -> None:
    assert load(pickle.dumps(PLAIN, protocol)) == PLAIN


@pytest.mark.parametrize("protocol", range(6))
def test_what_would_be_made_is_noted_down(protocol: int) -> None:
    made = load(pickle.dumps(argparse.Namespace(lr=0.1, size=(1, 2)), protocol))
    assert isinstance(made, ObjectRecord)
    assert made.state == {"lr": 0.1, "size": (1, 2)}
    ordered = load(pickle.dumps(collections.OrderedDict(a=1), protocol))
    assert ordered.maker == GlobalReference("collections", "collections.OrderedDict")
    assert ordered.entries == {"a": 1} or ordered.args == ([["a", 1]],)
    day = load(pickle.dumps(datetime.date(2020, 1, 2), protocol))
    assert day.maker.path == "datetime.date"
    several = load(pickle.dumps(collections.deque([1, 2, 3]), protocol))
    assert several.items == [1, 2, 3] or several.args[0] == [1, 2, 3]


def test_every_opcode_is_followed() -> None:
    in_the_loop = {
        pickle.STOP,
        pickle.MARK,
        pickle.TUPLE,
        pickle.BINGET,
        pickle.LONG_BINGET,
        pickle.BINPUT,
        pickle.LONG_BINPUT,
    }
    assert {opcode.code.encode("latin-1") for opcode in pickletools.opcodes} == in_the_loop | {
        bytes([code]) for code in OPCODES
    }


IMPORTS = {
    "GLOBAL": b"cposix\nsystem\n(Vx\ntR.",
    "INST": b"(Vx\niposix\nsystem\n.",
    "OBJ": b"(cposix\nsystem\nVx\no.",
    "STACK_GLOBAL": b"\x80\x04" + text("posix") + text("system") + b"\x93" + text("x") + b"\x85R.",
    "NEWOBJ": b"\x80\x02cposix\nsystem\n" + text("x") + b"\x85\x81.",
    "NEWOBJ_EX": b"\x80\x04cposix\nsystem\n" + text("x") + b"\x85}\x92.",
    "BUILD": b"\x80\x02cposix\nsystem\n)R" + text("x") + b"b.",
}


@pytest.mark.parametrize("opcode", IMPORTS)
def test_what_a_pickle_imports_is_named_whatever_imports_it(opcode: str) -> None:
    assert named(IMPORTS[opcode]) == {"posix.system"}
    made = load(IMPORTS[opcode])
    assert made.maker == GlobalReference("posix", "posix.system")
    assert "x" in (made.state, *made.args)


@pytest.mark.parametrize("content", [b"\x82\x07.", b"\x83\x07\x00.", b"\x84\x07\x00\x00\x00."])
def test_a_number_for_something_registered_is_named(content: bytes) -> None:
    assert named(content) == {"copyreg._extension_registry[7]"}


def test_names_of_python_2_are_those_of_python_3() -> None:
    assert named(b"c__builtin__\neval\n.") == {"builtins.eval"}
    assert named(b"ccommands\ngetoutput\n.") == {"subprocess.getoutput"}
    assert named(b"ccopy_reg\n_reconstructor\n.") == {"copyreg._reconstructor"}


def test_references_stay_references() -> None:
    shared = [1]
    found = load(pickle.dumps([shared, shared, (shared,)]))
    assert found[0] is found[1] is found[2][0]
    circle: list[Any] = []
    circle.append(circle)
    found = load(pickle.dumps(circle))
    assert found[0] is found
    # each list has the one before it a hundred times
    content = b"]q\x00" + b"".join(b"](" + bytes([104, i]) * 100 + b"e" + bytes([113, i + 1]) for i in range(99)) + b"."
    started = time.process_time()
    found = load(content)
    assert time.process_time() - started < 1
    assert len(found) == 100
    assert all(member is found[0] for member in found)


def test_persistent_ids_are_kept() -> None:
    found = load(b"\x80\x02(" + text("storage") + text("../../x") + b"tQ.")
    assert isinstance(found, PersistentReference)
    assert found.key == ("storage", "../../x")
    assert load(b"Pkey\n.").key == "key"


def test_long_texts_and_bytes_are_known_by_their_lengths() -> None:
    for protocol in range(6):
        value = {"text": "y" * (MAX_TEXT_BYTES + 10), "after": 1}
        found = load(pickle.dumps(value, protocol))
        assert isinstance(found["text"], TruncatedText)
        assert found["text"].length == MAX_TEXT_BYTES + 10
        assert found["text"].head.startswith(b"yyy")
        assert found["after"] == 1
    found = load(pickle.dumps([b"z" * (5 << 20), bytearray(9 << 20), "end"], 5))
    assert [member.length for member in found[:2]] == [5 << 20, 9 << 20]
    assert found[2] == "end"


def test_parts_of_a_file_make_what_the_whole_makes() -> None:
    value = [{"name": f"layer{number}" * 9, "data": b"x" * (number % 700)} for number in range(9_000)]
    content = pickle.dumps(value, 4) + pickle.dumps("second", 2)
    reads: list[int] = []

    def read(offset: int, length: int) -> bytes:
        assert 0 <= offset <= offset + length <= len(content)
        reads.append(length)
        return content[offset : offset + length]

    pickles = PickleStream(read, len(content))
    assert pickles.load() == value
    assert pickles.load() == "second"
    assert pickles.position == len(content)
    assert len(reads) > 1 or len(content) < 4 << 20


def test_keys_that_would_take_for_ever_to_hash_are_kept_by_identity() -> None:
    deep = b"\x80\x02})" + b"\x85" * 300_000 + b"Ns."
    assert isinstance(next(iter(load(deep))), IdentityKey)
    one_hash = (1 << 61) - 1  # hash() of its multiples is 0
    seconds = []
    for count in (25_000, 100_000):
        numbers = b"".join(
            b"\x8a\x0c" + (one_hash * number).to_bytes(12, "little") + b"N" for number in range(1, count)
        )
        started = time.process_time()
        found = load(b"\x80\x02}(" + numbers + b"u.")
        assert len(found) == count - 1
        seconds.append(time.process_time() - started)
    assert seconds[1] < 8 * seconds[0]  # each by comparing it with all before would take 16 times as long
    assert [type(key) for key in load(pickle.dumps({2.5: 1, 9_999: 2, -9_999: 3}))] == [
        IdentityKey,
        IdentityKey,
        IdentityKey,
    ]
    assert [key.value for key in load(pickle.dumps({2.5: 1, 9_999: 2}))] == [2.5, 9_999]


def remembered(*numbers: int) -> bytes:
    return b"N" + b"".join(b"r" + struct.pack("<I", number) for number in numbers)


def test_what_is_remembered_by_numbers_that_do_not_follow_each_other() -> None:
    assert load(b"(K\x01q\x01K\x02q\x00h\x01h\x00K\x03r\xff\xff\xff\xffj\xff\xff\xff\xfft.")[2:] == (1, 2, 3, 3)
    with pytest.raises(LimitError, match="do not follow each other"):
        load(remembered(*range(1 << 31, (1 << 31) + 5_000)) + b".")
    with pytest.raises(LimitError, match="opcodes"):
        load(remembered(1 << 31) + (b"j" + struct.pack("<I", 1 << 31) + b"0") * 200_000 + b".")
    # Python 2 counts from 1, and others leave out what they do not refer to
    assert load(remembered(*range(1, 60_000, 2)) + b"j" + struct.pack("<I", 59_999) + b".") is None


def test_escapes_are_those_of_python() -> None:
    whole = b"".join(b"\\" + bytes([code]) for code in b"\\'\"abfnrtv") + b"\\\x41\\x4a\\7\\101\\1018\\377\\q\\8"
    assert load(b"S'" + whole + b"'\n.") == "\\'\"\a\b\f\n\r\t\v\\\x41J\x07AA8\ufffd\\q\\8"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(b"S'\\q'\n.") == "\\q"
    with pytest.raises(ValueError, match="cut off"):
        load(b"S'\\xzz'\n.")


def test_texts_beyond_what_is_kept_are_known_by_their_lengths() -> None:
    wide = "😀" + "x" * 1_000_000
    found = load(pickle.dumps([f"{wide}{number}" for number in range(40)], 4))
    assert [type(each) for each in found] == [str] * 16 + [TruncatedText] * 24
    assert found[-1].length == 1_000_006
    assert [type(each) for each in load(b"(" + (b"V\\u0100" + b"x" * 999_999 + b"\n") * 20 + b"t.")][15:] == [str] + [
        TruncatedText
    ] * 4
    assert {type(each) for each in load(pickle.dumps([bytes(1 << 20) + bytes([at]) for at in range(3)], 4))} == {
        TruncatedText
    }
    found = load(b"(" + (b"B\0\0\x08\0" + bytes(1 << 19)) * 200 + b"t.")
    assert sum(type(each) is bytes for each in found) == 128
    assert found[-1].length == 1 << 19
    with pytest.raises(LimitError, match="bytes"):
        load(b"(" + (b"X\xe0\x03\0\0" + b"x" * 992) * 70_000 + b"t.")


SLOW = {
    "lines": b"I1\n" * 2_000_000,
    "names": b"ca\nb\n" * 2_000_000,
    "references": b"N" + b"Q" * 3_000_000,
    "floats": (b"F" + b"9" * 4_000 + b"\n") * 15_000,
    "escapes": b"S'" + b"\\a" * 300_000 + b"'\n" + (b"0S'" + b"\\a" * 300_000 + b"'\n") * 20,
}


@pytest.mark.parametrize("name", SLOW)
@pytest.mark.slow
def test_opcodes_count_by_what_they_take(name: str) -> None:
    started = time.process_time()
    with pytest.raises(LimitError, match="opcodes"):
        load(SLOW[name] + b".")
    assert time.process_time() - started < 5  # half of it where nothing else runs


def test_many_lines_take_no_longer_than_the_file_is_long() -> None:
    started = time.process_time()
    assert load(b"V\n0" * 500_000 + b"N.") is None
    assert time.process_time() - started < 3


FORGED = {
    "nothing": b"",
    "no opcode": b"\xff\xff",
    "nothing to pop": b"0.",
    "no mark": b"t.",
    "an unknown memo": b"h\x09.",
    "no end": b"\x80\x02]",
    "a line without an end": b"cposix\nsystem",
    "a name beyond any": b"c" + b"m" * 5_000 + b"\nx\n.",
    "a name that is a number": b"\x80\x04K\x01K\x02\x93.",
    "a huge LONG4": b"\x80\x02\x8b\xff\xff\xff\x7f" + b"1" * 50 + b".",
    "a negative LONG4": b"\x80\x02\x8b\xff\xff\xff\xff.",
    "a huge LONG": b"L" + b"9" * 100_000 + b"L\n.",
    "a huge INT": b"I" + b"9" * 100_000 + b"\n.",
    "a huge FLOAT": b"F" + b"9" * 100_000 + b"\n.",
    "a huge BINUNICODE8": b"\x80\x04\x8d" + b"\xff" * 7 + b"\x7fxx.",
    "a huge BINBYTES8": b"\x80\x04\x8e" + b"\xff" * 8 + b"xx.",
    "a huge BINSTRING": b"T\xff\xff\xff\xffxx.",
    "a huge PUT": b"Np" + b"9" * 50 + b"\n.",
    "something put into a number": b"K\x01(NNu.",
    "something added to None": b"NNa.",
    "an odd number of entries": b"}(Nu.",
    "STRING without quotes": b"S\\x\n.",
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_pickles_have_errors(name: str) -> None:
    started = time.process_time()
    with pytest.raises(ValueError, match="cannot be followed"):
        load(FORGED[name])
    assert time.process_time() - started < 3


@pytest.mark.parametrize(
    ("content", "what"),
    [(b"N" * 4_000_001 + b".", "opcodes"), (b"".join(b"cm\nx%d\n" % at for at in range(20_001)) + b".", "import")],
    ids=["opcodes", "imports"],
)
def test_more_than_is_followed_is_no_forgery(content: bytes, what: str) -> None:
    started = time.process_time()
    with pytest.raises(LimitError, match=f"more than .* {what}"):
        load(content)
    assert time.process_time() - started < 3


def test_any_change_gives_values_or_an_error() -> None:
    whole = [
        pickle.dumps([PLAIN, argparse.Namespace(a=PLAIN), collections.deque([1])], protocol) for protocol in range(6)
    ]
    chooser = random.Random(0)
    failed = 0
    for turn in range(1_200):
        content = bytearray(whole[turn % 6])
        for _ in range(chooser.randrange(1, 6)):
            content[chooser.randrange(len(content))] = chooser.randrange(256)
        try:
            load(bytes(content[: chooser.randrange(len(content))] if chooser.random() < 0.2 else content))
        except ValueError:
            failed += 1
    assert 300 < failed < 1_200


def test_the_start_of_a_pickle_is_never_a_pickle() -> None:
    content = pickle.dumps(PLAIN, 2)
    for length in range(len(content)):
        with pytest.raises(ValueError, match="cannot be followed"):
            load(content[:length])
