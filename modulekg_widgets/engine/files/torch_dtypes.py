"""The dtypes of torch whose values stand in memory as they are: none of quantised tensors, and none below a byte."""

from __future__ import annotations

import torch

WORDS = (
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16", "float32",
    "float64", "complex32", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
    "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip
BY_WORD: dict[str, torch.dtype] = {word: getattr(torch, word) for word in WORDS if hasattr(torch, word)}


def torch_dtype(word: str) -> torch.dtype | None:
    """The dtype that torch has under this word; None for none of whole bytes and plain values."""
    return BY_WORD.get(word)
