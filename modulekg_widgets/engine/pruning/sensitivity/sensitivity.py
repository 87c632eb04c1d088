"""Sensitivity analysis: the rise of a loss when each index of each axis is removed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from tqdm.auto import tqdm

from modulekg_widgets.engine.axes.axis import Axes, Axis
from modulekg_widgets.engine.axes.cut_analysis import KeepMasks
from modulekg_widgets.engine.axes.graph import DataflowGraph, trace
from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.errors import CutError, TraceError, a_type, printable
from modulekg_widgets.engine.pruning.importance.calibration import (
    NO_TARGET,
    Call,
    batch_count,
    check_batches,
    check_samples,
    finite_loss,
    inputs_and_target,
    parameters_with_data,
)
from modulekg_widgets.engine.pruning.plan.selection.axis_choice import AxisChoice
from modulekg_widgets.engine.pruning.sensitivity.index_removal import IndexRemoval, RecordedRun
from modulekg_widgets.engine.torch_runtime.pytree import input_tensors, with_tensors
from modulekg_widgets.engine.torch_runtime.rng import with_isolated_rng

if TYPE_CHECKING:
    from matplotlib.axes import Axes as PlotAxes

Loss = Callable[..., object]
Steps = Generator[tuple[int, int | None], None, pd.DataFrame]  # after each how many are done, and of how many
MAX_LEGEND_ENTRIES = 12  # lines that a legend tells apart


def sensitivity(
    graph: DataflowGraph, batches: Iterable[object], loss: Loss, axes: Iterable[Axis | str] | None = None
) -> pd.DataFrame:
    """The rise of a loss when each index of the axes is removed, one at a time.

    The loss is computed, not estimated: of the recorded pass only the operators that depend on the index run again.
    The model runs in eval mode.

    Parameters
    ----------
    graph : DataflowGraph
        What `mk.trace` gave.
    batches : iterable
        Each is what the model takes, or a pair of that and a target. The time is that of about half of a forward
        pass an index and batch, so that few batches serve best.
    loss : function
        `loss(output, target)` or `loss(output)`, a mean over the samples.
    axes : iterable of Axis or str, optional
        Free axes or their names, by default all free ones.

    Returns
    -------
    DataFrame
        One row an index, with the columns `axis` (its name), `index` and `increase` (of the mean loss over batches,
        below zero where the model is better without it). `mk.pruning.plot_sensitivity` draws it.

    Raises
    ------
    CutError
        For batches that do not fit or are none, and a loss that gives no finite number.
    UnknownAxisError
        For an axis that does not exist.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> batches = [(torch.randn(3, 4), torch.tensor([0, 1, 1]))]
    >>> table = mk.pruning.sensitivity(mk.trace(model, torch.randn(3, 4)), batches, nn.functional.cross_entropy)
    >>> list(table.columns), len(table)
    (['axis', 'index', 'increase'], 8)
    """
    steps = sensitivity_steps(graph, batches, loss, axes)
    with tqdm(desc="sensitivity", unit="index", delay=2, leave=False) as bar:
        while True:
            try:
                done, bar.total = next(steps)
            except StopIteration as end:
                return end.value
            bar.update(done - bar.n)


def sensitivity_steps(
    graph: DataflowGraph, batches: Iterable[object], loss: Loss, axes: Iterable[Axis | str] | None = None
) -> Steps:
    """The sensitivity as a generator of steps, with the table as its result.

    A step removes one index in one batch: after each comes how many are done, and of how many, None where the batches
    have no length.
    """
    chosen = _selected_axes(graph, axes)
    rises = {axis: np.zeros(axis.size) for axis in chosen}
    size = sum(axis.size for axis in chosen)
    length = batch_count(batches)
    total = None if length is None else size * length
    count = done = 0
    for own, call, target in trace_batches(graph, batches, loss):
        count += 1
        for axis, index, increase in _increases(own, chosen, call, target, loss, f"batch {count - 1}"):
            rises[axis][index] += increase
            done += 1
            yield done, total
    if not count:
        raise CutError("the batches are empty: pass a list or a DataLoader, because a generator yields its items once")
    return pd.DataFrame({
        "axis": np.repeat([axis.name for axis in chosen], [axis.size for axis in chosen]),
        "index": np.concatenate([np.arange(axis.size) for axis in chosen]) if chosen else np.empty(0, dtype=np.int64),
        "increase": np.concatenate([rises[axis] / count for axis in chosen]) if chosen else np.empty(0),
    })  # fmt: skip


def _selected_axes(graph: object, wanted: Iterable[Axis | str] | None) -> list[Axis]:
    if not isinstance(graph, DataflowGraph):
        raise CutError(f"sensitivity is of a traced graph, got {printable(type(graph).__name__)}: pass mk.trace(…)")
    parameters_with_data(graph, "sensitivity")
    if wanted is None:
        return list(graph.axes.free)
    named = AxisChoice(graph.axes, "index").resolve(wanted)
    frozen = next((axis for axis in named if axis.frozen is not None), None)
    if frozen is not None:
        raise CutError(f"{printable(frozen.name)} cannot be cut: {printable(str(frozen.frozen), 300)}")
    return named


def trace_batches(
    graph: DataflowGraph, batches: Iterable[object], loss: Loss
) -> Iterator[tuple[DataflowGraph, Call, object]]:
    """Each batch with a trace in its shapes."""
    check_batches(batches)
    if not isinstance(batches, Iterable):
        raise CutError(f"batches= is {a_type(batches)}: pass a list of batches or a DataLoader")
    # one that left the mode to the model may be of a pass in train mode
    known: dict[object, DataflowGraph] = {_shapes(graph, graph.call): graph} if graph.training is False else {}
    for number, batch in enumerate(with_isolated_rng(batches)):
        call, target = inputs_and_target(batch, graph, loss)
        check_samples(call, f"batch {number}")
        shapes = _shapes(graph, call)
        if shapes not in known or known[shapes].data_dependent:
            try:
                known[shapes] = trace(graph.model, *call, training=False)
            except TraceError as error:
                name = printable(type(graph.model).__name__)
                raise CutError(f"batch {number} does not go through {name}: {printable(str(error), 300)}") from error
        yield known[shapes], call, target


def _shapes(graph: DataflowGraph, call: Call) -> object:
    try:
        return tuple((name, tuple(tensor.shape), tensor.dtype) for name, tensor in input_tensors(graph.model, *call))
    except (TypeError, TraceError) as error:
        raise CutError(f"a batch does not fit forward: {printable(str(error), 300)}") from error


def _increases(
    own: DataflowGraph, chosen: list[Axis], call: Call, target: object, loss: Loss, which: str
) -> Iterator[tuple[Axis, int, float]]:
    axes: Axes = own.axes
    try:
        whole = RecordedRun(axes, *call)
    except TraceError as error:
        raise CutError(f"{which} cannot be followed: {printable(str(error), 300)}") from error
    before = compute_loss(loss, whole.output, target, which)
    removal = IndexRemoval(axes, whole)
    same = AxisChoice(axes, "index")
    for axis in chosen:
        terms: list[Term] = [each.term for each in same.resolve(axis) if each.size == axis.size]
        for index in range(axis.size):
            keeps = {term: np.arange(axis.size) != index for term in terms[:1]}
            without = f"{which} without index {index} of {printable(axis.name)}"
            yield axis, index, compute_loss(loss, removal.output(keeps), target, without) - before if keeps else 0.0


def compute_loss(loss: Loss, output: object, target: object, which: str) -> float:
    """The loss as a finite number; raises `CutError` otherwise."""
    given = () if target is NO_TARGET else (target,)
    try:
        with torch.no_grad():  # copies, for a loss may write into what it gets
            value = loss(*(with_tensors(each, lambda tensor: tensor.detach().clone()) for each in (output, *given)))
    except Exception as error:  # whatever a user's function raises
        raise CutError(
            f"the loss stopped on the output of {which}: {type(error).__name__}: {printable(str(error), 300)}; it is "
            f"called as loss(output{', target' if given else ''})"
        ) from error
    return finite_loss(value, which)


def plot_sensitivity(table: pd.DataFrame, ax: PlotAxes | None = None) -> PlotAxes:
    """Plot the loss increase over the share of removed indices, the cheapest first.

    The rises of single indices are added up, which is an estimate of what they cost together.

    Parameters
    ----------
    table : DataFrame
        What `mk.pruning.sensitivity` gave.
    ax : matplotlib.axes.Axes, optional
        Where to draw, by default a new figure of pyplot.

    Returns
    -------
    matplotlib.axes.Axes
        With one line an axis: the share of its indices that is gone, and the loss increase.

    Raises
    ------
    CutError
        For another table.

    Examples
    --------
    >>> import pandas as pd
    >>> import modulekg_widgets as mk
    >>> table = pd.DataFrame({"axis": ["0.out"] * 2, "index": [0, 1], "increase": [0.1, 0.3]})
    >>> mk.pruning.plot_sensitivity(table).get_ylabel()
    'loss increase'
    """
    from matplotlib import pyplot  # whose figures a notebook shows by itself

    missing = [name for name in ("axis", "index", "increase") if name not in getattr(table, "columns", ())]
    if missing:
        raise CutError(f"the table has no column {missing[0]!r}: pass what mk.pruning.sensitivity gave")
    ax = pyplot.figure(layout="constrained").add_subplot() if ax is None else ax
    lines = []
    for name, part in table.groupby("axis", sort=False)["increase"]:
        rises = np.sort(part.to_numpy())
        costs = np.concatenate([[0.0], np.cumsum(rises)])
        lines += ax.plot(np.arange(len(rises) + 1) / len(rises), costs, label=str(name))
    ax.set_xlabel("share of removed channels")
    ax.set_ylabel("loss increase")
    if 0 < len(lines) <= MAX_LEGEND_ENTRIES:
        beside = {"loc": "upper left", "bbox_to_anchor": (1.02, 1.0), "borderaxespad": 0.0}
        legend = ax.legend(lines, [" "] * len(lines), fontsize="small", **beside)
        for text, line in zip(legend.get_texts(), lines, strict=True):
            text.set(text=line.get_label(), parse_math=False)  # names are any text, also such as begin with "_"
    return ax


# -------------------- The measured loss of a model without many indices at once


DroppedIndices = Mapping[str, Sequence[int]]  # by the names of the axes
LossSteps = Generator[tuple[int, int | None], None, list[float]]


def masked_losses(
    graph: DataflowGraph, batches: Iterable[object], loss: Loss, drops: Sequence[DroppedIndices]
) -> LossSteps:
    """The mean loss over batches of the whole model, then without each of `drops`; nothing is changed.

    Indices that go are zero wherever they are made, and norms over all of a dimension leave them out: the model gives
    what a cut that renews no statistics leaves, but for numbers that its code computes from sizes. It runs in eval
    mode. After each pass comes how many are done, and of how many, None where the batches have no length. Raises
    `CutError` for batches that do not fit or are none, and a loss that gives no finite number.
    """
    parameters_with_data(graph, "the loss")
    sums, count, done = np.zeros(1 + len(drops)), 0, 0
    length = batch_count(batches)
    total = None if length is None else length * len(sums)
    for own, call, target in trace_batches(graph, batches, loss):
        which = f"batch {count}"
        count += 1
        try:
            whole = RecordedRun(own.axes, *call)
        except TraceError as error:
            raise CutError(f"{which} cannot be followed: {printable(str(error), 300)}") from error
        removal = IndexRemoval(own.axes, whole)
        for at, dropped in enumerate([{}, *drops]):
            keeps = _keep_masks(own.axes, dropped)
            output = removal.output(keeps) if keeps else whole.output
            sums[at] += compute_loss(loss, output, target, f"{which} without the removed indices" if keeps else which)
            done += 1
            yield done, total
    if not count:
        raise CutError("the batches are empty: pass a list or a DataLoader, because a generator yields its items once")
    return (sums / count).tolist()


def _keep_masks(axes: Axes, dropped: DroppedIndices) -> KeepMasks:
    """The masks of remaining indices; axes that the trace does not have are ignored."""
    found: KeepMasks = {}
    for name, indices in dropped.items():
        axis = axes.find_by_name(name)
        if axis is not None and len(indices):
            if max(indices) >= axis.size:
                raise CutError(f"{printable(name)} has {axis.size} indices in a batch: index {max(indices)} is none")
            found[axis.term] = ~np.isin(np.arange(axis.size), list(indices))
    return found
