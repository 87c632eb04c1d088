"""Floats of eight and sixteen bits, from whole numbers that have their bits: formats write them so."""

from __future__ import annotations

import math
from typing import NamedTuple


class FloatLayout(NamedTuple):
    """How bits are laid out: a sign, the exponent and then the fraction, of which patterns may stand for no number."""

    exponent: int  # bits
    fraction: int
    bias: int
    has_infinities: bool = False  # the largest exponent is of infinities and NaN, as by IEEE 754
    nan: frozenset[int] = frozenset()  # patterns that are NaN, where there are no infinities


# by torch's word
_LAYOUTS = {
    "float16": FloatLayout(5, 10, 15, True),
    "bfloat16": FloatLayout(8, 7, 127, True),
    "float8_e5m2": FloatLayout(5, 2, 15, True),
    "float8_e4m3fn": FloatLayout(4, 3, 7, nan=frozenset({0x7F, 0xFF})),
    "float8_e4m3fnuz": FloatLayout(4, 3, 8, nan=frozenset({0x80})),
    "float8_e5m2fnuz": FloatLayout(5, 2, 16, nan=frozenset({0x80})),
}
_POWERS = "float8_e8m0fnu"  # an exponent alone


def is_small_float(dtype: str) -> bool:
    """Whether numbers of a dtype can be told from their bits."""
    return dtype in _LAYOUTS or dtype == _POWERS


def small_float(bits: int, dtype: str) -> float:
    """The number that the lowest bits of a whole number are."""
    if dtype == _POWERS:
        return math.nan if bits & 0xFF == 0xFF else math.ldexp(1.0, (bits & 0xFF) - 127)
    layout = _LAYOUTS[dtype]
    width = layout.exponent + layout.fraction
    bits &= (1 << width + 1) - 1
    exponent = bits >> layout.fraction & (1 << layout.exponent) - 1
    fraction = bits & (1 << layout.fraction) - 1
    sign = -1.0 if bits >> width else 1.0
    if bits in layout.nan:
        return math.nan
    if layout.has_infinities and exponent == (1 << layout.exponent) - 1:
        return math.nan if fraction else sign * math.inf
    whole = fraction if not exponent else fraction + (1 << layout.fraction)
    return sign * math.ldexp(whole, max(exponent, 1) - layout.bias - layout.fraction)
