"""Axis rules of views: dimensions are merged, split, permuted and repeated."""

from __future__ import annotations

import math
from collections.abc import Sequence

from modulekg_widgets.engine.axes.terms.algebra import ONE, Term
from modulekg_widgets.engine.axes.terms.call import Call, Dims, rule
from modulekg_widgets.engine.axes.terms.index_semantics import MARKS
from modulekg_widgets.engine.axes.terms.literal_sizes import literal_sizes
from modulekg_widgets.engine.operators.traits import (
    AS_STRIDED,
    EXPAND,
    MOVEDIM,
    PERMUTE,
    REPEAT,
    REPEAT_INTERLEAVE,
    REVERSE,
    SQUEEZE,
    TRANSPOSE,
    UNSQUEEZE,
    VIEW,
)
from modulekg_widgets.engine.torch_runtime.private import overload_name_of
from modulekg_widgets.engine.tracing.dataflow import DataNode


@rule(*VIEW)
def view(call: Call) -> Dims:
    """Dimensions are matched in runs of equal products; runs are merged into products or split."""
    source = call.inputs[0]
    dims, shape = call.axes(source), call.output.shape
    if "dtype" in overload_name_of(call.overload):
        return _bytes_view(call, dims, shape)
    if source.numel() == 0:
        return _empty_view(call, dims, shape)
    found = _runs(call, dims, shape)
    for at in literal_sizes(call.operator, shape):
        call.fix_size(found[at], f"its size is fixed in the code, as {shape[at]}")
    return found


def _runs(call: Call, dims: Sequence[Term], shape: Sequence[int]) -> Dims:
    out: Dims = []
    left, right = 0, 0
    while right < len(shape):
        start, first = left, right
        have, want = 1, shape[right]
        right += 1
        while have != want:
            if have < want:
                have *= dims[left].size
                left += 1
            else:
                want *= shape[right]
                right += 1
        out.extend(_reshape_run(call, dims[start:left], shape[first:right], _is_choice_mask(call, call.inputs[0])))
    return out


def _empty_view(call: Call, dims: Sequence[Term], shape: Sequence[int]) -> Dims:
    """A view of an empty tensor, as for an expert without tokens: dimensions after the empty one are matched."""
    here, there = _first_after_empty([term.size for term in dims]), _first_after_empty(shape)
    if math.prod(term.size for term in dims[here:]) != math.prod(shape[there:]):
        return call.frozen_all(shape, "a view of an empty tensor")
    return [*call.frozen_all(shape[:there], "a view of an empty tensor"), *_runs(call, dims[here:], shape[there:])]


def _first_after_empty(sizes: Sequence[int]) -> int:
    """Returns the first dimension after the last empty one."""
    return max(at for at, size in enumerate(sizes) if size == 0) + 1


def _is_choice_mask(call: Call, source: DataNode) -> bool:
    """True if the value is a one-hot or boolean mask of chosen groups."""
    return call.chosen.axis_of(source, MARKS) is not None


def _bytes_view(call: Call, dims: Dims, shape: Sequence[int]) -> Dims:
    """Views as another dtype, whose last dimension may change."""
    if len(dims) != len(shape):
        return call.frozen_all(shape, "a view as another dtype")
    out: Dims = []
    for term, size in zip(dims, shape, strict=True):
        if term.size != size:
            call.freeze(term, "a view as another dtype")
        out.append(term if term.size == size else call.frozen(size, "a view as another dtype"))
    return out


def _reshape_run(call: Call, dims: Sequence[Term], shape: Sequence[int], marks: bool) -> Dims:
    whole = call.product(*dims) if marks else _merged(call, dims)
    parts = iter(call.factors(whole, *(size for size in shape if size != 1)))
    return [ONE if size == 1 else next(parts) for size in shape]


def _merged(call: Call, dims: Sequence[Term]) -> Term:
    """Several dimensions as one."""
    real = [term for term in dims if term.size != 1]
    if len(real) > 1:
        for term in real:
            call.freeze_fillers(term, "expanded, then merged with its neighbours")
    return call.product(*real)


@rule(*PERMUTE)
def permute(call: Call) -> Dims:
    """Dimensions in another order."""
    dims = call.axes(call["self"])
    return [dims[at] for at in call["dims"]]


@rule(*TRANSPOSE)
def transpose(call: Call) -> Dims:
    """Two dimensions change places."""
    dims = call.axes(call["self"])
    a, b = (call["dim0"], call["dim1"]) if call.has("dim0") else (call["axis0"], call["axis1"])
    if dims:
        dims[a], dims[b] = dims[b], dims[a]
    return dims


@rule(*REVERSE)
def t(call: Call) -> Dims:
    """All dimensions in reverse."""
    return call.axes(call["self"])[::-1]


@rule(*MOVEDIM)
def movedim(call: Call) -> Dims:
    """Some dimensions move, the others keep their order."""
    dims = call.axes(call["self"])
    source, target = call["source"], call["destination"]
    moved = {d % len(dims): s % len(dims) for s, d in zip(_as_sequence(source), _as_sequence(target), strict=True)}
    rest = iter([at for at in range(len(dims)) if at not in moved.values()])
    return [dims[moved[at]] if at in moved else dims[next(rest)] for at in range(len(dims))]


def _as_sequence(value: int | Sequence[int]) -> Sequence[int]:
    return [value] if isinstance(value, int) else value


@rule(*SQUEEZE)
def squeeze(call: Call) -> Dims:
    """Dimensions of one index go."""
    dims = call.axes(call["self"])
    asked = _as_sequence(call["dim"]) if call.has("dim") else range(len(dims))
    gone = {at % len(dims) for at in asked if dims}
    return [term for at, term in enumerate(dims) if not (at in gone and term.size == 1)]


