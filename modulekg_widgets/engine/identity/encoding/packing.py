"""Byte encodings: length-prefixed parts, digests, cache keys of plain values, and long runs of numbers."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Encodable = tuple[np.ndarray, np.ndarray]  # rows of eight bytes, and how many at the end of each are used

DIGEST_SIZE = 16
FAST_TYPES = frozenset({type(None), bool, int, float, complex, str, tuple, list, dict})


def digest(*parts: bytes) -> bytes:
    """16 bytes of blake2b over `parts`."""
    return blake2b(b"".join(parts), digest_size=DIGEST_SIZE).digest()


def length_prefixed(part: bytes) -> bytes:
    """Returns the bytes preceded by their length, so that a row of parts is unambiguous."""
    return len(part).to_bytes(8, "big") + part


def packed(tag: bytes, *parts: bytes) -> bytes:
    """A tag and its length-prefixed parts; a long encoding becomes its digest, so that nesting never blows up."""
    return shortened(tag + b"".join([length_prefixed(p) for p in parts]))


def shortened(body: bytes) -> bytes:
    return body if len(body) <= 64 else b"#" + digest(body)


def text(value: str) -> bytes:
    return str.encode(value, "utf-8", "surrogatepass")


def fast_key(value: Any) -> bytes | None:
    """Returns bytes that are equal only for equal plain values, by `marshal`; None if there are none.

    `marshal` does not tell the kinds of buffers apart, so an encoding may be kept under such a key only where the
    encoder has met none. Sharing and the order of sets and dicts show in it: equal values may miss each other.
    """
    try:
        return marshal.dumps(value)  # it writes a shared container once, so that sharing never blows up
    except (ValueError, BufferError):
        return None


def fast_keys(values: Iterable[Any]) -> list[bytes] | None:
    """The fast key of each value; None where one of them has none."""
    try:
        return list(map(marshal.dumps, values))
    except (ValueError, BufferError):
        return None


# ------------------------------------------- many numbers: what values.py gives one by one, a hundred times as fast

MIN_BATCH = 1000  # numbers; fewer are encoded one by one
BATCH_ROWS = 1 << 16  # that are put together at once
HEADER_BYTES = 17  # bytes before a number: the size of its encoding, its tag and the size of its value
MAX_NUMBER_BYTES = 8  # of the widest number that is encoded here


def encode_numbers(values: Sequence[object]) -> bytes | None:
    """Returns the length-prefixed encodings of many plain numbers; None for few values or other types."""
    if len(values) < MIN_BATCH or not set(map(type, values)) <= {int, float}:
        return None
    try:
        return b"".join(_chunks(values))
    except OverflowError:  # an int of more than eight bytes
        return None


def _chunks(values: Sequence[object]) -> Iterator[bytes]:
    import numpy as np  # what is encoded without torch needs no arrays

    for start in range(0, len(values), BATCH_ROWS):
        chunk = values[start : start + BATCH_ROWS]
        is_float = np.fromiter((type(value) is float for value in chunk), bool, len(chunk))
        if is_float.all():
            yield _encoded(*_floats(chunk), is_float)
        elif not is_float.any():
            yield _encoded(*_ints(chunk), is_float)
        else:
            rows, sizes = np.empty((len(chunk), MAX_NUMBER_BYTES), np.uint8), np.empty(len(chunk), np.int64)
            for where, read in ((is_float, _floats), (~is_float, _ints)):
                rows[where], sizes[where] = read([value for value, here in zip(chunk, where, strict=True) if here])
            yield _encoded(rows, sizes, is_float)


def _floats(values: Sequence[object]) -> Encodable:
    """Returns eight bytes for each number; every NaN has the same bytes."""
    import numpy as np

    found = np.array(values, ">f8")
    rows, sizes = (
        np.reshape(np.frombuffer(found, np.uint8), (-1, MAX_NUMBER_BYTES)),
        np.full(len(found), MAX_NUMBER_BYTES),
    )
    is_nan = np.isnan(found)
    rows[is_nan, MAX_NUMBER_BYTES - 3 :], sizes[is_nan] = np.frombuffer(b"nan", np.uint8), 3
    return rows, sizes


def _ints(values: Sequence[object]) -> Encodable:
    """The fewest bytes that hold a number and its sign."""
    import numpy as np

    found = np.array(values, ">i8")
    magnitude = np.abs(found).astype(np.uint64)
    if (magnitude >> np.uint64(63)).any():  # the lowest number has nine bytes
        raise OverflowError
    sizes = np.ones(len(found), np.int64)
    for bits in range(7, 63, 8):
        sizes += magnitude >> np.uint64(bits) > 0
    return np.reshape(np.frombuffer(found, np.uint8), (-1, MAX_NUMBER_BYTES)), sizes


def _encoded(rows: np.ndarray, sizes: np.ndarray, is_float: np.ndarray) -> bytes:
    """Size of the encoding, tag, size of the value, and of each row its last bytes."""
    import numpy as np

    table = np.zeros((len(rows), HEADER_BYTES + MAX_NUMBER_BYTES), np.uint8)
    table[:, 7], table[:, 8], table[:, 16] = sizes + 9, np.where(is_float, ord("f"), ord("i")), sizes
    table[:, HEADER_BYTES:] = rows
    if (sizes == MAX_NUMBER_BYTES).all():
        return table.tobytes()
    used = np.ones(table.shape, bool)
    used[:, HEADER_BYTES:] = np.arange(MAX_NUMBER_BYTES) >= MAX_NUMBER_BYTES - sizes[:, None]
    return table[used].tobytes()
