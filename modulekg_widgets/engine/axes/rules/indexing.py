"""Axis rules of indexing and scattering: the indexed dimension is frozen or follows its indices."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from modulekg_widgets.engine.axes.rules.elementwise import broadcast
from modulekg_widgets.engine.axes.terms.algebra import ONE, PRODUCT, Term, find, flattened_parts
from modulekg_widgets.engine.axes.terms.call import Call, Dims, rule
from modulekg_widgets.engine.axes.terms.index_semantics import EXPERTS, MARKS, index_source
from modulekg_widgets.engine.operators.arguments import OperatorCall
from modulekg_widgets.engine.operators.traits import (
    EMBEDDING_BAG,
    EMBEDDING_TABLE,
    GATHER,
    INDEX,
    INDEX_PUT,
    INDEX_SELECT,
    INDEX_WRITE,
    SPARSE_ADDMM,
    SPARSE_MATMUL,
)
from modulekg_widgets.engine.tracing.dataflow import CONSTANT, DataNode

INDEXED = "looked up by index"
INDEXED_BY_CODE = "looked up by indices that the code computes and a cut cannot change"


@rule(*EMBEDDING_TABLE)
def embedding(call: Call) -> Dims:
    """Rows of a table."""
    rows, width = call.axes(call["weight"])
    if not call.unify_with_index_axis(rows, call["indices"]):
        call.freeze(rows, "vocabulary")
        call.role(rows, "vocabulary")
    return [*call.axes(call["indices"]), width]


@rule("aten::embedding_renorm")
def embedding_renorm(call: Call) -> Dims:
    """Rows of a table are normalized in place; the table's vocabulary is frozen."""
    dims = call.axes(call["self"])
    call.freeze(dims[0], "vocabulary")
    return dims


@rule(*EMBEDDING_BAG)
def embedding_bag(call: Call) -> list[Dims]:
    """Rows of a table, joined to bags."""
    table, *walked = call.inputs
    rows, width = call.axes(table)
    call.freeze(rows, "vocabulary")
    call.role(rows, "vocabulary")
    call.freeze_all([term for node in walked for term in call.axes(node)], "bags in order")
    return [_per_bag(call, node, width) for node in call.results]


def _per_bag(call: Call, node: DataNode, width: Term) -> Dims:
    """A row per bag, of sums or of the places of maxima; else bags and sizes."""
    if node.dim() == 2 and node.shape[1] == width.size:
        return [call.frozen(node.shape[0], "bags in order"), width]
    return call.frozen_all(node.shape, "bags in order")


@rule(*INDEX)
def index(call: Call) -> Dims:
    """Advanced indexing: adjacent indices keep their position in the result, others come first."""
    dims, shape = call.axes(call["self"]), call.output.shape
    taken = _indices_by_dim(call["indices"])
    if (picked := _picked_by_buffer(call, dims, taken)) is not None:
        return picked
    for at, places in taken.items():
        _index_dim(call, dims[at], places, len(dims) > 2 and len(taken) == 1 and at == 0)
    _propagate_choice(call, call["self"], call["indices"])
    start, kept = _split_dims(dims, taken)
    new = _index_dims(call, list(dict.fromkeys(taken.values())), shape[start : start + len(shape) - len(kept)])
    out = [*kept[:start], *new, *kept[start:]]
    if call.has("mask"):
        call.unify_broadcast(call["mask"], out)
    return out


def _picked_by_buffer(call: Call, dims: Dims, taken: dict[int, DataNode]) -> Dims | None:
    """Returns the dimensions of a result indexed by a buffer that can be re-indexed; None otherwise."""
    if len(taken) != 1 or call.has("mask"):
        return None
    ((at, places),) = taken.items()
    picked = call.pick_by_buffer(dims[at], places) if places.dim() == 1 else None
    return None if picked is None else [*dims[:at], picked, *dims[at + 1 :]]


def _index_dim(call: Call, term: Term, places: DataNode, matrices: bool = False) -> None:
    """Unifies the indexed dimension with the axis of the indices, or freezes it."""
    if not call.unify_with_index_axis(term, places):
        call.freeze(term, _freeze_reason(places))
    elif matrices:
        call.role(term, EXPERTS)


def _propagate_choice(call: Call, source: DataNode, places: Sequence[DataNode | None]) -> None:
    """Marks a result as chosen indices when it selects from chosen indices."""
    if source not in places and (axis := call.chosen_axis(source)) is not None:
        call.chosen.note(call.output, axis)


