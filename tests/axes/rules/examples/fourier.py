"""Examples for rules/fourier.py."""

from __future__ import annotations

from axes.rules.harness import example, x, z

EXAMPLES = [
    example("aten::_fft_r2c", "a . b -> a . b", x(2, 6, 3), [1], 0, True),
    example("aten::_fft_r2c", "a b . -> a b .", x(2, 6, 5), [2], 0, False),
    example("aten::_fft_c2r", "a . b -> a . b", z(2, 4, 3), [1], 0, 6),
    example("aten::_fft_c2c", "a . . -> a . .", z(2, 7, 5), [1, 2], 0, True),
]
