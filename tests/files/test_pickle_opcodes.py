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
from typing import Any

import pytest

from modulekg_widgets.engine.files.pickle_opcodes import OPCODES, Pickles
from modulekg_widgets.engine.files.pickle_tape import LONGEST_TEXT, Global, Key, LimitError, Long, Made, Persistent

PLAIN = {
    "numbers": [0, 1, -1, 255, 256, 65_535, 65_536, -(2**31), 2**31, 2**63, -(2**200), 1.5, -0.0, 1e300],
    "texts": ["", "a", "ü€😀", "x" * 300, "line\nbreak\\", "\x00"],
    "constants": (None, True, False),
    "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
    "dicts": {"a": {}, 1: [], None: (), 2.5: {"b": "c"}},
}


def load(content: bytes) -> Any:
    return Pickles.of(content).load()


def named(content: bytes) -> set[str]:
    pickles = Pickles.of(content)
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
    assert isinstance(made, Made)
    assert made.state == {"lr": 0.1, "size": (1, 2)}
    ordered = load(pickle.dumps(collections.OrderedDict(a=1), protocol))
    assert ordered.maker == Global("collections", "collections.OrderedDict")
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
    assert made.maker == Global("posix", "posix.system")
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
    assert isinstance(found, Persistent)
    assert found.key == ("storage", "../../x")
    assert load(b"Pkey\n.").key == "key"


def test_long_texts_and_bytes_are_known_by_their_lengths() -> None:
    for protocol in range(6):
        value = {"text": "y" * (LONGEST_TEXT + 10), "after": 1}
        found = load(pickle.dumps(value, protocol))
        assert isinstance(found["text"], Long)
        assert found["text"].length == LONGEST_TEXT + 10
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

    pickles = Pickles(read, len(content))
    assert pickles.load() == value
    assert pickles.load() == "second"
    assert pickles.position == len(content)
    assert len(reads) > 1 or len(content) < 4 << 20


def test_keys_that_would_take_for_ever_to_hash_are_kept_by_identity() -> None:
    deep = b"\x80\x02})" + b"\x85" * 300_000 + b"Ns."
    assert isinstance(next(iter(load(deep))), Key)
    one_hash = (1 << 61) - 1  # hash() of its multiples is 0
    numbers = b"".join(b"\x8a\x0c" + (one_hash * number).to_bytes(12, "little") + b"N" for number in range(1, 100_000))
    started = time.process_time()
    assert len(load(b"\x80\x02}(" + numbers + b"u.")) == 99_999
    assert time.process_time() - started < 2


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
