"""The pass that a plan is made on: what train mode alone reads, as auxiliary classifiers and averages, is cut along."""

from __future__ import annotations

import logging
from typing import NamedTuple

from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.errors import ModuleKGError
from modulekg_widgets.engine.residuals.removal import NOTHING_REMOVED
from modulekg_widgets.engine.residuals.trial import traced_again
from modulekg_widgets.engine.torch_runtime.rng import is_drawn
from modulekg_widgets.engine.tracing.dataflow import Wanted, output_names
from modulekg_widgets.engine.tracing.trace import REAL

SEEDS = 8  # a model that leaves layers out at random shows all of them sooner or later
log = logging.getLogger("modulekg_widgets")


def widest(graph: DataflowGraph) -> DataflowGraph:
    """The graph, or that of the same call in train mode where this reads more of what the model holds.

    A pass that goes a random way is traced once more from a seed, so that a dry run can go the same way.
    """
    fewest = _left_out(graph)
    unseeded = graph.traced_on == REAL and graph.seed is None and _is_random(graph)
    if not unseeded and (fewest == NOTHING or graph.training):
        return graph
    training = graph.training if fewest == NOTHING else True
    fewest = fewest._replace(parameters=fewest.parameters + unseeded)  # one that leaves out as many will do
    found = graph
    for seed in range(SEEDS):
        try:
            wider = traced_again(graph, graph.removal or NOTHING_REMOVED, training, seed)
        except ModuleKGError as error:
            # a detector wants targets, batch normalisation more than one value: then the traced pass is all there is
            log.debug("no pass from seed %d: %s", seed, error)
            return graph
        wider.wanted, wider.notes = _counted_in(wider, graph), graph.notes
        left_out = _left_out(wider)
        if left_out < fewest:
            found, fewest = wider, left_out
        if not left_out.parameters or not _is_random(wider):
            break
    return found


def _counted_in(wider: DataflowGraph, graph: DataflowGraph) -> Wanted | None:
    """The outputs that count in another mode: all but those that follow a cut in the pass that was asked for."""
    if not graph.wanted:
        return graph.wanted  # the usual ones, or none
    return [name for name in output_names(wider.result) if name not in graph.following]


def _is_random(graph: DataflowGraph) -> bool:
    """Whether forward draws random numbers: it may leave whole layers out at random."""
    return any(is_drawn(operator.overload) for operator in graph.operators)


class _LeftOut(NamedTuple):
    """How many parameters a pass does not read, and how many buffers of values, which train mode may keep up."""

    parameters: int
    buffers: int


NOTHING = _LeftOut(0, 0)


def _left_out(graph: DataflowGraph) -> _LeftOut:
    buffers = (node for node in graph.unread if node.is_buffer and node.dtype.is_floating_point)
    return _LeftOut(
        sum(node.is_parameter for node in graph.unread), sum(max(node.shape, default=1) > 1 for node in buffers)
    )