def _freeze_reason(places: DataNode) -> str:
    return INDEXED_BY_CODE if index_source(places).kind == CONSTANT else INDEXED


def _indices_by_dim(indices: list[DataNode | None]) -> dict[int, DataNode]:
    """Returns the index tensor of each indexed dimension; a mask covers as many dimensions as it has."""
    taken: dict[int, DataNode] = {}
    at = 0
    for entry in indices:
        width = entry.dim() if entry is not None and _is_mask(entry) else 1
        if entry is not None:
            taken.update(dict.fromkeys(range(at, at + width), entry))
        at += width
    return taken


def _is_mask(entry: DataNode) -> bool:
    return entry.dtype in (torch.bool, torch.uint8)


def _split_dims(dims: Dims, taken: dict[int, DataNode]) -> tuple[int, Dims]:
    """Returns the position of the indices' dimensions in the result, and the dimensions that are not indexed."""
    kept = [term for at, term in enumerate(dims) if at not in taken]
    adjacent = not taken or max(taken) - min(taken) + 1 == len(taken)
    return (min(taken) if adjacent and taken else 0), kept


def _index_dims(call: Call, entries: list[DataNode], shape: Sequence[int]) -> Dims:
    """The dimensions of the indices, broadcast; where one is a mask, their order says which are chosen."""
    every = [call.axes(entry) for entry in entries]
    if any(map(_is_mask, entries)):
        call.freeze_all([term for own in every for term in own], "chosen by the data")
        return call.frozen_all(shape, "chosen by the data")
    return broadcast(call, *every)


@rule(*INDEX_PUT)
def index_put(call: Call) -> Dims:
    """Values written by advanced indexing unify with the dimensions that indexing would return."""
    dims, values = call.axes(call["self"]), call["values"]
    taken = _indices_by_dim(call["indices"])
    start, kept = _split_dims(dims, taken)
    entries = list(dict.fromkeys(taken.values()))
    if len(entries) == 1 and _is_mask(entries[0]) and _is_constant(values, len(kept) - start):
        # written alike wherever the mask is true: each element is for itself
        call.unify_all(call.axes(entries[0]), dims[start : start + entries[0].dim()])
        call.unify_broadcast(values, kept[start:])
        return dims
    if (picked := _picked_by_buffer(call, dims, taken)) is not None:
        call.unify_broadcast(values, picked)
        return dims
    for at, places in taken.items():
        _index_dim(call, dims[at], places)
    masked = any(map(_is_mask, entries))
    new = _index_dims(call, entries, [1])
    if masked:
        call.freeze_all(call.axes(values)[: max(values.dim() - len(kept) + start, 0)], "chosen by the data")
    call.unify_broadcast(values, [*kept[:start], *new, *kept[start:]])
    if call.has("mask"):
        call.unify_broadcast(call["mask"], call.axes(values))
    return dims


def _is_constant(values: DataNode, after: int) -> bool:
    """True if the written values are equal at all indexed positions."""
    return all(size == 1 for size in values.shape[: max(values.dim() - after, 0)])


@rule("aten::masked_scatter")
def masked_scatter(call: Call) -> Dims:
    """Elements of the source go in order to where the mask is true: whole rows where it is constant along them."""
    dims, mask, source = (call.axes(call[name]) or [ONE] for name in ("self", "mask", "source"))
    last = find(mask[-1])
    if (
        (last.size == 1 or last.filler is not None)
        and last.size in (1, dims[-1].size)
        and dims[-1].size == source[-1].size
    ):
        for row in (last, source[-1]):
            if row.size > 1:
                call.unify(row, dims[-1])
        walked = [*dims[:-1], *mask[:-1], *source[:-1]]
    else:
        walked = [*dims, *mask, *source]
    call.freeze_all(walked, "written in order where a mask is true")
    return broadcast(call, dims, mask)


@rule(*INDEX_SELECT)
def index_select(call: Call) -> Dims:
    """Selects indices of one dimension."""
    dims = call.axes(call["self"])
    if not dims:
        return []
    at: int = call["dim"] % len(dims)
    if (picked := _picked_by_buffer(call, dims, {at: call["index"]})) is not None:
        return picked
    _index_dim(call, dims[at], call["index"], len(dims) > 2 and at == 0)
    _propagate_choice(call, call["self"], [call["index"]])
    return [*dims[:at], *(call.axes(call["index"]) or [ONE]), *dims[at + 1 :]]


