"""What joins a MetricPanel to a ModelGraph: the selection, both ways, and colours by the latest values."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ipywidgets import jslink

from modulekg_widgets.engine.errors import UnknownPathError

if TYPE_CHECKING:
    from modulekg_widgets.widgets.metric_panel import MetricPanel
    from modulekg_widgets.widgets.model_graph import ModelGraph

PERIOD = 0.5  # seconds between two changes of the colours


class Selection:
    """`selected` of a panel and of a graph: joined in the page, and in the kernel for what Python sets.

    What comes from the page is left to the page: the kernel may hear it late, and would send it back as news.
    """

    def __init__(self, panel: MetricPanel, graph: ModelGraph) -> None:
        self._panel, self._graph = weakref.ref(panel), weakref.ref(graph)
        if graph.selected is None:
            self._select(graph, panel.selected)
        else:
            self._select(panel, graph.selected)
        self._in_page = jslink((graph, "selected"), (panel, "selected"))
        graph.observe(self._graph_changed, "selected")
        panel.observe(self._panel_changed, "selected")

    @property
    def graph(self) -> ModelGraph | None:
        return self._graph()

    def close(self) -> None:
        self._in_page.close()
        for widget, handler in ((self._graph(), self._graph_changed), (self._panel(), self._panel_changed)):
            if widget is not None:
                widget.unobserve(handler, "selected")

    def _graph_changed(self, change: Any) -> None:
        self._follow(change, self._panel())

    def _panel_changed(self, change: Any) -> None:
        self._follow(change, self._graph())

    def _follow(self, change: Any, other: Any) -> None:
        is_from_page = "selected" in change["owner"]._property_lock
        if other is not None and not is_from_page:
            self._select(other, change["new"])

    def _select(self, widget: Any, path: str | None) -> None:
        with contextlib.suppress(UnknownPathError):  # the run has a module that this model lacks
            widget.selected = path


class Colouring:
    """A graph that is coloured by a metric."""

    def __init__(self, graph: ModelGraph, metric: str | None, phase: str) -> None:
        self._graph = weakref.ref(graph)
        self.metric, self.phase = metric, phase
        self._known: dict[str, bool] = {}
        self._set_at = 0.0

    @property
    def graph(self) -> ModelGraph | None:
        """The graph, until it is closed."""
        graph = self._graph()
        return None if graph is None or graph.comm is None else graph

    def update(self, latest: Callable[[Colouring], dict[str, float]]) -> None:
        """Colour the graph anew where values have changed, at most twice a second."""
        graph, now = self.graph, time.monotonic()
        if graph is None or now - self._set_at < PERIOD:
            return
        self._set_at = now
        values = {path: value for path, value in latest(self).items() if self._is_known(graph, path)}
        if not _are_equal(values, graph.overlay):
            graph.overlay = values

    def _is_known(self, graph: ModelGraph, path: str) -> bool:
        if path not in self._known:
            try:
                graph._known_path(path)
                self._known[path] = True
            except UnknownPathError:
                self._known[path] = False
        return self._known[path]


def _are_equal(one: dict[str, float], other: dict[str, Any]) -> bool:
    """Whether two overlays are the same, a NaN being the same as a NaN."""
    return one.keys() == other.keys() and all(
        a == other[k] or (a != a and other[k] != other[k]) for k, a in one.items()
    )
