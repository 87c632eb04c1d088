"""Plain values of properties as JSON text and back."""

from __future__ import annotations

import json
import math
import random
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from knowledge.exchanged import exactly
from modulekg_widgets.engine.errors import PropertyError
from modulekg_widgets.engine.knowledge.facts.property_values import (
    MAX_DEPTH,
    decode,
    decode_history,
    encode,
    encode_history,
)

NAN = float("nan")
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2**53, 2**53 + 1, -(2**64), 10**5000, 0.0, -0.0, 1.0, 1e300, 5e-324, NAN, math.inf,
    -math.inf, complex(1, -0.0), complex(NAN, math.inf), "", "é", "\0", "\ud800", "\ud83d\ude00", "😀", "a\u2028b",
    "\udc00\ud800\ud800\udc00", '"$tuple', "$tuple", "' OR 1=1", b"", b"\xff\0", (), [], {}, (1,), [1, (2, [3.0])],
    {"a": 1}, {"$tuple": 1}, {"$": None}, {"$tuple": [1], "b": 2}, {1: "a", "1": "b", None: 0, (1, b"x"): [True]},
    {"\ud83d\ude00": "split", "😀": "whole"}, {"$dict": {"$str": {"$int": [NAN]}}}, {True: 1}, {-1: 0, -2: 0},
    datetime(2024, 2, 29, 1, 2, 3, 4), datetime(2024, 1, 1, tzinfo=timezone.utc),
    datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=-3, minutes=-30))), {"__proto__": {"constructor": []}},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_a_plain_value_comes_back_as_it_was(value: Any) -> None:
    for whole in (value, [value], {"key": value}, ({"$x": (value,)},)):
        text = encode(whole)
        assert text.isascii()
        assert "\0" not in text
        assert exactly(decode(text)) == exactly(whole)


