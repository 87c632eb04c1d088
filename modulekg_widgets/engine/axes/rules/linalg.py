"""Linear algebra on whole matrices: their rows and columns are kept together or frozen, batches are kept."""

from __future__ import annotations

from modulekg_widgets.engine.axes.call import Call, Dims, rule
from modulekg_widgets.engine.axes.rules.elementwise import broadcast
from modulekg_widgets.engine.torch_runtime.private import schema_of

TEXT = "taken as one whole matrix"


@rule(
    "aten::linalg_det", "aten::_linalg_det", "aten::logdet", "aten::linalg_slogdet", "aten::_linalg_slogdet",
    "aten::linalg_cholesky_ex", "aten::cholesky_inverse", "aten::linalg_qr", "aten::geqrf",
    "aten::linalg_householder_product", "aten::ormqr", "aten::linalg_lu", "aten::linalg_lu_factor_ex",
    "aten::lu_unpack",
    "aten::linalg_ldl_factor_ex", "aten::linalg_eig", "aten::_linalg_eigvals", "aten::_linalg_eigh",
    "aten::_linalg_svd", "aten::linalg_polar", "aten::linalg_matrix_sqrth", "aten::linalg_lstsq",
)  # fmt: skip
def whole_matrix(call: Call) -> list[Dims]:
    """Factors and figures of matrices are in an order of their own; only the batch is kept."""
    every = [call.axes(node) for node in call.inputs]
    count = len(every[0]) - 2
    call.freeze_all([term for dims in every for term in dims[count:]], TEXT)
    batch = broadcast(call, *(dims[:count] for dims in every))
    sizes = tuple(term.size for term in batch)
    return [
        [*batch, *call.frozen_all(node.shape[count:], TEXT)]
        if node.shape[:count] == sizes
        else call.frozen_all(node.shape, TEXT)  # empty, as it was not asked for
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
        call.freeze(pivots, TEXT)
    left = call["left"] if call.has("left") else True
    call.freeze_all([*matrix[-2:], given[-2 if left else -1]], TEXT)
    return [[*batch, *given[-2:]], *([*batch, *matrix[-2:]] for _ in call.results[1:])]


@rule("aten::linalg_inv_ex", "aten::linalg_matrix_exp")
def square(call: Call) -> list[Dims]:
    """Rows and columns are one index set before and after; the second result is a figure per matrix."""
    *batch, rows, columns = call.axes(call.inputs[0])
    call.unify(rows, columns)
    return [[*batch, rows, rows], *(batch for _ in call.results[1:])]


@rule("aten::linalg_pinv")
def pseudo_inverse(call: Call) -> Dims:
    """Rows and columns change places; tolerances are given per matrix."""
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
    own = [[*matrix[:-2], *call.frozen_all(node.shape[len(matrix) - 2 :], TEXT)] for node in call.results[1:]]
    return [[*batch, *given[len(given) - (result.dim() - len(batch)) :]], *own]


@rule("aten::linalg_cross")
def cross(call: Call) -> Dims:
    """The vector product along a dimension of three."""
    dims = broadcast(call, *(call.axes(node) for node in call.inputs))
    call.freeze(dims[call["dim"]], "the components of a vector product")
    return dims


@rule("aten::_linalg_check_errors")
def checked(call: Call) -> Dims:
    """An error when any matrix could not be taken, whichever."""
    return []
