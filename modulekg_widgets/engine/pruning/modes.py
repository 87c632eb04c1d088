"""The pass that a plan is made on: what train mode alone reads, such as auxiliary classifiers, is cut along."""

from __future__ import annotations

import logging

from modulekg_widgets.engine.axes.graph import DataflowGraph, trace
from modulekg_widgets.engine.errors import ModuleKGError

log = logging.getLogger("modulekg_widgets")


def widest(graph: DataflowGraph) -> DataflowGraph:
    """The graph, or that of the same call in train mode where this reads more parameters."""
    left_out = _parameters_left_out(graph)
    if not left_out or graph.training:
        return graph
    try:
        wider = trace(graph.model, *graph.call, training=True)
    except ModuleKGError as error:
        # a detector wants targets, batch normalisation more than one value: then the traced pass is all there is
        log.debug("no pass in train mode: %s", error)
        return graph
    return wider if _parameters_left_out(wider) < left_out else graph


def _parameters_left_out(graph: DataflowGraph) -> int:
    return sum(node.is_parameter for node in graph.unread)
