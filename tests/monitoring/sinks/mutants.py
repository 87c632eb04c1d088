"""Recorded files with one thing or a few gone wrong, as by a failing disk, a careless editor or somebody hostile."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

VALUES: list[Any] = [
    0, 1, -1, 1 << 31, (1 << 63) - 1, 1 << 63, -(1 << 70), 10**399, 10**4000, 10**9, 0.5, 1e308, float("nan"),
    float("inf"), True, None, "", "0", "NaN", "nan", "-Infinity", "eval", "test", "\0", "\ud800", "x" * 20_000, [], {},
    [[]], [0.5], ["NaN"], ["x"], [None], [True], [0] * 1000, {"": 0}, {"a": [1]}, {"a": {"b": 1}}, {"counts": "x"},
]  # fmt: skip
BYTES = [
    b"\xff", b"\xc3", b"\0", b'"', b"'", b"[", b"]", b"{", b"}", b",", b":", b"-", b"=", b"\n", b"\r\n", b"9" * 5000,
    b"1e999", b"NaN", b"\\u0000", b"[" * 3000, b'{"a":' * 3000, b"PAR1", b"\0\0\0\0", b"\xff\xff\xff\x7f", b"\x80" * 10,
]  # fmt: skip
Bytes = Callable[[bytes, random.Random], bytes]


def mutant(raw: bytes, seed: int, kind: str) -> bytes:
    """A file that is almost `raw`, another one for each seed."""
    chance = random.Random(seed)
    if kind == ".jsonl" and chance.random() < 0.5:
        return _changed_line(raw, chance)
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        # the footer of a Parquet file tells the reader where to go: half of what goes wrong is there
        start = max(0, len(raw) - 1500) if kind == ".parquet" and chance.random() < 0.5 else 0
        raw = raw[:start] + chance.choice(ON_BYTES)(raw[start:], chance)
    return raw


def _changed_line(raw: bytes, chance: random.Random) -> bytes:
    lines = raw.splitlines()
    at = chance.randrange(len(lines)) if chance.random() < 0.9 else 0
    fields = json.loads(lines[at])
    for _ in range(chance.choice([1, 1, 2])):
        key = chance.choice(list(fields))
        what = chance.random()
        if what < 0.7:
            fields[key] = chance.choice(VALUES)
        elif what < 0.85 and len(fields) > 1:
            del fields[key]
        else:
            fields[chance.choice(["", "extra", "__class__", f"{key} "])] = fields[key]
    lines[at] = json.dumps(fields).encode()
    return b"\n".join(lines) + b"\n"


def _flip(raw: bytes, chance: random.Random) -> bytes:
    if not raw:
        return raw
    at = chance.randrange(len(raw))
    return raw[:at] + bytes([raw[at] ^ 1 << chance.randrange(8)]) + raw[at + 1 :]


def _overwrite(raw: bytes, chance: random.Random) -> bytes:
    new = chance.choice([*BYTES, bytes(chance.randrange(256) for _ in range(8))])
    at = chance.randrange(len(raw) + 1)
    return raw[:at] + new + raw[at + len(new) :]


def _insert(raw: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(raw) + 1)
    return raw[:at] + chance.choice(BYTES) + raw[at:]


def _cut_off(raw: bytes, chance: random.Random) -> bytes:
    return raw[: chance.randrange(len(raw) + 1)]


def _gap(raw: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(raw) + 1)
    return raw[:start] + raw[start + chance.choice([1, 2, 10, 100]) :]


def _repeat(raw: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(raw) + 1)
    end = start + chance.choice([1, 2, 10, 100, 1000])
    return raw[:end] + raw[start:end] + raw[end:]


def _digit(raw: bytes, chance: random.Random) -> bytes:
    places = [at for at, byte in enumerate(raw) if chr(byte).isdigit()]
    if not places:
        return raw
    at = chance.choice(places)
    return raw[:at] + str(chance.randrange(10)).encode() + raw[at + 1 :]


def _mark(raw: bytes, chance: random.Random) -> bytes:
    return chance.choice([b"\xef\xbb\xbf", b"\xff\xfe", b" ", b"\n", b"\0"]) + raw


ON_BYTES: list[Bytes] = [_flip, _flip, _overwrite, _insert, _insert, _cut_off, _gap, _repeat, _digit, _mark]
