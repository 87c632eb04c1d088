"""Attribute values: each plain value has its own encoding, the same in any order and process."""

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import itertools
import math
import operator
import pathlib
import re
import threading
import types
import uuid
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from identity.samples import Holder, digest


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Right(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass
class Options:
    width: int = 1
    names: list[str] = dataclasses.field(default_factory=list)


class Pair(NamedTuple):
    left: int
    right: int


class Plain:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Slotted:
    __slots__ = ("unset", "value")

    def __init__(self, value: int) -> None:
        self.value = value


class Count(int):
    pass


class Words(list):
    pass


def twice(x: int) -> int:
    return x + x


def thrice(x: int) -> int:
    return x + x + x


# every value in this list differs from every other
DISTINCT: list[Any] = [
    None, ..., NotImplemented, True, False, 0, 1, -1, 2, 255, 256, -256, 2**63, 2**64, -(2**64), 10**5000, 10**5000 + 1,
    0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, 5e-324, 1e300, 0j, 1j, complex(-0.0, 0.0), complex(math.nan, 0),
    "", "a", "1", "None", "a\0b", "\ud800", "\ud801", "\u00e9", "e\u0301", "\U0001f4a9", "y" * 100_000,
    "y" * 99_999 + "x", b"", b"a", b"1", bytearray(b"a"), (), (1,), (1, 2), (2, 1), ((1,), 2), (1, (2,)),
    (None,), [], [1], [1, 2], [[1], 2], {}, {"a": 1}, {"a": "1"}, {"a": 1, "b": 2}, {1: "a"}, {"1": "a"},
    {(1, 2): None}, {None: 0}, {10**5000: 1}, set(), {1}, {"1"}, {1, 2}, {1, "1", None, 2.5, (1,)},
    frozenset(), frozenset({1}), {frozenset({1})}, range(3), range(0, 3, 2), slice(1, 2), slice(None, 2),
    Colour.RED, Colour.BLUE, Level.LOW,
    Level.HIGH, Right.READ, Right.READ | Right.WRITE, Options(), Options(2), Options(1, ["a"]),
    Pair(1, 2), Pair(2, 1), Plain(), Plain(a=1),
    Plain(a=2), Plain(b=1), Slotted(1), Slotted(2), Count(1), Count(2), Words([1]), Words([2]), Words(),
    collections.OrderedDict(a=1), collections.Counter("aab"), collections.deque([1]), collections.deque([1], 3),
    collections.defaultdict(list), collections.defaultdict(set), collections.defaultdict(list, a=[1]),
    collections.ChainMap({"a": 1}), collections.UserDict(a=1), types.SimpleNamespace(a=1), types.SimpleNamespace(a=2),
    int, float, Colour, Plain, torch, math, twice, thrice, len, max, math.sin, math.cos, "".join, " ".join, str.upper,
    functools.partial(twice, 1), functools.partial(twice, 2), functools.partial(twice, x=1),
    functools.partial(thrice, 1), Plain(a=1).__init__, operator.itemgetter(1), operator.itemgetter(2), torch.relu,
    torch.tanh, torch.nn.functional.relu,
    torch.float32, torch.float16, torch.int32, torch.device("cpu"), torch.device("cuda", 1), torch.Size([1, 2]),
    torch.Size([2, 1]), torch.strided, torch.channels_last, torch.ops.aten.relu.default, torch.ops.aten.tanh.default,
    torch.ops.aten.relu, torch.zeros(2), torch.zeros(3), torch.zeros(2, dtype=torch.int64), [torch.zeros(2)],
    np.float32(1), np.float64(1), np.int64(1), np.zeros(2), np.ones(2), np.zeros((1, 2)), np.zeros(2, "i4"), np.tanh,
    np.sin, np.dtype("f4"), np.dtype("f8"), np.zeros(2, [("a", "i4")]), np.zeros(2, [("b", "i4")]), np.ones((3, 4)).T,
    datetime.date(2020, 1, 2), datetime.datetime(2020, 1, 2), datetime.timedelta(3), datetime.timezone.utc,
    datetime.datetime(2020, 1, 2, tzinfo=datetime.timezone.utc), decimal.Decimal("1.5"), decimal.Decimal("1.50"),
    fractions.Fraction(1, 3), fractions.Fraction(2, 3), uuid.UUID(int=1), uuid.UUID(int=2), re.compile("a"),
    re.compile("a", re.IGNORECASE), array.array("b", b"a"), array.array("b", b"b"), array.array("h", [97]),
    pathlib.PurePosixPath("a"), pathlib.PurePosixPath("b"), nn.ReLU(), nn.Linear(1, 2), nn.Linear(2, 1),
]  # fmt: skip


def test_different_values_have_different_encodings() -> None:
    digests = [digest(x=value) for value in DISTINCT]
    pairs = itertools.combinations(range(len(digests)), 2)
    clashes = [(DISTINCT[i], DISTINCT[j]) for i, j in pairs if digests[i] == digests[j]]
    assert clashes == []


def test_they_differ_within_one_model_too() -> None:
    # one encoder serves a model and remembers: what it remembers of one value must not stand for another
    for order in (DISTINCT, DISTINCT[::-1]):
        model = nn.Sequential(*(Holder(x=wrapped) for value in order for wrapped in (value, [value])))
        inside = [record.fingerprint.hexdigest for record in mk.hierarchy(model)][1:]
        alone = [digest(x=wrapped) for value in order for wrapped in (value, [value])]
        # hidden modules are records of nothing: every record is one of the holders
        assert inside == alone


def test_none_of_them_is_opaque() -> None:
    assert [value for value in DISTINCT if mk.fingerprint(Holder(x=value)).opaque_paths] == []


EQUAL: dict[str, tuple[Any, Any]] = {
    "order of a dict": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "order of a set": ({f"{i}" for i in range(50)}, {f"{i}" for i in reversed(range(50))}),
    "order of a frozenset": (frozenset("abc"), frozenset("cba")),
    "order of keywords": (functools.partial(twice, a=1, b=2), functools.partial(twice, b=2, a=1)),
    "order within": ([{"a": {1, 2}, "b": 0}], [{"b": 0, "a": {2, 1}}]),
    "not a number": (math.nan, -math.nan),
    "sharing": ([[1], [1]], [[1]] * 2),
    "object": (Plain(a=1, b=2), Plain(b=2, a=1)),
    "slots": (Slotted(1), Slotted(1)),
    "tensor contents": (torch.zeros(2), torch.ones(2)),
    "tensor precision": (torch.zeros(2), torch.zeros(2, dtype=torch.float16)),
    "array layout": (np.ones((3, 4)).T, np.ones((4, 3))),
    "weak reference to a tensor": (weakref.ref(torch.zeros(2)), None),
}
KEPT_ALIVE = [torch.zeros(2), torch.ones(2)]
EQUAL["weak reference to a tensor"] = (weakref.ref(KEPT_ALIVE[0]), weakref.ref(KEPT_ALIVE[1]))


@pytest.mark.parametrize("pair", EQUAL.values(), ids=EQUAL)
def test_equal_values_have_equal_encodings(pair: tuple[Any, Any]) -> None:
    assert digest(x=pair[0]) == digest(x=pair[1])


OPAQUE: dict[str, Callable[[], Any]] = {
    "lock": threading.Lock,
    "generator": lambda: (i for i in ()),
    "file": lambda: open("/dev/null"),  # noqa: SIM115
    "thread": threading.Thread,
    "iterator": lambda: iter([1]),
    "weak reference": lambda: weakref.ref(nn.ReLU),
    "exception": lambda: ValueError("x"),
    "random generator": torch.Generator,
    "array of objects": lambda: np.array([object()], dtype=object),
    "object with hidden state": lambda: type("Hidden", (Exception,), {})(),
}


@pytest.mark.parametrize("make", OPAQUE.values(), ids=OPAQUE)
def test_what_cannot_be_seen_into_is_marked_and_stable(make: Callable[[], Any]) -> None:
    model = nn.Sequential(nn.ReLU(), Holder(config={"key": [0, make()]}))
    found = mk.fingerprint(model)
    assert found.opaque_paths == ("1.config['key'][1]",)
    assert found == mk.fingerprint(nn.Sequential(nn.ReLU(), Holder(config={"key": [0, make()]})))
    assert found != mk.fingerprint(nn.Sequential(nn.ReLU(), Holder(config={"key": [0, None]})))


def test_opaque_values_of_different_types_differ() -> None:
    assert len({digest(x=make()) for make in OPAQUE.values()}) == len(OPAQUE)


def test_opaque_paths_are_told_from_the_module_that_is_asked() -> None:
    shared = Holder(lock=threading.Lock())
    model = nn.Sequential(Holder(), nn.Sequential(Holder(a=threading.Lock(), b=[threading.Lock()])), shared)
    model[1].append(shared)
    records = mk.hierarchy(model)
    assert records.root.fingerprint.opaque_paths == ("1.0.a", "1.0.b[0]", "1.1.lock")
    assert records["1.0"].fingerprint.opaque_paths == ("a", "b[0]")
    assert records["0"].fingerprint.opaque_paths == ()
    assert records["2"].fingerprint.opaque_paths == ("lock",)


def test_values_in_slots_count() -> None:
    class Scaled(nn.Module):
        __slots__ = ("factor", "unset")

    def scaled(factor: int) -> nn.Module:
        module = Scaled()
        module.factor = factor
        return module

    assert mk.fingerprint(scaled(1)) == mk.fingerprint(scaled(1))
    assert mk.fingerprint(scaled(1)) != mk.fingerprint(scaled(2))
    assert mk.fingerprint(scaled(1)) != mk.fingerprint(Scaled())


class Settings:
    """A plain object that remembers what `hash` gave."""

    def __init__(self, **values: object) -> None:
        vars(self).update(values)


@pytest.mark.parametrize("name", ["_original_object_hash", "_hash", "hash"])
@pytest.mark.parametrize("kept", [49915153752624772, -(1 << 61), None])
def test_a_hash_that_an_object_keeps_does_not_count(name: str, kept: int | None) -> None:
    """It is another number in every process."""
    assert digest(x=Settings(width=1, **{name: kept})) == digest(x=Settings(width=1, **{name: 1578930936483987317}))
    assert digest(**{name: kept, "width": 1}) == digest(**{name: 1578930936483987317, "width": 1})


@pytest.mark.parametrize(
    ("name", "one", "other"), [("n_hash", 4, 8), ("commit_hash", "a1", "b2"), ("hash_seed", 1 << 40, 1 << 41)]
)
def test_other_values_with_such_a_name_count(name: str, one: object, other: object) -> None:
    assert digest(x=Settings(**{name: one})) != digest(x=Settings(**{name: other}))


@pytest.mark.parametrize("number_of", [id, object.__hash__, lambda own: hash(own.name)])
def test_a_number_of_the_process_does_not_count_under_any_name(number_of: Callable[[Any], int]) -> None:
    """`id` and `hash` of itself, or of what stands beside it."""

    def keeping(with_key: bool) -> nn.Module:
        module = nn.Linear(2, 3)
        settings = Settings(name="net", width=1)
        module.name, module.settings = "net", settings
        if with_key:
            module.key, settings.key = number_of(module), number_of(settings)
        return module

    assert mk.fingerprint(keeping(True)) == mk.fingerprint(keeping(False))
    other = keeping(True)
    other.key += 1
    assert mk.fingerprint(other) != mk.fingerprint(keeping(True))
