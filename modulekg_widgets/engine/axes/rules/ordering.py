"""Axis rules of order-sensitive operators, as sort and cumsum: the ordered dimension is frozen."""

from __future__ import annotations

from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.axes.terms.call import Call, Dims, rule
from modulekg_widgets.engine.axes.terms.index_semantics import COUNTS, ENDS
from modulekg_widgets.engine.operators.traits import CUMULATE, SORT
from modulekg_widgets.engine.tracing.dataflow import DataNode


@rule(*CUMULATE)
def cumulate(call: Call) -> list[Dims]:
    """A cumulative dimension is frozen, as its order matters; the cumsum of expert counts gives the ends of runs."""
    dims = call.axes(call.inputs[0])
    at = call["dim"] % len(dims) if dims else 0
    counted = call.chosen_axis(call.inputs[0], COUNTS)
    if counted is not None and call.name == "cumsum" and len(dims) == len(call.inputs) == 1:
        call.chosen.note(call.output, counted, ENDS)
        return [dims]
    call.freeze_all(dims[at : at + 1], "accumulated in order")
    for node in call.inputs[1:]:  # results that are given to be written
        call.unify_all(call.axes(node), dims)
    return [dims for _ in call.results]


@rule("aten::diff")
def diff(call: Call) -> Dims:
    """Differences of neighbours freeze the dimension, with what is prepended or appended."""
    dims = call.axes(call["self"])
    at = call["dim"] % len(dims)
    for node in call.inputs:
        for position, term in enumerate(call.axes(node)):
            if position == at:
                call.freeze(term, "neighbours are compared")
            else:
                call.unify(term, dims[position])
    return [*dims[:at], call.frozen(call.output.shape[at], "neighbours are compared"), *dims[at + 1 :]]


@rule(*SORT)
def sort(call: Call) -> list[Dims]:
    """The sorted dimension is new; top-k chooses indices of the axis, a full sort freezes it."""
    source = call.inputs[0]
    dims = call.axes(source)
    if not dims:
        return [[] for _ in call.results]
    at = (call["dim"] if call.has("dim") else 0) % len(dims)
    rows = call.frozen(call.output.shape[at], "sorted")
    if call.name == "topk":
        call.choose(call.results[1], dims[at], call["k"])
    else:
        call.freeze(dims[at], "sorted")
        _sort_rows(call, source, rows)
    return [[*dims[:at], rows, *dims[at + 1 :]] for _ in call.results]


def _sort_rows(call: Call, source: DataNode, rows: Term) -> None:
    """Chosen indices in ascending order: what is picked by their places lies so too."""
    axis = call.chosen_axis(source)
    if axis is None:
        return
    if call.name == "sort":
        call.chosen.note(call.results[0], axis)
    if source.dim() == 1 and not (call.has("descending") and call["descending"]):
        call.chosen.mark_sorted(rows, axis)


@rule("aten::flip", "aten::roll", "aten::fliplr", "aten::flipud", "aten::rot90")
def flip_or_roll(call: Call) -> Dims:
    """Indices change places among themselves: another order, which the code fixes."""
    source = call.inputs[0]
    dims = call.axes(source)
    asked = list(call["dims"]) if call.has("dims") else [1] if call.name == "fliplr" else [0]
    if call.name == "roll" and not asked:
        asked = list(range(len(dims)))  # rolled as if it were flat
    text = "flipped" if call.name.startswith("flip") else "rolled" if call.name == "roll" else "rotated"
    call.freeze_all([dims[at] for at in asked], text)
    if call.name == "rot90":
        return [t if t.size == s else call.frozen(s, text) for t, s in zip(dims, call.output.shape, strict=True)]
    return dims


@rule("aten::tril", "aten::triu")
def triangle(call: Call) -> Dims:
    """Rows and columns are compared by their position."""
    dims = call.axes(call["self"])
    call.freeze_all(dims[-2:], "cut to a triangle")
    return dims


@rule("aten::bucketize", "aten::searchsorted")
def bucketize(call: Call) -> Dims:
    """Boundaries are frozen; values keep their dimensions, with one row of boundaries each at most."""
    values = call["self"]
    dims = call.axes(values) if isinstance(values, DataNode) else []
    for node in call.inputs:
        if node is not values:
            *rows, boundaries = call.axes(node)
            call.freeze(boundaries, "searched in order")
            call.unify_all(rows, dims[: len(rows)])
    return dims


@rule("aten::isin")
def isin(call: Call) -> Dims:
    """Elementwise membership; the order of the test elements does not matter."""
    elements = call["elements"] if call.has("elements") else None
    return [] if elements is None else call.axes(elements)


@rule("aten::histc", "aten::bincount")
def histogram(call: Call) -> list[Dims]:
    """Counts per chosen index run along the axis; other bin counts are fixed by the code."""
    axis, bins = call.chosen_axis(call["self"]), call.output.shape[0]
    whole = call.name == "bincount" and call["weights"] is None
    if call.name == "histc":
        whole = (call["min"], call["max"]) == (0, bins - 1)
    if axis is None or axis.size != bins or not whole:
        call.followed.clear()
        return data_dependent(call)
    call.chosen.note(call.output, axis, COUNTS)
    return [[axis]]


@rule("aten::nonzero", "aten::nonzero_static", "aten::masked_select", "aten::unique_consecutive", "aten::_unique2",
      "aten::unique_dim", "aten::unique_dim_consecutive", "aten::_unique", "aten::histogram",
      "aten::_histogramdd_bin_edges", "aten::_histogramdd_from_bin_tensors", "aten::_histogramdd_from_bin_cts",
      "aten::argwhere", "aten::multinomial")  # fmt: skip
def data_dependent(call: Call) -> list[Dims]:
    """Operators whose result size depends on the data; `nonzero` of a vector gives chosen indices."""
    if call.name == "nonzero" and call["self"].dim() == 1:
        call.choose(call.output, call.axes(call["self"])[0])
        return [call.frozen_all(call.output.shape, "chosen by the data")]
    for node in call.inputs:
        call.freeze_all(call.axes(node), "chosen by the data")
    return [call.frozen_all(node.shape, "chosen by the data") for node in call.results]


@rule("aten::_local_scalar_dense", "aten::equal", "aten::allclose", "aten::is_nonzero", "aten::_assert_async",
      "aten::_assert_tensor_metadata", "aten::_functional_assert_async")  # fmt: skip
def python_read(call: Call) -> list[Dims]:
    """Python reads one figure; whatever made it has had its say, but for an index that the next call selects by."""
    if call.name == "_local_scalar_dense" and call.follow_python_index(call.inputs[0]):
        return []
    for node in call.inputs:
        call.freeze_all(call.axes(node), "read by Python code")
    return [call.frozen_all(node.shape, "read by Python code") for node in call.results]


# -------------------- Axis rules of Fourier transforms: transformed dimensions are frozen


TRANSFORMED = "transformed in order"


@rule("aten::_fft_r2c", "aten::_fft_c2r", "aten::_fft_c2c")
def fft(call: Call) -> Dims:
    """Transformed dimensions are frozen in input and result, the others unify."""
    dims = call.axes(call["self"])
    walked: set[int] = {at % len(dims) for at in call["dim"]}
    call.freeze_all([dims[at] for at in walked], TRANSFORMED)
    return [
        call.frozen(size, TRANSFORMED) if at in walked else term
        for at, (term, size) in enumerate(zip(dims, call.output.shape, strict=True))
    ]
