"""Axis rules of matrix products: contracted dimensions unify."""

from __future__ import annotations

from modulekg_widgets.engine.axes.rules.elementwise import broadcast
from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.axes.terms.call import Call, Dims, rule
from modulekg_widgets.engine.axes.terms.index_semantics import ENDS, EXPERTS
from modulekg_widgets.engine.operators.traits import ADDMM, ATTENTION, LINEAR_LAYER, MATMUL, MATVEC, TRILINEAR
from modulekg_widgets.engine.torch_runtime.private import schema_of
from modulekg_widgets.engine.tracing.dataflow import DataNode


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
    """The operator behind `bilinear`: three expanded factors are multiplied and summed over some dimensions."""
    factors: list[Dims] = []
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
    """A matrix product per group, with `offs` as the group boundaries."""
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


# -------------------- Axis rules of linear algebra: matrix dimensions unify or are frozen, batch dimensions unify


WHOLE_MATRIX = "used as one whole matrix"


@rule(
    "aten::linalg_det", "aten::_linalg_det", "aten::logdet", "aten::linalg_slogdet", "aten::_linalg_slogdet",
    "aten::linalg_cholesky_ex", "aten::cholesky_inverse", "aten::linalg_qr", "aten::geqrf",
    "aten::linalg_householder_product", "aten::ormqr", "aten::linalg_lu", "aten::linalg_lu_factor_ex",
    "aten::lu_unpack",
    "aten::linalg_ldl_factor_ex", "aten::linalg_eig", "aten::_linalg_eigvals", "aten::_linalg_eigh",
    "aten::_linalg_svd", "aten::linalg_polar", "aten::linalg_matrix_sqrth", "aten::linalg_lstsq",
)  # fmt: skip
def whole_matrix(call: Call) -> list[Dims]:
    """Factorizations and determinants: matrix dimensions are frozen, batch dimensions unify."""
    every = [call.axes(node) for node in call.inputs]
    count = len(every[0]) - 2
    call.freeze_all([term for dims in every for term in dims[count:]], WHOLE_MATRIX)
    batch = broadcast(call, *(dims[:count] for dims in every))
    sizes = tuple(term.size for term in batch)
    return [
        [*batch, *call.frozen_all(node.shape[count:], WHOLE_MATRIX)]
        if node.shape[:count] == sizes
        else call.frozen_all(node.shape, WHOLE_MATRIX)  # empty, as it was not asked for
        for node in call.results
    ]


_FACTORS = {"cholesky_solve": ("input2", "self"), "linalg_solve_triangular": ("self", "B"),
            "triangular_solve": ("A", "self")}  # beside these the factors are named as `linalg` has it  # fmt: skip


@rule("aten::cholesky_solve", "aten::linalg_ldl_solve", "aten::linalg_lu_solve", "aten::linalg_solve_triangular",
      "aten::triangular_solve")  # fmt: skip
def solve_factored(call: Call) -> list[Dims]:
    """A matrix that was factored, in the order of its factors, and right-hand sides, each for itself."""
    factors, sides = _FACTORS.get(call.name, (schema_of(call.overload).arguments[0].name, "B"))
    matrix, given = call.axes(call[factors]), call.axes(call[sides])
    batch = broadcast(call, matrix[:-2], given[:-2])
    if call.has("pivots"):
        *pivot_batch, pivots = call.axes(call["pivots"])
        call.unify_all(pivot_batch, matrix[:-2])
        call.freeze(pivots, WHOLE_MATRIX)
    left = call["left"] if call.has("left") else True
    call.freeze_all([*matrix[-2:], given[-2 if left else -1]], WHOLE_MATRIX)
    return [[*batch, *given[-2:]], *([*batch, *matrix[-2:]] for _ in call.results[1:])]


@rule("aten::linalg_inv_ex", "aten::linalg_matrix_exp")
def square_matrix_function(call: Call) -> list[Dims]:
    """Rows and columns are one index set before and after; the second result is a figure per matrix."""
    *batch, rows, columns = call.axes(call.inputs[0])
    call.unify(rows, columns)
    return [[*batch, rows, rows], *(batch for _ in call.results[1:])]