@rule(*UNSQUEEZE)
def unsqueeze(call: Call) -> Dims:
    """A new dimension of one index."""
    dims = call.axes(call["self"])
    dims.insert(call["dim"] % (len(dims) + 1), ONE)
    return dims


@rule(*EXPAND)
def expand(call: Call) -> Dims:
    """Expanded dimensions are fillers: all their indices are equal."""
    dims, shape = call.axes(call.inputs[0]), call.output.shape
    dims = [ONE] * (len(shape) - len(dims)) + dims
    return [
        term if term.size == size else call.filler(size, "expanded to a size fixed in the code")
        for term, size in zip(dims, shape, strict=True)
    ]


@rule(*REPEAT)
def repeat(call: Call) -> Dims:
    """Copies laid end to end: a frozen outer factor; copies of one index are an expansion."""
    times = call["repeats"] if call.has("repeats") else call["dims"]
    dims = call.axes(call["self"])
    times = [1] * (len(dims) - len(times)) + list(times)
    dims = [ONE] * (len(times) - len(dims)) + dims
    return [
        call.filler(count, "repeated a fixed number of times")
        if term.size == 1
        else call.product(call.frozen(count, "repeated"), term)
        for count, term in zip(times, dims, strict=True)
    ]


@rule(*REPEAT_INTERLEAVE)
def repeat_interleave(call: Call) -> Dims:
    """Every index several times in a row: a frozen inner factor."""
    shape, counts, text = call.output.shape, call["repeats"], "repeated by counts that differ"
    if not call.has("self"):
        call.freeze_all(call.axes(counts), "indices made from counts")
        return call.frozen_all(shape, "indices made from counts")
    dims, at = call.axes(call["self"]), call["dim"]
    if at is None:
        dims, at = [_merged(call, dims)], 0
    at %= len(dims)
    if isinstance(counts, int) or counts.numel() == 1:
        dims[at] = call.product(dims[at], call.frozen(shape[at] // dims[at].size, "repeated"))
        return dims
    call.freeze_all([dims[at], *call.axes(counts)], text)
    dims[at] = call.frozen(shape[at], text)
    return dims


@rule(*AS_STRIDED)
def as_strided(call: Call) -> Dims:
    """An alias unifies all dimensions; otherwise only those with a stride of their own unify.

    So the overlapping windows of a local attention keep their features.
    """
    source, out = call["self"], call.output
    dims = call.axes(source)
    before = list(zip(source.shape, source.stride, strict=True))
    after = list(zip(out.shape, call["stride"], strict=True))
    # along one index there are no steps: global pooling restrides its result so
    if source.shape == out.shape and all(old == new or old[0] == 1 for old, new in zip(before, after, strict=True)):
        return dims
    kept = {
        at: after.index(step)
        for at, step in enumerate(before)
        if not call["storage_offset"]
        and after.count(step) == 1
        and _has_own_stride(step, before)
        and _has_own_stride(step, after)
    }
    call.freeze_all([term for at, term in enumerate(dims) if at not in kept], "read through as_strided")
    results = call.frozen_all(out.shape, "read through as_strided")
    for at, place in kept.items():
        results[place] = dims[at]
    return results


def _has_own_stride(step: tuple[int, int], steps: Sequence[tuple[int, int]]) -> bool:
    """True if the memory offset alone determines the index along a dimension, by sizes and strides."""
    size, stride = step
    others = [other for other in steps if other != step and other[0] > 1]
    inner = sum((count - 1) * length for count, length in others if length < stride)
    return inner < stride and all(length % (size * stride) == 0 for _, length in others if length >= stride)


@rule("aten::resize", "aten::resize_as")
def resize(call: Call) -> Dims:
    """The same memory in another shape, perhaps more or less of it."""
    dims, shape = call.axes(call["self"]), call.output.shape
    other = call.axes(call["the_template"]) if call.has("the_template") else []
    if call["self"].shape == shape:
        call.unify_all(other, dims[: len(other)])
        return dims
    call.freeze_all([*dims, *other], "resized in memory")
    return call.frozen_all(shape, "resized in memory")


@rule("aten::diagonal", "aten::diagonal_copy")
def diagonal(call: Call) -> Dims:
    """Two dimensions with equal indices are unified into one."""
    dims = call.axes(call["self"])
    a: int = call["dim1"] % len(dims)
    b: int = call["dim2"] % len(dims)
    rest = [term for at, term in enumerate(dims) if at not in (a, b)]
    if call["offset"] == 0 and dims[a].size == dims[b].size:
        call.unify(dims[a], dims[b])
        return [*rest, dims[a]]
    text = "a diagonal that is not the main one of a square"
    call.freeze_all([dims[a], dims[b]], text)
    return [*rest, call.frozen(call.output.shape[-1], text)]


@rule("aten::diag_embed")
def diag_embed(call: Call) -> Dims:
    """The last dimension becomes the diagonal of a matrix."""
    *dims, last = call.axes(call["self"])
    a, b = (call[name] % call.output.dim() for name in ("dim1", "dim2"))
    square = [last, last]
    if call["offset"] != 0:
        call.freeze(last, "a diagonal other than the main one")
        square = call.frozen_all([call.output.shape[a]] * 2, "a diagonal other than the main one")
    for at, term in sorted([(a, square[0]), (b, square[1])], key=lambda pair: pair[0]):
        dims.insert(at, term)
    return dims
