"""Axis rules of concatenation, splitting, slicing and padding: sums of terms and their parts."""

from __future__ import annotations

from modulekg_widgets.engine.axes.terms.algebra import ONE, SUM, Term, find, flattened_parts
from modulekg_widgets.engine.axes.terms.call import Call, Dims, rule
from modulekg_widgets.engine.axes.terms.index_semantics import EXPERTS
from modulekg_widgets.engine.operators.traits import CAT, PAD, SELECT, SLICE, SPLIT, UNBIND
from modulekg_widgets.engine.tracing.dataflow import DataNode

RAGGED_ROWS = "rows of several lengths"


@rule(*CAT)
def cat(call: Call) -> Dims:
    """Concatenation gives a sum; other dimensions unify. Empty 1-D tensors are skipped, as torch does. An empty one-
    dimensional tensor is skipped, as torch does.
    """
    nodes = [node for node in call["tensors"] if node.shape != (0,)]
    if not nodes:
        return call.frozen_all(call.output.shape, "nothing is joined")
    every = [call.axes(node) for node in nodes]
    at: int = call["dim"] % len(every[0])
    dims = every[0]
    for other in every[1:]:
        for position, (a, b) in enumerate(zip(dims, other, strict=True)):
            if position != at:
                call.unify(a, b)
    _join_choices(call, nodes)
    return [*dims[:at], call.sum(*(own[at] for own in every)), *dims[at + 1 :]]


def _join_choices(call: Call, nodes: list[DataNode]) -> None:
    """Indices that were chosen from one axis, one after the other as by two routers, are indices of that axis."""
    if all(call.chosen.axis_of(node) is not None for node in nodes):
        first, *others = [axis for node in nodes if (axis := call.chosen_axis(node)) is not None]
        for other in others:
            call.unify(first, other)
        call.chosen.note(call.output, first)


@rule("aten::_chunk_cat")
def chunk_cat(call: Call) -> Dims:
    """Each tensor in chunks along one dimension, all that is in a chunk flat, and chunk by chunk end to end."""
    count, every = call["num_chunks"], [call.axes(node) for node in call["tensors"]]
    at: int = call["dim"] % len(every[0])
    dims, text = every[0][:at], "split into chunks"
    flat_parts: list[Term] = []
    for own, size in zip(every, _chunk_sizes(call, at, count), strict=True):
        call.unify_all(own[:at], dims)
        if own[at].size == count * size:
            flat_parts.append(call.product(call.factors(own[at], count, size)[1], *own[at + 1 :]))
            call.freeze(call.factors(own[at], count, size)[0], text)
        else:  # the last chunk is padded
            call.freeze(own[at], text)
            flat_parts.append(call.product(call.frozen(size, text), *own[at + 1 :]))
    return [*dims, call.frozen(count, text), call.sum(*flat_parts)]


