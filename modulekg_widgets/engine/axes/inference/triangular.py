"""Axes of operators that read one triangle of a matrix: rows and columns are one axis.

If the matrix is symmetric by construction, the axis stays free; otherwise the order of its indices decides which half
is read, so the axis is frozen.
"""

from __future__ import annotations

from modulekg_widgets.engine.axes.terms.call import Call
from modulekg_widgets.engine.operators.arguments import OperatorCall
from modulekg_widgets.engine.operators.traits import MATRIX_PRODUCT, traits_of
from modulekg_widgets.engine.tracing.dataflow import DataNode

ONE_TRIANGLE = "only one triangle of the matrix is read, so the order of rows and columns matters"


def unify_triangular(call: Call) -> None:
    """Make rows and columns of a matrix one axis where the operator, or the one that it is like, reads a triangle."""
    triangle = traits_of(call.overload).triangle
    if triangle is None:
        return
    argument, flag = triangle
    if flag is not None and not call[flag]:
        return
    matrix: DataNode = call[argument]
    rows, columns = call.axes(matrix)[-2:]
    call.unify(rows, columns)
    if not is_symmetric(matrix):
        call.freeze_all([rows, columns], ONE_TRIANGLE)


# ------------------------------------------------------- symmetric as it is made

_DIAGONAL_FACTORIES = ("eye", "diag_embed")


def is_symmetric(node: DataNode) -> bool:
    """True if a real matrix is symmetric by the operators that produced it, whatever its numbers."""
    made = node.producer
    if (
        made is None
        or node.previous is not None
        or node.dtype.is_complex
        or node.dim() < 2
        or node.shape[-1] != node.shape[-2]
    ):
        return False
    call, traits = OperatorCall(made), traits_of(made.overload)
    given = call.inputs
    if call.name in _DIAGONAL_FACTORIES:
        return _is_main_diagonal(call)
    if traits.commutes and len(given) == 2 and _are_transposes(*given):
        return True
    if traits.layer == MATRIX_PRODUCT and len(given) == 2:
        return _are_transposes(*given)
    if traits.asks_for_sizes:  # batches of matrices, put together otherwise
        return given[0].shape[-2:] == node.shape[-2:] and is_symmetric(given[0])
    if not traits.pointwise:
        return traits.keeps_symmetry and is_symmetric(given[0])
    return traits.keeps_symmetry and bool(given) and all(_keeps_symmetric(each) for each in given)


def _is_main_diagonal(call: OperatorCall) -> bool:
    return not call.get("offset") and {call.get("dim1", -2), call.get("dim2", -1)} == {-2, -1}


def _keeps_symmetric(node: DataNode) -> bool:
    """True if broadcasting the value onto a symmetric matrix leaves it symmetric."""
    return node.dim() == 0 or node.shape[-2:] in ((1, 1), (1,)) or is_symmetric(node)


def _are_transposes(left: DataNode, right: DataNode) -> bool:
    """True if one value is the transpose of the other in the last two dimensions."""
    a, b = _untransposed(left), _untransposed(right)
    return a[0] is b[0] and a[1] != b[1]


def _untransposed(node: DataNode) -> tuple[DataNode, bool]:
    """The value below the transpositions of the last two dimensions, and whether their number is odd."""
    odd = False
    while (made := node.producer) is not None and node.previous is None:
        call, traits = OperatorCall(made), traits_of(made.overload)
        above = call.inputs[0] if call.inputs else None
        if above is None:
            break
        if traits.reorders and _exchanges_last(call):
            odd = not odd
        elif not ((traits.copies or traits.asks_for_sizes) and above.shape == node.shape):
            break
        node = above
    return node, odd


def _exchanges_last(call: OperatorCall) -> bool:
    count = call.inputs[0].dim()
    if count < 2:
        return False
    if call.has("dims"):
        return [at % count for at in call["dims"]] == [*range(count - 2), count - 1, count - 2]
    pair = [call[name] for name in ("dim0", "dim1", "axis0", "axis1") if call.has(name)]
    return {at % count for at in pair} == {count - 2, count - 1} if pair else call.name == "t" and count == 2
