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
    rng = random.Random(seed)
    if kind == ".jsonl" and rng.random() < 0.5:
        return _changed_line(raw, rng)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        # the footer of a Parquet file tells the reader where to go: half of what goes wrong is there
        start = max(0, len(raw) - 1500) if kind == ".parquet" and rng.random() < 0.5 else 0
        raw = raw[:start] + rng.choice(ON_BYTES)(raw[start:], rng)
    return raw


def _changed_line(raw: bytes, rng: random.Random) -> bytes:
    lines = raw.splitlines()
    at = rng.randrange(len(lines)) if rng.random() < 0.9 else 0
    fields = json.loads(lines[at])
    for _ in range(rng.choice([1, 1, 2])):
        key = rng.choice(list(fields))
        what = rng.random()
        if what < 0.7:
            fields[key] = rng.choice(VALUES)
        elif what < 0.85 and len(fields) > 1:
            del fields[key]
        else:
            fields[rng.choice(["", "extra", "__class__", f"{key} "])] = fields[key]
    lines[at] = json.dumps(fields).encode()
    return b"\n".join(lines) + b"\n"


def _flip(raw: bytes, rng: random.Random) -> bytes:
    if not raw:
        return raw
    at = rng.randrange(len(raw))
    return raw[:at] + bytes([raw[at] ^ 1 << rng.randrange(8)]) + raw[at + 1 :]


def _overwrite(raw: bytes, rng: random.Random) -> bytes:
    new = rng.choice([*BYTES, bytes(rng.randrange(256) for _ in range(8))])
    at = rng.randrange(len(raw) + 1)
    return raw[:at] + new + raw[at + len(new) :]


def _insert(raw: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(raw) + 1)
    return raw[:at] + rng.choice(BYTES) + raw[at:]


def _cut_off(raw: bytes, rng: random.Random) -> bytes:
    return raw[: rng.randrange(len(raw) + 1)]


def _gap(raw: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(raw) + 1)
    return raw[:start] + raw[start + rng.choice([1, 2, 10, 100]) :]


def _repeat(raw: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(raw) + 1)
    end = start + rng.choice([1, 2, 10, 100, 1000])
    return raw[:end] + raw[start:end] + raw[end:]


def _digit(raw: bytes, rng: random.Random) -> bytes:
    places = [at for at, byte in enumerate(raw) if chr(byte).isdigit()]
    if not places:
        return raw
    at = rng.choice(places)
    return raw[:at] + str(rng.randrange(10)).encode() + raw[at + 1 :]


def _mark(raw: bytes, rng: random.Random) -> bytes:
    return rng.choice([b"\xef\xbb\xbf", b"\xff\xfe", b" ", b"\n", b"\0"]) + raw


ON_BYTES: list[Bytes] = [_flip, _flip, _overwrite, _insert, _insert, _cut_off, _gap, _repeat, _digit, _mark]
