"""One forward pass for a widget; an error in it is news to show, not an error of the widget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modulekg_widgets.engine.errors import ModuleKGError
from modulekg_widgets.engine.views.payload import text

if TYPE_CHECKING:
    from modulekg_widgets.engine.identity.hierarchy import Hierarchy


def add_trace(payload: dict[str, Any], hierarchy: Hierarchy, model: Any, args: Any, kwargs: Any) -> None:
    """Trace the model and write what was found into its payload; `payload["error"]` says why there is not more."""
    from modulekg_widgets.engine.axes.graph import trace
    from modulekg_widgets.engine.views.dataflow_payload import add_dataflow

    try:
        graph: Any = trace(model, args, kwargs)
    except ModuleKGError as error:
        payload["error"] = text(str(error))
        graph = getattr(error, "graph", None)
    if graph is not None and (graph.operators or not payload["error"]):
        try:
            add_dataflow(payload, hierarchy, graph)
        except ModuleKGError as error:  # what a user told of an operator of their own
            payload["error"] = text(str(error))
