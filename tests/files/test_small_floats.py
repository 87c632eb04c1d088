"""Every float of eight and sixteen bits is what torch holds it to be."""

from __future__ import annotations

import math

import pytest
import torch

from modulekg_widgets.engine.files.formats.onnx.onnx_tensors import is_small_float, small_float

DTYPES = [
    torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2,
    torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_pattern_is_the_number_of_torch(dtype: torch.dtype) -> None:
    word = str(dtype).removeprefix("torch.")
    whole = torch.uint8 if dtype.itemsize == 1 else torch.uint16
    patterns = torch.arange(1 << 8 * dtype.itemsize).to(whole)
    expected = patterns.view(dtype).double().tolist()
    for pattern, value in enumerate(expected):
        found = small_float(pattern, word)
        assert found == value or (math.isnan(found) and math.isnan(value)), pattern
        assert math.copysign(1, found) == math.copysign(1, value) or math.isnan(found), pattern
    assert is_small_float(word)


def test_higher_bits_do_not_count() -> None:
    assert small_float(0x3F80 - (1 << 16), "bfloat16") == 1.0
    assert not is_small_float("float32")
    assert not is_small_float("int4")
