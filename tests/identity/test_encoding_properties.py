"""Properties of the encoding over generated values."""

import math
import random
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modulekg_widgets.engine.identity.encoding import python_values  # noqa: F401  it registers the encodings
from modulekg_widgets.engine.identity.encoding.python_values import Encoder

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers() | st.binary(max_size=8)
    | st.text(st.characters(exclude_categories=()), max_size=8) | st.integers(min_value=-(2**3000), max_value=2**3000)
)  # fmt: skip
KEYS = st.recursive(SCALARS, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=4)
VALUES = st.recursive(
    SCALARS | KEYS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.sets(KEYS, max_size=4)
    ),
    max_leaves=12,
)
SEEDS = st.integers(0, 2**32 - 1)  # sets that hold NaN are walked by address: hypothesis replays no draws in them


def encoded(value: Any) -> bytes:
    return Encoder().encode_attribute(value, "x")


def comparable(value: Any) -> Any:
    """A value of this test's own making that is equal exactly for what must be encoded alike."""
    kind = type(value)
    if kind is float:
        return "float", "nan" if math.isnan(value) else struct.pack(">d", value)
    if kind is complex:
        return "complex", comparable(value.real), comparable(value.imag)
    if kind in (list, tuple):
        return kind.__name__, tuple(comparable(v) for v in value)
    if kind in (set, frozenset):
        return kind.__name__, tuple(sorted((comparable(v) for v in value), key=repr))
    if kind is dict:
        return "dict", tuple(sorted(((comparable(k), comparable(v)) for k, v in value.items()), key=repr))
    return kind.__name__, value


def rebuilt(value: Any, rng: random.Random) -> Any:
    """An equal value made anew, its sets and dicts filled in another order, and nothing in it shared."""
    kind = type(value)
    if kind in (list, tuple):
        return kind(rebuilt(v, rng) for v in value)
    if kind in (set, frozenset, dict):
        entries = list(value.items()) if kind is dict else list(value)
        rng.shuffle(entries)
        return kind(tuple(rebuilt(part, rng) for part in e) if kind is dict else rebuilt(e, rng) for e in entries)
    return bytes(bytearray(value)) if kind is bytes else value


@settings(max_examples=500, deadline=None)
@given(VALUES, VALUES)
@pytest.mark.slow
def test_encodings_are_equal_exactly_for_equal_values(left: Any, right: Any) -> None:
    assert (encoded(left) == encoded(right)) == (comparable(left) == comparable(right))


@settings(max_examples=300, deadline=None)
@given(VALUES, SEEDS)
@pytest.mark.slow
def test_encodings_do_not_depend_on_order_and_sharing(value: Any, seed: int) -> None:
    assert encoded(value) == encoded(rebuilt(value, random.Random(seed)))


@settings(max_examples=200, deadline=None)
@given(st.lists(VALUES, max_size=6))
@pytest.mark.slow
def test_an_encoder_remembers_rightly(many: list[Any]) -> None:
    encoder = Encoder()
    assert [encoder.encode_attribute(v, "x") for v in many + many] == [encoded(v) for v in many + many]
    assert encoder.opaque == []


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=5), SEEDS)
@pytest.mark.slow
def test_attributes_have_no_order(attributes: dict[str, Any], seed: int) -> None:
    shuffled = list(attributes.items())
    random.Random(seed).shuffle(shuffled)
    assert Encoder().encode_attributes(attributes, "") == Encoder().encode_attributes(dict(shuffled), "")