@rule(*GATHER)
def gather(call: Call) -> Dims:
    """The gathered dimension is indexed; the other dimensions of index and source unify where sizes agree."""
    dims, picked = call.axes(call["self"]) or [ONE], call.axes(call["index"])
    at: int = call["dim"] % len(dims)
    chosen = call.pick_by_buffer(dims[at], call["index"], at) if call["index"].dim() else None
    for position, (term, other) in enumerate(zip(dims, picked, strict=False)):
        if position != at:
            _unify_if_equal_size(call, term, other)
        elif chosen is None:
            _index_dim(call, term, call["index"])
    _propagate_choice(call, call["self"], [call["index"]])
    return picked if chosen is None else [*picked[:at], chosen, *picked[at + 1 :]]


def _unify_if_equal_size(call: Call, term: Term, other: Term) -> None:
    """Two dimensions that are walked side by side, perhaps not to the end of both."""
    if term.size == other.size:
        call.unify(term, other)
    else:
        call.freeze_all([term, other], "only the first indices are used")


@rule("aten::scatter", "aten::scatter_add", "aten::scatter_reduce")
def scatter(call: Call) -> Dims:
    """The reverse of `gather`."""
    dims, index = call.axes(call["self"]), call.axes(call["index"])
    at: int = call["dim"] % len(dims) if dims else 0
    source = call["src"] if call.has("src") else None
    given = call.axes(source) if isinstance(source, DataNode) else index
    for position, (term, place, value) in enumerate(zip(dims, index, given, strict=False)):
        _unify_if_equal_size(call, place, value)
        if position == at:
            _index_dim(call, term, call["index"])
        else:
            _unify_if_equal_size(call, term, place)
    axis = call.chosen.axis_of(call["index"])
    if axis is not None and not isinstance(source, DataNode):
        call.chosen.note(call.output, axis, MARKS)
    return dims


@rule(*INDEX_WRITE)
def index_write(call: Call) -> Dims:
    """Slices are written along one dimension; the other dimensions unify."""
    own = call.axes(call["self"])
    dims = own or [ONE]
    at: int = call["dim"] % len(dims)
    if (picked := _picked_by_buffer(call, dims, {at: call["index"]})) is not None:
        call.unify_all(call.axes(call["source"]) if call.has("source") else picked, picked)
        return own
    _index_dim(call, dims[at], call["index"])
    if call.has("source"):
        source = call.axes(call["source"])
        places = call.axes(call["index"])
        expected = [*dims[:at], *(places or [ONE] if len(source) == len(dims) else []), *dims[at + 1 :]]
        call.unify_all(source, expected)
    return own


@rule("aten::take", "aten::put")
def take(call: Call) -> Dims:
    """Indexing of the flattened tensor; all dimensions are frozen."""
    dims, places = call.axes(call["self"]), call.axes(call["index"])
    call.freeze_all(dims, INDEXED)
    if call.name == "take":
        return places
    source = call["source"]
    if source.shape == call["index"].shape:
        call.unify_all(places, call.axes(source))
    else:
        call.freeze_all([*places, *call.axes(source)], INDEXED)
    return dims


@rule("aten::eq")
def equal(call: Call) -> Dims:
    """Elementwise; a comparison of chosen indices with an `arange` is a one-hot vector of the axis."""
    other = call["other"]
    if isinstance(other, DataNode):
        for places, every in ((call["self"], other), (other, call["self"])):
            at = _enumerated_dim(every)
            axis = None if at is None else call.chosen.axis_of(places)
            if at is not None and axis is not None and axis.size == every.shape[at] and places.shape[at] == 1:
                call.followed.add(places)
                _match_enumeration(call, every, axis)
                dims = call.axes(places)
                return [*dims[:at], axis, *dims[at:][1:]]
    else:
        _compare_with_sentinel(call, call["self"], other)
    return broadcast(call, *(call.axes(node) for node in call.inputs))


def _compare_with_sentinel(call: Call, places: DataNode, number: object) -> None:
    """Allows a comparison of chosen indices with a number beyond them, as a sentinel for "none"."""
    axis = call.chosen.axis_of(places)
    if (
        axis is not None
        and isinstance(number, int)
        and number >= flattened_parts(axis)[0].size
        and find(axis).kind != PRODUCT
    ):
        call.followed.add(places)


