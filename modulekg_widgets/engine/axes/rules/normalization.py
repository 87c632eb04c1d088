"""Normalisations: gains, biases and running statistics run over the normalised dimensions."""

from __future__ import annotations

from modulekg_widgets.engine.axes.call import ONE, Call, Dims, rule


@rule(
    "aten::native_batch_norm", "aten::_native_batch_norm_legit", "aten::_native_batch_norm_legit_no_training",
    "aten::_native_batch_norm_legit_functional", "aten::batch_norm", "aten::cudnn_batch_norm",
    "aten::miopen_batch_norm", "aten::_batch_norm_no_update", "aten::_batch_norm_with_update",
    "aten::_batch_norm_impl_index", "aten::batch_norm_elemt", "aten::batch_norm_stats",
    "aten::batch_norm_update_stats", "aten::_batch_norm_with_update_functional",
)  # fmt: skip
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


@rule("aten::native_layer_norm", "aten::layer_norm", "aten::_fused_rms_norm", "aten::rms_norm")
def layer_norm(call: Call) -> list[Dims]:
    """Gain and bias have the shape of the last dimensions; means and scales keep the others."""
    x, *learnt = call.inputs
    dims = call.axes(x)
    count = len(call["normalized_shape"])
    for node in learnt:
        call.unify_all(call.axes(node), dims[-count:])
    kept = dims[:-count]
    return [dims, *([*kept, *([ONE] * (node.dim() - len(kept)))] for node in call.results[1:])]


@rule("aten::native_group_norm", "aten::group_norm")
def group_norm(call: Call) -> list[Dims]:
    """Channels are groups of equal size."""
    x, *learnt = call.inputs
    dims = call.axes(x)
    groups = call["group"] if call.has("group") else call["num_groups"]
    for node in learnt:
        call.unify(call.axes(node)[0], dims[1])
    group = call.factors(dims[1], groups, dims[1].size // groups)[0]
    if 1 < groups < dims[1].size:
        call.role(group, "groups")
    return [dims, *([dims[0], group if groups > 1 else ONE] for _ in call.results[1:])]


@rule("aten::instance_norm")
def instance_norm(call: Call) -> Dims:
    """As a batch normalisation, but per sample."""
    return batch_norm(call)[0]


@rule("aten::_weight_norm_interface", "aten::_weight_norm")
def weight_norm(call: Call) -> list[Dims]:
    """w = g·v/|v|, the length taken over all dimensions but one."""
    v, g = call.inputs
    dims = call.axes(v)
    call.unify_broadcast(g, dims)
    return [dims, *(call.axes(g) for _ in call.results[1:])]


@rule("aten::renorm")
def renorm(call: Call) -> Dims:
    """Lengths along one dimension are limited."""
    return call.axes(call.inputs[0])
