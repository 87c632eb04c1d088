"""Files of plans with one thing or a few gone wrong, as by a failing disk, a careless editor or somebody hostile."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

NUMBERS = [
    0, 1, -1, 2, 7, 63, 65, 1 << 31, 1 << 40, (1 << 40) + 1, 1 << 63, -(1 << 70), 10**31, 10**4000, 0.5, -0.0, 1e308,
    float("nan"), float("inf"), True, False, None,
]  # fmt: skip
TEXTS = [
    "", "0", "1", "00", "-1", "weight", "0.weight", "training", "\0", "\x1b[2J", "\ud800", "x" * 20_000, "__class__",
    "a.__dict__.b", "a..b", ".", "٣",
]  # fmt: skip
SETS = [
    [], {}, [[]], [0], [0, 0], [1, 0], [-1], [0.5], [None], [[0]], {"": 0}, {"0": 0}, {"tuple": [1, 2]},
    {"tuple": None}, list(range(3)), list(range(1000)),
]  # fmt: skip
VALUES: list[Any] = [*NUMBERS, *TEXTS, *SETS]
BYTES = [
    b"\xff", b"\xc3", b"\0", b'"', b"[", b"]", b"{", b"}", b",", b":", b"-", b"9" * 5000, b"1e999", b"NaN", b"\\u0000",
]  # fmt: skip
Node = tuple[Any, Any]  # a list or dictionary, and the index or name of something in it


def mutant(text: str, seed: int) -> bytes:
    """A file that is almost `text`, another one for each seed."""
    rng = random.Random(seed)
    if rng.random() < 0.3:
        raw = text.encode()
        for _ in range(rng.choice([1, 1, 1, 2, 5])):
            raw = rng.choice(ON_BYTES)(raw, rng)
        return raw
    document = json.loads(text)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        container, key = rng.choice(list(nodes(document)))
        rng.choice(ON_NODES)(container, key, document, rng)
    made = json.dumps(document)
    return (doubled(made, rng) if rng.random() < 0.05 else made).encode()


def nodes(document: Any) -> Iterator[Node]:
    """Every place in a document that something stands at."""
    inside = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in list(inside):
        yield document, key
        if isinstance(value, dict | list):
            yield from nodes(value)


def doubled(text: str, rng: random.Random) -> str:
    """One name twice in one object, which no writer of JSON makes."""
    at = rng.choice([i for i, letter in enumerate(text) if letter == "{"])
    return text[: at + 1] + '"format": "modulekg-plan", "0": 0, "0": 1, "names": [], ' + text[at + 1 :]


# -------------------------------------------------------------------- bytes


def _flip(raw: bytes, rng: random.Random) -> bytes:
    if not raw:
        return raw
    at = rng.randrange(len(raw))
    return raw[:at] + bytes([raw[at] ^ 1 << rng.randrange(8)]) + raw[at + 1 :]


def _cut_off(raw: bytes, rng: random.Random) -> bytes:
    return raw[: rng.randrange(len(raw) + 1)]


def _gap(raw: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(raw) + 1)
    return raw[:start] + raw[start + rng.choice([1, 2, 10, 100]) :]


def _repeat(raw: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(raw) + 1)
    end = start + rng.choice([1, 2, 10, 100])
    return raw[:end] + raw[start:end] + raw[end:]


def _insert(raw: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(raw) + 1)
    return raw[:at] + rng.choice(BYTES) + raw[at:]


def _digit(raw: bytes, rng: random.Random) -> bytes:
    places = [at for at, byte in enumerate(raw) if chr(byte).isdigit()]
    if not places:
        return raw
    at = rng.choice(places)
    return raw[:at] + str(rng.randrange(10)).encode() + raw[at + 1 :]


def _mark(raw: bytes, rng: random.Random) -> bytes:
    return rng.choice([b"\xef\xbb\xbf", b"\xff\xfe", b" ", b"\n", b"\0"]) + raw


ON_BYTES: list[Callable[[bytes, random.Random], bytes]] = [
    _flip,
    _cut_off,
    _gap,
    _repeat,
    _insert,
    _digit,
    _digit,
    _mark,
]

# -------------------------------------------------------------------- nodes


def _drop(container: Any, key: Any, document: Any, rng: random.Random) -> None:
    del container[key]


def _replace(container: Any, key: Any, document: Any, rng: random.Random) -> None:
    container[key] = copy.deepcopy(rng.choice(VALUES))


def _swap(container: Any, key: Any, document: Any, rng: random.Random) -> None:
    """What stands at two places changes places, or the one is copied over the other."""
    other, there = rng.choice(list(nodes(document)))
    container[key] = copy.deepcopy(other[there])


def _step(container: Any, key: Any, document: Any, rng: random.Random) -> None:
    if type(container[key]) is int:
        container[key] += rng.choice([-2, -1, 1, 2])
    else:
        container[key] = [container[key]]


def _again(container: Any, key: Any, document: Any, rng: random.Random) -> None:
    value = copy.deepcopy(container[key])
    if isinstance(container, list):
        container.insert(rng.randrange(len(container) + 1), value)
    else:
        container[f"{key}.{key}" if rng.random() < 0.5 else f"{key} "] = value


def _rename(container: Any, key: Any, document: Any, rng: random.Random) -> None:
    if isinstance(container, dict):
        names = [name for where, name in nodes(document) if isinstance(name, str)]
        container[rng.choice([*names, "1", "training", "__dict__.x", ""])] = container.pop(key)
    else:
        rng.shuffle(container)


def _shorten(container: Any, key: Any, document: Any, rng: random.Random) -> None:
    value = container[key]
    if isinstance(value, list) and value:
        del value[rng.randrange(len(value)) :: rng.choice([1, 2, 3])]
    elif isinstance(value, str):
        container[key] = value[: rng.randrange(len(value) + 1)]
    else:
        container[key] = rng.randrange(12)


def _deepen(container: Any, key: Any, document: Any, rng: random.Random) -> None:
    for _ in range(rng.choice([1, 5, 60])):
        container[key] = [container[key]] if rng.random() < 0.5 else {"tuple": container[key]}


ON_NODES: list[Callable[[Any, Any, Any, random.Random], None]] = [
    _drop, _replace, _replace, _swap, _step, _step, _again, _rename, _shorten, _deepen,
]  # fmt: skip
