"""Axis rules of normalizations: gains, biases and running statistics run along the normalized dimensions."""

from __future__ import annotations

from modulekg_widgets.engine.axes.terms.algebra import ONE
from modulekg_widgets.engine.axes.terms.call import Call, Dims, rule
from modulekg_widgets.engine.operators.traits import (
    BATCH_NORM,
    GROUP_NORM,
    GROUPS,
    INSTANCE_NORM,
    LAYER_NORM,
    WEIGHT_NORM,
    size_argument,
)

NORMALISED = "normalized over a single element, so all inputs give the same result"


@rule(*BATCH_NORM)
def batch_norm(call: Call) -> list[Dims]:
    """Everything that is learnt or counted has one entry per channel."""
    x, *learnt = call.inputs
    dims = call.axes(x)
    for node in learnt:
        if node.dim() == 1 and node.shape[0] == dims[1].size:
            call.unify(call.axes(node)[0], dims[1])
    return [_like(call, node.shape, dims) for node in call.results]


def _like(call: Call, shape: tuple[int, ...], dims: Dims) -> Dims:
    if len(shape) == len(dims):
        return [
            term if term.size == size else call.frozen(size, "a statistic")
            for term, size in zip(dims, shape, strict=True)
        ]
    if len(shape) == 1 and shape[0] == dims[1].size:
        return [dims[1]]
    return call.frozen_all(shape, "a statistic")


@rule(*LAYER_NORM)
def layer_norm(call: Call) -> list[Dims]:
    """Gain and bias have the shape of the last dimensions; means and scales keep the others."""
    x, *learnt = call.inputs
    dims = call.axes(x)
    count = len(call["normalized_shape"])
    for node in learnt:
        call.unify_all(call.axes(node), dims[-count:])
    if "rms" not in call.name:  # which keeps the sign of a single element
        call.require_elements(dims[-count:], NORMALISED)
    kept = dims[:-count]
    return [dims, *([*kept, *([ONE] * (node.dim() - len(kept)))] for node in call.results[1:])]


@rule(*GROUP_NORM)
def group_norm(call: Call) -> list[Dims]:
    """Channels are groups of equal size."""
    x, *learnt = call.inputs
    dims = call.axes(x)
    groups = call[size_argument(call, GROUPS)]
    for node in learnt:
        call.unify(call.axes(node)[0], dims[1])
    group, inside = call.factors(dims[1], groups, dims[1].size // groups)
    call.require_elements([inside, *dims[2:]], NORMALISED)
    if 1 < groups < dims[1].size:
        call.role(group, "groups")
    return [dims, *([dims[0], group if groups > 1 else ONE] for _ in call.results[1:])]


@rule(*INSTANCE_NORM)
def instance_norm(call: Call) -> Dims:
    """As a batch normalisation, but per sample."""
    return batch_norm(call)[0]


@rule(*WEIGHT_NORM)
def weight_norm(call: Call) -> list[Dims]:
    """w = g·v/|v|, with the norm taken over all dimensions but one."""
    v, g = call.inputs
    dims = call.axes(v)
    call.unify_broadcast(g, dims)
    return [dims, *(call.axes(g) for _ in call.results[1:])]


@rule("aten::renorm")
def renorm(call: Call) -> Dims:
    """Lengths along one dimension are limited."""
    return call.axes(call.inputs[0])
