"""Matrix products: what is summed over is one index set on both sides."""

from __future__ import annotations

from modulekg_widgets.engine.axes.call import Call, Dims, rule
from modulekg_widgets.engine.axes.chosen_indices import ENDS, EXPERTS
from modulekg_widgets.engine.axes.rules.elementwise import broadcast
from modulekg_widgets.engine.operators.traits import ADDMM, LINEAR_LAYER, MATMUL, MATVEC, TRILINEAR


@rule(*MATMUL)
def matmul(call: Call) -> Dims:
    """(batch, n, k) times (batch, k, m); a vector is one row or one column."""
    a, b = (call.axes(node) for node in call.inputs[:2])
    call.unify(a[-1], b[-2:][0])
    rows, columns = a[-2:-1], b[-1:] if len(b) > 1 else []
    return [*broadcast(call, a[:-2], b[:-2]), *rows, *columns]


@rule(*ADDMM)
def addmm(call: Call) -> Dims:
    """A product and a bias that is broadcast onto it."""
    bias, first, second = call.inputs[:3]
    a, b = call.axes(first), call.axes(second)
    call.unify(a[-1], b[-2])
    call.unify_all(a[:-2], b[:-2])
    dims = [*a[:-1], b[-1]]
    if call.name == "addbmm":
        dims = dims[1:]
    call.unify_broadcast(bias, dims)
    return dims


@rule(*MATVEC)
def matvec(call: Call) -> Dims:
    """(n, k) times (k,), perhaps onto (n,)."""
    *bias, matrix, vector = call.inputs
    rows, columns = call.axes(matrix)
    call.unify(columns, call.axes(vector)[0])
    for node in bias:
        call.unify_broadcast(node, [rows])
    return [rows]


@rule("aten::dot", "aten::vdot")
def dot(call: Call) -> Dims:
    """Both vectors run over the same indices."""
    a, b = call.inputs
    call.unify(call.axes(a)[0], call.axes(b)[0])
    return []


@rule("aten::addr")
def addr(call: Call) -> Dims:
    """An outer product onto a matrix."""
    onto, a, b = call.inputs
    dims = [call.axes(a)[0], call.axes(b)[0]]
    call.unify_broadcast(onto, dims)
    return dims


@rule(*LINEAR_LAYER)
def linear(call: Call) -> Dims:
    """y = x·wᵀ + b, where it comes undecomposed."""
    x, weight = call.axes(call["input"]), call.axes(call["weight"])
    call.unify(x[-1], weight[-1])
    if call["bias"] is not None:
        call.unify(call.axes(call["bias"])[0], weight[0])
    return [*x[:-1], *weight[:-1]]


@rule(*TRILINEAR)
def trilinear(call: Call) -> Dims:
    """What `bilinear` is made of: three factors, expanded, multiplied, and summed over some dimensions."""
    factors = []
    for name, new in (("i1", "expand1"), ("i2", "expand2"), ("i3", "expand3")):
        dims = call.axes(call[name])
        for at in sorted(call[new]):
            dims.insert(at, call.new(1))
        factors.append(dims)
    full = factors[0]
    for dims in factors[1:]:
        for at, term in enumerate(dims):
            if full[at].size == 1:
                full[at] = term
            elif term.size > 1:
                call.unify(full[at], term)
    return [term for at, term in enumerate(full) if at not in set(call["sumdim"])]


@rule("aten::_cdist_forward", "aten::cdist", "aten::_euclidean_dist")
def cdist(call: Call) -> Dims:
    """Distances between the rows of two matrices, whose columns are one index set."""
    a, b = (call.axes(node) for node in call.inputs[:2])
    call.unify(a[-1], b[-1])
    return [*broadcast(call, a[:-2], b[:-2]), a[-2], b[-2]]


@rule("aten::_pdist_forward", "aten::pdist")
def pdist(call: Call) -> Dims:
    """Distances between every two rows, those of the first row first."""
    rows, _ = call.axes(call["self"])
    call.freeze(rows, "every two rows in order")
    return call.frozen_all(call.output.shape, "every two rows in order")


@rule("aten::_weight_int8pack_mm")
def int8_weight(call: Call) -> Dims:
    """y = x·wᵀ with a scale per row of w."""
    x, weight = call.axes(call["self"]), call.axes(call["mat2"])
    call.unify(x[-1], weight[-1])
    call.unify(call.axes(call["scales"])[0], weight[0])
    return [*x[:-1], weight[0]]


@rule("aten::_grouped_mm")
def grouped_mm(call: Call) -> Dims:
    """A product per group; where a matrix stands for all groups, `offs` says where each begins."""
    a, b, offsets = call.axes(call["self"]), call.axes(call["mat2"]), call["offs"]
    call.unify(a[-1], b[-2])
    if len(a) == len(b) == 3:
        call.unify(a[0], b[0])
        out = [*a[:-1], b[-1]]
    else:
        # rows, columns or what is summed over belong to the groups in turn
        shared = a[0] if len(b) == 3 else b[-1] if len(a) == 3 else a[-1]
        groups = a[:1] if len(a) == 3 else b[:1] if len(b) == 3 else []
        ends = call.axes(offsets)
        axis = call.chosen_axis(offsets, ENDS)
        if axis is not None and len(groups) == 1 and call.chosen.are_sorted(shared, axis):
            call.unify(groups[0], axis)
            call.role(axis, EXPERTS)
        else:
            call.followed.clear()
            call.freeze_all([shared, *groups, *ends], "rows of each group in order")
        out = [*ends, a[0], b[1]] if len(a) == len(b) else [a[-2], b[-1]]
    if call["bias"] is not None:
        call.unify_broadcast(call["bias"], out)
    return out


@rule("aten::_scaled_mm")
def scaled_mm(call: Call) -> Dims:
    """(n, k) times (k, m) with scales for all, per row or per column; other scales go by blocks."""
    a, b = call.axes(call["self"]), call.axes(call["mat2"])
    call.unify(a[-1], b[0])
    out = [a[0], b[1]]
    for node, at in ((call["scale_a"], 0), (call["scale_b"], 1)):
        if node.numel() > 1 and node.shape == ((a[0].size, 1), (1, b[1].size))[at]:
            call.unify(call.axes(node)[at], out[at])
        elif node.numel() > 1:
            call.freeze_all([*call.axes(node), *a, *b], "scaled in blocks")
    if call["bias"] is not None:
        call.unify_broadcast(call["bias"], out)
    return out
