"""The loss of a model without many indices at once: measured, where a sum of what single ones cost is an estimate."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.cut_analysis import Keeps
from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.errors import CutError, TraceError, shown
from modulekg_widgets.engine.pruning.importance.calibration import length_of, parameters_with_data
from modulekg_widgets.engine.pruning.sensitivity.removal import Pass, Removal
from modulekg_widgets.engine.pruning.sensitivity.sensitivity import loss_of, passes_of_batches

Dropped = Mapping[str, Sequence[int]]  # by the names of the axes
LossSteps = Generator[tuple[int, int | None], None, list[float]]


def masked_losses(
    graph: DataflowGraph, batches: Iterable[Any], loss: Callable[..., Any], drops: Sequence[Dropped]
) -> LossSteps:
    """The mean loss over batches of the model as it is, and then without each of `drops`; nothing is changed.

    Indices that go are zero wherever they are made, and norms over all of a dimension leave them out: the model gives
    what a cut that renews no statistics leaves, but for numbers that its code computes from sizes. It runs in eval
    mode. After each pass comes how many are done, and of how many, None where the batches have no length. Raises
    `CutError` for batches that do not fit or are none, and a loss that gives no finite number.
    """
    parameters_with_data(graph, "the loss")
    sums, count, done = np.zeros(1 + len(drops)), 0, 0
    length = length_of(batches)
    total = None if length is None else length * len(sums)
    for own, call, target in passes_of_batches(graph, batches, loss):
        which = f"batch {count}"
        count += 1
        try:
            whole = Pass(own.axes, *call)
        except TraceError as error:
            raise CutError(f"{which} cannot be followed: {shown(str(error), 300)}") from error
        removal = Removal(own.axes, whole)
        for at, dropped in enumerate([{}, *drops]):
            keeps = _keeps(own.axes, dropped)
            output = removal.output(keeps) if keeps else whole.output
            sums[at] += loss_of(loss, output, target, f"{which} without what goes" if keeps else which)
            done += 1
            yield done, total
    if not count:
        raise CutError("the batches are empty: pass a list or a DataLoader, for a generator gives its items once")
    return (sums / count).tolist()


def _keeps(axes: Axes, dropped: Dropped) -> Keeps:
    """Which indices stay; an axis that the pass does not have, as one of train mode alone, has no say in it."""
    found: Keeps = {}
    for name, indices in dropped.items():
        axis = axes.named(name)
        if axis is not None and len(indices):
            if max(indices) >= axis.size:
                raise CutError(f"{shown(name)} has {axis.size} indices in a batch: index {max(indices)} is none")
            found[axis.term] = ~np.isin(np.arange(axis.size), list(indices))
    return found
