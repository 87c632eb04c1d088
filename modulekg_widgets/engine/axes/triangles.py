"""Operators that read one triangle of a matrix and take the other for its mirror image: a trait of the operator.

Row i and column i are then one index. Where the matrix is symmetric by the way it was made, that is all there is to
say; where nothing tells, the order says which half is read, and the axis keeps it.
"""

from __future__ import annotations

from modulekg_widgets.engine.axes.call import Call, plain_name
from modulekg_widgets.engine.operators.user_operators import user_operators
from modulekg_widgets.engine.tracing.dataflow import DataNode, OperatorNode

# per operator the argument of which a triangle is read, and the flag that says so, where there is one
READERS: dict[str, tuple[str, str | None]] = {
    "aten::linalg_pinv": ("self", "hermitian"),
    "aten::linalg_matrix_rank": ("input", "hermitian"),
    "aten::_linalg_eigh": ("A", None),
    "aten::linalg_eigh": ("self", None),
    "aten::linalg_eigvalsh": ("self", None),
    "aten::linalg_cholesky": ("self", None),
    "aten::linalg_cholesky_ex": ("self", None),
    "aten::cholesky": ("self", None),
    "aten::cholesky_inverse": ("self", None),
    "aten::cholesky_solve": ("input2", None),
    "aten::_cholesky_solve_helper": ("A", None),
    "aten::linalg_ldl_factor": ("self", None),
    "aten::linalg_ldl_factor_ex": ("self", None),
    "aten::linalg_ldl_solve": ("LD", None),
    "aten::linalg_solve_triangular": ("self", None),
    "aten::triangular_solve": ("A", None),
    "aten::linalg_matrix_sqrth": ("self", None),
}
TEXT = "only one triangle of the matrix is read, which the order of rows and columns tells"


def tie_triangles(call: Call) -> None:
    """Make rows and columns of a matrix one axis where the operator, or the one that it is like, reads a triangle."""
    name = call.operator.name
    user = user_operators.get(name)
    name = name if user is None or user.like is None else user.like
    if name not in READERS:
        return
    argument, flag = READERS[name]
    if flag is not None and not call[flag]:
        return
    matrix: DataNode = call[argument]
    rows, columns = call.axes(matrix)[-2:]
    call.unify(rows, columns)
    if not is_symmetric(matrix):
        call.freeze_all([rows, columns], TEXT)


# ------------------------------------------------------- symmetric as it is made

_TRANSPOSE = {"t", "transpose", "swapaxes", "swapdims", "permute"}
_COMMUTATIVE = {"add", "mul", "maximum", "minimum"}
_ELEMENTWISE = _COMMUTATIVE | {"sub", "div", "neg", "abs", "exp", "relu", "clone", "detach", "_to_copy", "pow", "tanh",
                               "sigmoid", "alias", "contiguous", "square", "sqrt"}  # fmt: skip
_PRODUCTS = {"mm", "bmm", "matmul"}
_KEEPING = {"linalg_inv_ex", "linalg_matrix_exp", "linalg_pinv"}  # what these make of a symmetric matrix is symmetric
_MADE = {"eye", "diag_embed"}


def is_symmetric(node: DataNode) -> bool:
    """Whether a real matrix equals its transpose because of the operators that made it, whatever the numbers."""
    made = node.producer
    if (
        made is None
        or node.previous is not None
        or node.dtype.is_complex
        or node.dim() < 2
        or node.shape[-1] != node.shape[-2]
    ):
        return False
    name = plain_name(made.name)
    given = made.inputs
    if name in _MADE:
        return _is_main_diagonal(made)
    if name in _COMMUTATIVE and len(given) == 2 and _are_transposes(*given):
        return True
    if name in _PRODUCTS:
        return _are_transposes(*given[:2])
    if name in _KEEPING:
        return is_symmetric(given[0])
    if name == "view" or name == "_unsafe_view":  # batches of matrices, put together otherwise
        return given[0].shape[-2:] == node.shape[-2:] and is_symmetric(given[0])
    return name in _ELEMENTWISE and bool(given) and all(_is_alike(each) for each in given)


def _is_main_diagonal(made: OperatorNode) -> bool:
    arguments = made.arguments
    return not arguments.get("offset") and {arguments.get("dim1", -2), arguments.get("dim2", -1)} == {-2, -1}


def _is_alike(node: DataNode) -> bool:
    """Whether what is broadcast onto a symmetric matrix leaves it so: a number per matrix, or a symmetric one."""
    return node.dim() == 0 or node.shape[-2:] in ((1, 1), (1,)) or is_symmetric(node)


def _are_transposes(left: DataNode, right: DataNode) -> bool:
    """Whether one of two values is the other with rows and columns exchanged."""
    a, b = _untransposed(left), _untransposed(right)
    return a[0] is b[0] and a[1] != b[1]


def _untransposed(node: DataNode) -> tuple[DataNode, bool]:
    """The value below the transpositions of the last two dimensions, and whether their number is odd."""
    odd = False
    while (made := node.producer) is not None and node.previous is None:
        name = plain_name(made.name)
        if name in _TRANSPOSE and _exchanges_last(made):
            odd = not odd
        elif not (name in ("alias", "expand", "view", "_unsafe_view", "detach") and made.inputs[0].shape == node.shape):
            break
        node = made.inputs[0]
    return node, odd


def _exchanges_last(made: OperatorNode) -> bool:
    count, arguments = made.inputs[0].dim(), made.arguments
    if count < 2:
        return False
    if plain_name(made.name) == "permute":
        return [at % count for at in arguments["dims"]] == [*range(count - 2), count - 1, count - 2]
    if plain_name(made.name) == "t":
        return count == 2
    pair = [arguments[name] for name in arguments if name in ("dim0", "dim1", "axis0", "axis1")]
    return {at % count for at in pair} == {count - 2, count - 1}
