"""The examples of all families, and of what torch takes apart into operators of several."""

from __future__ import annotations

from axes.rules.examples import (
    attention,
    backward,
    composites,
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
    sequences,
    spatial,
    vision,
)  # fmt: skip

FAMILIES = [
    attention, backward, convolution, elementwise, factories, fourier, indexing, joining, linalg, losses, matmul,
    normalization, ordering, recurrent, reduction, reshaping, spatial, vision,
]  # fmt: skip
EXAMPLES = [of for family in FAMILIES for of in family.EXAMPLES]
COMPOSITES = [*composites.EXAMPLES, *sequences.EXAMPLES]