texts = st.text(st.characters(codec=None, categories=None), max_size=6) | st.sampled_from(
    ["$tuple", "$", "\ud83d\ude00"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers() | st.binary(max_size=4) | texts
keys = st.recursive(
    scalars.filter(lambda x: x == x), lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=3
)
plain = st.recursive(
    scalars | st.datetimes(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple) | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=12,
)


@given(plain)
@settings(max_examples=300, deadline=None, derandomize=True)
@pytest.mark.slow
def test_any_plain_value_comes_back_as_it_was(value: Any) -> None:
    assert exactly(decode(encode(value))) == exactly(value)


def test_scalars_of_numpy_become_those_of_python() -> None:
    made = [np.float32(0.5), np.float64(NAN), np.int64(-3), np.uint64(2**64 - 1), np.bool_(True), np.str_("x"),
            np.bytes_(b"y"), np.complex64(1j), np.longdouble(2)]  # fmt: skip
    wanted = [0.5, NAN, -3, 2**64 - 1, True, "x", b"y", 1j, 2.0]
    assert exactly(decode(encode(made))) == exactly(wanted)
    assert exactly(decode(encode({"a": made[1]}))) == exactly({"a": NAN})


def test_a_named_zone_becomes_its_offset() -> None:
    moment = datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("UTC"))
    found = decode(encode(moment))
    assert isinstance(found, datetime)
    assert found == moment
    assert type(found.tzinfo) is timezone


class OwnZone(tzinfo):
    def utcoffset(self, moment: datetime | None) -> timedelta:
        raise RuntimeError("never called")


class Lying(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError("never called")


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, torch.ones(1), np.ones(2), np.datetime64("now"), Lying("x"), range(3), open,
     datetime(2024, 1, 1, tzinfo=OwnZone()), bytearray(b"x"), np.void(b"x"), torch.float32],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_is_not_plain_is_refused_by_name(value: Any) -> None:
    with pytest.raises(PropertyError, match=r"property 'settings\.lr\.2' (is a|has)"):
        encode({"lr": [0, 1, value]}, "settings")
    with pytest.raises(PropertyError, match=r"property 'lr' (is a|has)"):
        encode({"lr": value})
    with pytest.raises(PropertyError, match=r"the value of a property (is a|has)"):
        encode(value)


def test_keys_are_plain_values_too() -> None:
    with pytest.raises(PropertyError, match="property 'a key' is a frozenset"):
        encode({frozenset(): 1})


def test_depth_is_limited_alike_in_writing_and_reading() -> None:
    for wrap in (lambda v: [v], lambda v: (v,), lambda v: {"a": v}, lambda v: {1: v}):
        value: Any = complex(NAN, 1)
        for _ in range(MAX_DEPTH):
            value = wrap(value)
        assert exactly(decode(encode(value))) == exactly(value)
        with pytest.raises(PropertyError, match="nested deeper"):
            encode(wrap(value), "deep")
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(PropertyError, match="nested deeper"):
        encode(endless)


@pytest.mark.nightly
def test_size_is_limited_before_memory_is_gone() -> None:
    shared: list[Any] = [0]
    for _ in range(25):
        shared = [shared, shared]
    texts = ["x" * 5_000_000] * 1_000_000
    few = [[["y" * 100_000] * 50] * 50] * 50
    for value in (shared, texts, few, "x" * 9_000_000, b"x" * 9_000_000, [2**1_000_000] * 10_000, [0] * 600_000):
        with pytest.raises(PropertyError, match=r"property 'large' is longer than .* keep it in a file"):
            encode(value, "large")


def test_whoever_has_more_says_so() -> None:
    value = list(range(600_000))
    text = encode(value, max_items=1_000_000)
    assert decode(text, max_items=1_000_000) == value
    with pytest.raises(ValueError, match="at most 160 characters"):
        decode(text, max_items=10)


@pytest.mark.parametrize(
    "text",
    ["", "{", "NaN", "Infinity", "-Infinity", "[" * 100_000, '{"a":' * 100_000, "[" * 40 + "]" * 40, "1" * 10_000,
     '{"$tuple":1}', '{"$float":"1"}', '{"$float":1}', '{"$int":"12"}', '{"$int":"0x_1"}', '{"$bytes":"?"}',
     '{"$bytes":"\\ud800"}', '{"$datetime":"yesterday"}', '{"$complex":[1.0]}', '{"$complex":[[],1.0]}',
     '{"$complex":[1,"2"]}', '{"$str":[1]}', '{"$dict":[1]}', '{"$dict":[[1,2],[1,3]]}', '{"$dict":[[[],1]]}',
     '{"$dict":[["a"]]}', '{"$x":1}', '{"$":null}', '"\n"', "'a'", "{'a':1}", "[1,]", " " * 9_000_000, "\ud800",
     '{"$tuple":[{"$tuple":[{"$never":1}]}]}', '[{"$str":' * 5000 + "1" + "}]" * 5000],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_text_that_encode_did_not_write_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(text)


def test_only_text_is_decoded() -> None:
    with pytest.raises(ValueError, match="not as a bytes"):
        decode(b"1")  # type: ignore[arg-type]


def test_keys_made_to_collide_are_refused() -> None:
    period = 2**61 - 1
    pairs = ",".join(f'[{{"$int":"{hex(k * period)}"}},0]' for k in range(1, 100_000))
    with pytest.raises(ValueError, match="same hash"):
        decode('{"$dict":[' + pairs + "]}")


def test_mutated_texts_are_values_or_value_errors() -> None:
    rng = random.Random(7)
    parts = ['"', "{", "}", "[", "]", "$", "1", ",", ":", "e", "\\u", ""]
    seeds = [encode(value) for value in VALUES if value != 10**5000] + [encode(VALUES[:13] + VALUES[14:])]
    refused = 0
    for _ in range(5000):
        text = list(rng.choice(seeds))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(text) + 1)
            text[at : at + rng.randint(0, 3)] = rng.choice(parts)
        try:
            decode("".join(text))
        except ValueError:
            refused += 1
    assert 500 < refused < 5000


def test_a_text_for_other_tools_is_plain_json() -> None:
    assert json.loads(encode({"lr": 0.1, "name": "a", "on": True, "n": None})) == {
        "lr": 0.1, "name": "a", "on": True, "n": None,
    }  # fmt: skip


def test_histories_come_back_with_their_types() -> None:
    history: dict[str, list[tuple[float, float]]] = {
        "acc": [(0, 0.5), (1.5, NAN)], "none": [], "\ud83d\ude00": [(2, math.inf)], "$x": [(1, 2)],
    }  # fmt: skip
    assert exactly(decode_history(encode_history(history))) == exactly(history)
    assert decode_history(encode_history({"$x": [(1, 2)]})) == {"$x": [(1, 2)]}


@pytest.mark.parametrize(
    "text", ["1", "[]", '{"a":1}', '{"a":[[1]]}', '{"a":[[1],["x"]]}', '{"a":[[1],[true]]}', '{"a":[[1],[]]}',
             '{"$dict":[[1,[]]]}', '{"a":[[1],[[]]]}', '{"a":{}}'],
)  # fmt: skip
def test_other_text_is_no_history(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_history(text)
