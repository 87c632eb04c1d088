"""What a MetricPanel makes of a ModelGraph: colors by the latest values."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from modulekg_widgets.engine.errors import UnknownPathError

if TYPE_CHECKING:
    from modulekg_widgets.widgets.model_graph.model_graph import ModelGraph

PERIOD = 0.5  # seconds between two changes of the colors


class Coloring:
    """A graph that is colored by a metric."""

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

    def update(self, latest: Callable[[Coloring], dict[str, float]]) -> None:
        """Color the graph anew where values have changed, at most twice a second."""
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