@rule("aten::linalg_pinv")
def pseudo_inverse(call: Call) -> Dims:
    """Rows and columns are exchanged; there is one tolerance per matrix."""
    *batch, rows, columns = call.axes(call["self"])
    for node in call.inputs[1:]:
        call.unify_broadcast(node, batch)
    return [*batch, columns, rows]


@rule("aten::_linalg_solve_ex")
def solve(call: Call) -> list[Dims]:
    """A·X = B, or X·A = B: the rows and columns of A are one index set, which B and X have on one side."""
    matrix, given = call.axes(call["A"]), call.axes(call["B"])
    result, *factors, _ = call.results
    if any(call.is_read(node) for node in factors):
        return whole_matrix(call)
    is_vector = len(given) == len(matrix) - 1
    batch = broadcast(call, matrix[:-2], given[:-1] if is_vector else given[:-2])
    call.unify(matrix[-1], matrix[-2])
    side = -1 if is_vector or not call["left"] else -2
    call.unify(matrix[-1], given[side])
    own = [[*matrix[:-2], *call.frozen_all(node.shape[len(matrix) - 2 :], WHOLE_MATRIX)] for node in call.results[1:]]
    return [[*batch, *given[len(given) - (result.dim() - len(batch)) :]], *own]


@rule("aten::linalg_cross")
def cross(call: Call) -> Dims:
    """The vector product along a dimension of three."""
    dims = broadcast(call, *(call.axes(node) for node in call.inputs))
    at: int = call["dim"]
    call.freeze(dims[at], "the components of a vector product")
    return dims


@rule("aten::_linalg_check_errors")
def error_check(call: Call) -> Dims:
    """A check that raises for any invalid matrix; no axes are involved."""
    return []


# -------------------- Axis rules of fused scaled dot-product attention


@rule(*ATTENTION)
def attention(call: Call) -> list[Dims]:
    """q.D = k.D, key length = value length, v.D → out.D; heads and batch unify, a mask unifies with the scores.

    With fewer key heads than query heads, each serves a group of queries: q.heads = kv_heads·group.
    """
    query, key, value = (call.axes(call[name]) for name in ("query", "key", "value"))
    call.unify(query[-1], key[-1])
    call.unify(key[-2], value[-2])
    if call.has("is_causal") and call["is_causal"]:
        call.freeze_all([query[-2], key[-2]], "each query sees the keys before it")
    if len(query) > 3 and query[-3].size > key[-3].size > 1:
        for other in (key, value):
            _grouped(call, query[-3], other[-3])
        batch = broadcast(call, query[:-3], key[:-3], value[:-3])
        batch.append(query[-3])
    else:
        batch = broadcast(call, query[:-2], key[:-2], value[:-2])
    scores = [*batch, query[-2], key[-2]]
    for name in ("attn_mask", "attn_bias", "dropout_mask"):
        if call.has(name) and call[name] is not None:
            call.unify_broadcast(call[name], scores)
    _, *rest = call.results
    return [[*batch, query[-2], value[-1]], *(_statistic(call, node, scores) for node in rest)]


def _grouped(call: Call, query_heads: Term, heads: Term) -> None:
    """Each key or value head serves a group of query heads."""
    if heads.size > 1 and query_heads.size > heads.size:
        kv_heads, group = call.factors(query_heads, heads.size, query_heads.size // heads.size)
        call.unify(kv_heads, heads)
        call.freeze(group, "queries that share a key")
    else:
        call.unify(query_heads, heads)


def _statistic(call: Call, node: DataNode, scores: Dims) -> Dims:
    """The log-sum-exp per query, perhaps padded, the weights, or a state of the random generator."""
    text = "kept for the backward pass"
    if node.dim() < 2:
        return call.frozen_all(node.shape, text)
    if call.is_read(node):
        call.freeze_all([t for t, size in zip(scores, node.shape, strict=False) if t.size != size > 1], text)
    return [t if t.size == size else call.frozen(size, text) for t, size in zip(scores, node.shape, strict=False)]