def _enumerated_dim(node: DataNode) -> int | None:
    """The dimension, counted from the end, along which a value holds 0, 1, 2 …; None where it is another one."""
    made = index_source(node).producer
    if made is None or made.name != "aten::arange":
        return None
    steps = OperatorCall(made)
    long = [at - node.dim() for at, size in enumerate(node.shape) if size > 1]
    from_zero = not steps.has("start") or steps["start"] == 0
    return long[0] if len(long) == 1 and from_zero and (not steps.has("step") or steps["step"] == 1) else None


def _match_enumeration(call: Call, node: DataNode | None, axis: Term) -> None:
    """Unifies an `arange` that serves this comparison alone with the axis."""
    while node is not None and len(node.consumers) == 1:
        for at, size in enumerate(node.shape):
            if size == axis.size:
                call.replace_dim(node, at, axis)
        inputs = [] if node.producer is None else node.producer.inputs
        node = inputs[0] if inputs else None


@rule("aten::one_hot")
def one_hot(call: Call) -> Dims:
    """A new dimension, one index per class; of chosen indices it is the axis that they were chosen from."""
    classes = call.output.shape[-1]
    axis = call.chosen_axis(call["self"])
    if axis is None or axis.size > classes:
        call.followed.clear()
        return [*call.axes(call["self"]), call.frozen(classes, "classes")]
    beyond = [call.frozen(classes - axis.size, "classes that are never chosen")] if classes > axis.size else []
    return [*call.axes(call["self"]), call.sum(axis, *beyond)]


# -------------------- Axis rules of sparse tensors: sparse dimensions are frozen, dense ones unify


STORED_ELEMENTS = "elements of a sparse tensor have fixed positions"


@rule(*SPARSE_MATMUL)
def sparse_matmul(call: Call) -> list[Dims]:
    """(n, k) times (k, m); a second result holds the indices of extreme elements and is frozen."""
    a, b = (call.axes(node) for node in call.inputs[:2])
    call.unify(a[-1], b[0])
    return [[a[0], b[-1]], *(call.frozen_all(node.shape, STORED_ELEMENTS) for node in call.results[1:])]


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
def sparse_from_indices(call: Call) -> Dims:
    """Places (sparse dimensions, elements) and values (elements, dense dimensions) as one tensor."""
    places, (elements, *dense) = call.axes(call["indices"]), call.axes(call["values"])
    call.freeze_all([*places, elements], STORED_ELEMENTS)
    return [*call.frozen_all(call.output.shape[: call.output.dim() - len(dense)], STORED_ELEMENTS), *dense]


@rule("aten::sparse_compressed_tensor", "aten::_sparse_compressed_tensor_unsafe")
def sparse_compressed(call: Call) -> Dims:
    """Rows or columns by where they begin; blocks of elements and dense dimensions as well stay as they are."""
    call.freeze_all([term for node in call.inputs for term in call.axes(node)], STORED_ELEMENTS)
    return call.frozen_all(call.output.shape, STORED_ELEMENTS)


@rule("aten::_to_dense", "aten::_to_sparse", "aten::_to_sparse_csr", "aten::_to_sparse_csc", "aten::_coalesce",
      "aten::sparse_mask", "aten::_sparse_softmax", "aten::_sparse_log_softmax")  # fmt: skip
def sparse_conversion(call: Call) -> Dims:
    """The same dimensions, stored otherwise."""
    return broadcast(call, *(call.axes(node) for node in call.inputs))


@rule("aten::_values", "aten::values", "aten::_indices", "aten::indices", "aten::crow_indices", "aten::col_indices",
      "aten::ccol_indices", "aten::row_indices")  # fmt: skip
def sparse_contents(call: Call) -> Dims:
    """The dense dimensions of sparse values unify with those of the tensor; elements are frozen."""
    dims = call.axes(call["self"])
    size = call.output.shape
    dense = len(size) - 1 if call.name.endswith("values") else 0
    kept = dims[len(dims) - dense :] if dense and [term.size for term in dims[-dense:]] == list(size[1:]) else []
    call.freeze_all(dims[: len(dims) - len(kept)], STORED_ELEMENTS)
    return [*call.frozen_all(size[: len(size) - len(kept)], STORED_ELEMENTS), *kept]
