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
    chance = random.Random(seed)
    if chance.random() < 0.3:
        raw = text.encode()
        for _ in range(chance.choice([1, 1, 1, 2, 5])):
            raw = chance.choice(ON_BYTES)(raw, chance)
        return raw
    document = json.loads(text)
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        container, key = chance.choice(list(nodes(document)))
        chance.choice(ON_NODES)(container, key, document, chance)
    made = json.dumps(document)
    return (doubled(made, chance) if chance.random() < 0.05 else made).encode()


def nodes(document: Any) -> Iterator[Node]:
    """Every place in a document that something stands at."""
    inside = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in list(inside):
        yield document, key
        if isinstance(value, dict | list):
            yield from nodes(value)


def doubled(text: str, chance: random.Random) -> str:
    """One name twice in one object, which no writer of JSON makes."""
    at = chance.choice([i for i, letter in enumerate(text) if letter == "{"])
    return text[: at + 1] + '"format": "modulekg-plan", "0": 0, "0": 1, "names": [], ' + text[at + 1 :]


# -------------------------------------------------------------------- bytes


def _flip(raw: bytes, chance: random.Random) -> bytes:
    if not raw:
        return raw
    at = chance.randrange(len(raw))
    return raw[:at] + bytes([raw[at] ^ 1 << chance.randrange(8)]) + raw[at + 1 :]


def _cut_off(raw: bytes, chance: random.Random) -> bytes:
    return raw[: chance.randrange(len(raw) + 1)]


def _gap(raw: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(raw) + 1)
    return raw[:start] + raw[start + chance.choice([1, 2, 10, 100]) :]


def _repeat(raw: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(raw) + 1)
    end = start + chance.choice([1, 2, 10, 100])
    return raw[:end] + raw[start:end] + raw[end:]


def _insert(raw: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(raw) + 1)
    return raw[:at] + chance.choice(BYTES) + raw[at:]


def _digit(raw: bytes, chance: random.Random) -> bytes:
    places = [at for at, byte in enumerate(raw) if chr(byte).isdigit()]
    if not places:
        return raw
    at = chance.choice(places)
    return raw[:at] + str(chance.randrange(10)).encode() + raw[at + 1 :]


def _mark(raw: bytes, chance: random.Random) -> bytes:
    return chance.choice([b"\xef\xbb\xbf", b"\xff\xfe", b" ", b"\n", b"\0"]) + raw


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


def _drop(container: Any, key: Any, document: Any, chance: random.Random) -> None:
    del container[key]


def _replace(container: Any, key: Any, document: Any, chance: random.Random) -> None:
    container[key] = copy.deepcopy(chance.choice(VALUES))


def _swap(container: Any, key: Any, document: Any, chance: random.Random) -> None:
    """What stands at two places changes places, or the one is copied over the other."""
    other, there = chance.choice(list(nodes(document)))
    container[key] = copy.deepcopy(other[there])


def _step(container: Any, key: Any, document: Any, chance: random.Random) -> None:
    if type(container[key]) is int:
        container[key] += chance.choice([-2, -1, 1, 2])
    else:
        container[key] = [container[key]]


def _again(container: Any, key: Any, document: Any, chance: random.Random) -> None:
    value = copy.deepcopy(container[key])
    if isinstance(container, list):
        container.insert(chance.randrange(len(container) + 1), value)
    else:
        container[f"{key}.{key}" if chance.random() < 0.5 else f"{key} "] = value


def _rename(container: Any, key: Any, document: Any, chance: random.Random) -> None:
    if isinstance(container, dict):
        names = [name for where, name in nodes(document) if isinstance(name, str)]
        container[chance.choice([*names, "1", "training", "__dict__.x", ""])] = container.pop(key)
    else:
        chance.shuffle(container)


def _shorten(container: Any, key: Any, document: Any, chance: random.Random) -> None:
    value = container[key]
    if isinstance(value, list) and value:
        del value[chance.randrange(len(value)) :: chance.choice([1, 2, 3])]
    elif isinstance(value, str):
        container[key] = value[: chance.randrange(len(value) + 1)]
    else:
        container[key] = chance.randrange(12)


def _deepen(container: Any, key: Any, document: Any, chance: random.Random) -> None:
    for _ in range(chance.choice([1, 5, 60])):
        container[key] = [container[key]] if chance.random() < 0.5 else {"tuple": container[key]}


ON_NODES: list[Callable[[Any, Any, Any, random.Random], None]] = [
    _drop, _replace, _replace, _swap, _step, _step, _again, _rename, _shorten, _deepen,
]  # fmt: skip
