"""Sparse tensors: the elements that they store stand at written places, so their own dimensions stay as they are."""

from __future__ import annotations

from modulekg_widgets.engine.axes.call import Call, Dims, rule
from modulekg_widgets.engine.axes.rules.elementwise import broadcast
from modulekg_widgets.engine.operators.traits import SPARSE_ADDMM, SPARSE_MATMUL

STORED = "elements of a sparse tensor stand at written places"


@rule(*SPARSE_MATMUL)
def sparse_matmul(call: Call) -> list[Dims]:
    """(n, k) times (k, m); beside the product there may be the places of the largest or smallest elements."""
    a, b = (call.axes(node) for node in call.inputs[:2])
    call.unify(a[-1], b[0])
    return [[a[0], b[-1]], *(call.frozen_all(node.shape, STORED) for node in call.results[1:])]


@rule(*SPARSE_ADDMM)
def sparse_addmm(call: Call) -> Dims:
    """A product of two matrices and what it is added to, of which one is sparse."""
    onto, first, second = call.inputs[:3]
    a, b = call.axes(first), call.axes(second)
    call.unify(a[-1], b[0])
    dims = [a[0], b[-1]]
    call.unify_broadcast(onto, dims)
    return dims


@rule("aten::_sparse_coo_tensor_with_dims_and_tensors", "aten::_sparse_coo_tensor_unsafe")
def made_of_places(call: Call) -> Dims:
    """Places (sparse dimensions, elements) and values (elements, dense dimensions) as one tensor."""
    places, (elements, *dense) = call.axes(call["indices"]), call.axes(call["values"])
    call.freeze_all([*places, elements], STORED)
    return [*call.frozen_all(call.output.shape[: call.output.dim() - len(dense)], STORED), *dense]


@rule("aten::sparse_compressed_tensor", "aten::_sparse_compressed_tensor_unsafe")
def compressed(call: Call) -> Dims:
    """Rows or columns by where they begin; blocks of elements and dense dimensions as well stay as they are."""
    call.freeze_all([term for node in call.inputs for term in call.axes(node)], STORED)
    return call.frozen_all(call.output.shape, STORED)


@rule("aten::_to_dense", "aten::_to_sparse", "aten::_to_sparse_csr", "aten::_to_sparse_csc", "aten::_coalesce",
      "aten::sparse_mask", "aten::_sparse_softmax", "aten::_sparse_log_softmax")  # fmt: skip
def same_elements(call: Call) -> Dims:
    """The same dimensions, stored otherwise."""
    return broadcast(call, *(call.axes(node) for node in call.inputs))


@rule("aten::_values", "aten::values", "aten::_indices", "aten::indices", "aten::crow_indices", "aten::col_indices",
      "aten::ccol_indices", "aten::row_indices")  # fmt: skip
def stored(call: Call) -> Dims:
    """What is stored: the dense dimensions, which come last, are those of the tensor, all others are elements."""
    dims = call.axes(call["self"])
    size = call.output.shape
    dense = len(size) - 1 if call.name.endswith("values") else 0
    kept = dims[len(dims) - dense :] if dense and [term.size for term in dims[-dense:]] == list(size[1:]) else []
    call.freeze_all(dims[: len(dims) - len(kept)], STORED)
    return [*call.frozen_all(size[: len(size) - len(kept)], STORED), *kept]
