"""Long lists of numbers are encoded at once, and to the same bytes as one by one."""

from __future__ import annotations

import math
import random
import struct
from collections import deque

import pytest
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.identity.encoding import packing, python_values
from modulekg_widgets.engine.identity.encoding.packing import BATCH_ROWS, MIN_BATCH, encode_numbers, length_prefixed
from modulekg_widgets.engine.identity.encoding.python_values import Encoder

EDGES = [sign * (2**bits + step) for bits in range(63) for step in (-1, 0, 1) for sign in (-1, 1)]
OTHER_NAN = struct.unpack(">d", b"\xff\xf8\0\0\0\0\0\1")[0]
FLOATS = [0.0, -0.0, 1.5, -1e-310, math.inf, -math.inf, math.nan, -math.nan, OTHER_NAN, 5e-324, 1.7976931348623157e308]


def one_by_one(found: list[object]) -> bytes:
    assert python_values.HANDLERS
    return b"".join(length_prefixed(Encoder().encode(value, "")) for value in found)


def filled(given: list[object], count: int = MIN_BATCH) -> list[object]:
    return (given * (count // len(given) + 1))[: max(count, len(given))]


@pytest.mark.parametrize("given", [EDGES, FLOATS, [*EDGES, *FLOATS], [0], [1.0], [*FLOATS, *range(-300, 300)]])
def test_the_same_bytes_as_one_by_one(given: list[object]) -> None:
    assert encode_numbers(filled(given)) == one_by_one(filled(given))


def test_random_numbers_over_several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "BATCH_ROWS", 700)
    rng = random.Random(3)
    draw = [
        lambda: rng.gauss(0, 1),
        lambda: rng.randrange(-(2**63) + 1, 2**63),
        lambda: rng.randrange(-300, 300),
    ]
    for pick in ([0], [1], [2], [0, 1, 2]):
        given = [draw[rng.choice(pick)]() for _ in range(3000)]
        assert encode_numbers(given) == one_by_one(given)
    assert BATCH_ROWS > 700


@pytest.mark.parametrize("other", [True, None, "1", 2**63, -(2**63), 10**30, 1j, (1,), nn.ReLU()])
def test_one_other_value_and_all_go_one_by_one(other: object) -> None:
    assert encode_numbers([*range(2 * MIN_BATCH), other]) is None
    short, long = nn.ReLU(), nn.ReLU()
    short.kept, long.kept = [*range(MIN_BATCH), other], [*range(MIN_BATCH), other, 1]
    assert mk.fingerprint(short) != mk.fingerprint(long)


def test_a_subclass_of_a_number_is_no_plain_one() -> None:
    class Own(int):
        pass

    assert encode_numbers([*range(MIN_BATCH), Own(3)]) is None


@pytest.mark.parametrize("kind", [list, tuple, deque])
def test_containers_read_as_before(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    given = filled([*EDGES, *FLOATS], 3 * MIN_BATCH)
    module = nn.ReLU()
    module.kept = kind(given)
    at_once = mk.fingerprint(module)
    monkeypatch.setattr(packing, "MIN_BATCH", 10**9)
    assert mk.fingerprint(module) == at_once
    module.kept = kind([*given, 1])
    assert mk.fingerprint(module) != at_once