def _chunk_sizes(call: Call, at: int, count: int) -> list[int]:
    return [-(-node.shape[at] // count) for node in call["tensors"]]


@rule("aten::stack", "aten::_stack")
def stack(call: Call) -> Dims:
    """The new dimension is frozen; the others unify."""
    every = [call.axes(node) for node in call["tensors"]]
    dims = every[0]
    for other in every[1:]:
        call.unify_all(dims, other)
    at: int = call["dim"] % (len(dims) + 1)
    _join_choices(call, call["tensors"])
    return [*dims[:at], call.frozen(len(every), "stacked"), *dims[at:]]


@rule(*SPLIT)
def split(call: Call) -> list[Dims]:
    """A sum is split into its parts."""
    dims = call.axes(call["self"])
    at: int = call["dim"] % len(dims)
    for node in call.inputs[1:]:
        call.freeze_all(call.axes(node), "positions of a split")
    parts = call.parts(dims[at], *(node.shape[at] for node in call.results))
    return [[*dims[:at], part, *dims[at + 1 :]] for part in parts]


@rule(*SLICE)
def slice_(call: Call) -> Dims:
    """A piece of a sum; with a step that divides the size, one index of an inner factor."""
    dims = call.axes(call["self"])
    at: int = call["dim"] % len(dims)
    step = call["step"] if call.has("step") else 1
    dims[at] = _piece(call, dims[at], _start(call, dims[at].size), call.output.shape[at], step)
    return dims


def _start(call: Call, size: int) -> int:
    """Returns the first position of a slice, as Python computes it."""
    start = call["start"] or 0
    return min(max(start + size if start < 0 else start, 0), size)


def _end(call: Call, size: int) -> int:
    end = size if call["end"] is None else call["end"]
    return min(max(end + size if end < 0 else end, 0), size)


def _piece(call: Call, term: Term, start: int, count: int, step: int) -> Term:
    size = term.size
    if count == size:
        return term
    if step == 1 or count <= 1:
        return call.parts(term, start, count, size - start - count)[1]
    if size % step == 0 and count == size // step:
        outer, inner = call.factors(term, count, step)
        call.freeze(inner, "taken in strides")
        return outer
    call.freeze(term, "taken in strides")
    return call.frozen(count, "taken in strides")


@rule(*SELECT)
def select(call: Call) -> Dims:
    """One index, chosen by the code: the part that holds it may not change."""
    dims = call.axes(call["self"])
    at: int = call["dim"] % len(dims)
    axis = call.chosen.selected.get(call.operator)
    if axis is None:
        _fix_index(call, dims[at], call["index"] % dims[at].size)
    else:
        call.unify_with_choice(dims[at], axis)
        if len(dims) == 3 and at == 0:
            call.role(dims[at], EXPERTS)
    return [*dims[:at], *dims[at + 1 :]]


def _fix_index(call: Call, term: Term, index: int) -> None:
    term = find(term)
    if term.kind == SUM:
        for part in flattened_parts(term):
            if index < part.size:
                call.freeze(part, "the code selects one index")
                return
            index -= part.size
    call.freeze(term, "the code selects one index")


@rule(*UNBIND)
def unbind(call: Call) -> list[Dims]:
    """Every index on its own."""
    dims = call.axes(call["self"])
    at: int = call["dim"] % len(dims)
    call.freeze(dims[at], "the code reads each index")
    return [[*dims[:at], *dims[at + 1 :]] for _ in call.results]


@rule("aten::select_scatter", "aten::slice_scatter", "aten::diagonal_scatter", "aten::as_strided_scatter")
def scatter_into(call: Call) -> Dims:
    """Another tensor written over a piece of this one."""
    dims = call.axes(call["self"])
    piece = call.axes(call["src"])
    if call.name == "slice_scatter":
        at: int = call["dim"] % len(dims)
        start = _start(call, dims[at].size)
        count = len(range(start, _end(call, dims[at].size), call["step"]))
        part = _piece(call, dims[at], start, count, call["step"])
        call.unify_all([*dims[:at], part, *dims[at + 1 :]], piece)
    elif call.name == "select_scatter":
        at: int = call["dim"] % len(dims)
        _fix_index(call, dims[at], call["index"] % dims[at].size)
        call.unify_all([*dims[:at], *dims[at + 1 :]], piece)
    else:
        call.freeze_all([*dims, *piece], "written over a part")
    return dims


@rule(*PAD)
def constant_pad(call: Call) -> Dims:
    """A sum with frozen ends; a negative pad takes a piece away."""
    dims = call.axes(call["self"])
    pads = call["pad"]
    if call.has("mode") and call["mode"] != "constant":
        at = len(dims) - len(pads) // 2
        call.freeze_all(dims[at:], "padded with values from inside")
        return [*dims[:at], *call.frozen_all(call.output.shape[at:], "padded with values from inside")]
    for pair in range(len(pads) // 2):
        at = len(dims) - 1 - pair
        before, after = pads[2 * pair : 2 * pair + 2]
        if before < 0 or after < 0:
            cut = [max(-before, 0), max(-after, 0)]
            dims[at] = call.parts(dims[at], cut[0], dims[at].size - sum(cut), cut[1])[1]
        ends = [call.frozen(max(end, 0), "padding") if end > 0 else None for end in (before, after)]
        dims[at] = call.sum(*(term for term in (ends[0], dims[at], ends[1]) if term is not None))
    return dims


@rule("aten::block_diag")
def block_diag(call: Call) -> Dims:
    """Matrices along a diagonal: their rows lie end to end, and so do their columns."""
    every = [[ONE, ONE, *call.axes(node)][-2:] for node in call["tensors"]]
    return [call.sum(*(own[at] for own in every)) for at in (0, 1)]


@rule("aten::meshgrid")
def meshgrid(call: Call) -> list[Dims]:
    """Each vector has a dimension of its own; indexing="xy" exchanges the first two."""
    every = [(call.axes(node) or [ONE])[0] for node in call["tensors"]]
    if call.has("indexing") and call["indexing"] == "xy":
        every[:2] = every[1::-1]
    return [every for _ in call.results]


@rule("aten::_jagged_to_padded_dense_forward")
def jagged_to_padded(call: Call) -> Dims:
    """(rows of all samples, features) → (samples, rows of the longest, features)."""
    rows, *features = call.axes(call["values"])
    ends = [term for node in call["offsets"] for term in call.axes(node)]
    call.freeze_all([rows, *ends], RAGGED_ROWS)
    return [*call.frozen_all(call.output.shape[: -len(features) or None], RAGGED_ROWS), *features]


@rule("aten::_padded_dense_to_jagged_forward")
def padded_to_jagged(call: Call) -> Dims:
    """(samples, rows of the longest, features) → (rows of all samples, features)."""
    walked = 1 + len(call["offsets"])
    dims = call.axes(call["dense"])
    ends = [term for node in call["offsets"] for term in call.axes(node)]
    call.freeze_all([*dims[:walked], *ends], RAGGED_ROWS)
    return [call.frozen(call.output.shape[0], RAGGED_ROWS), *dims[walked:]]
