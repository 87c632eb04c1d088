"""What each ATen operator says about the dimensions of its tensors: one file per family, one function per rule."""

from modulekg_widgets.engine.axes.rules import (
    attention,
    convolution,
    elementwise,
    factories,
    fourier,
    indexing,
    joining,
    linalg,
    losses,
    matmul,
    normalization,
    ordering,
    recurrent,
    reduction,
    reshaping,
    spatial,
    vision,
)  # fmt: skip

__all__ = [
    "attention", "convolution", "elementwise", "factories", "fourier", "indexing", "joining", "linalg", "losses",
    "matmul", "normalization", "ordering", "recurrent", "reduction", "reshaping", "spatial", "vision",
]  # fmt: skip
