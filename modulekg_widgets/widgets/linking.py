"""`mk.link`: shared selection, axis, draft and colors of the widgets of one model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from modulekg_widgets.engine.errors import a_type
from modulekg_widgets.widgets.knowledge_explorer import KnowledgeExplorer
from modulekg_widgets.widgets.mask_editor.mask_editor import MaskEditor
from modulekg_widgets.widgets.metric_panel.metric_panel import MetricPanel
from modulekg_widgets.widgets.model_graph.model_graph import ModelGraph
from modulekg_widgets.widgets.shared.base import ModuleKGWidget, WidgetValueError
from modulekg_widgets.widgets.shared.pair_links import PairLink, PrunedShare, SharedStructure, link_pair

SHARED = ("selected", "axis")


class Link:
    """Links made by `mk.link`; `close()` removes them, and the widgets stay."""

    def __init__(self, links: Iterable[PairLink]) -> None:
        self._links = list(links)

    def close(self) -> None:
        """Close all links."""
        for link in self._links:
            if link.widgets:  # else it went with one of them
                link.close()
        self._links.clear()

    def __repr__(self) -> str:
        return f"<Link of {', '.join(sorted({link.name for link in self._links})) or 'nothing'}>"


def link(*widgets: object) -> Link:
    """Join widgets of one model: a selection in one is a selection in all, and so is an axis.

    With a `ModelGraph` the indices that a `MaskEditor` drops and the values of a `MetricPanel` color it; what the
    editor cuts is cut in the graph as well. A `KnowledgeExplorer` shares its selection with graphs in which the
    structure occurs.

    Parameters
    ----------
    *widgets
        Two or more widgets of this package.

    Returns
    -------
    Link
        `close()` parts the widgets again.

    Raises
    ------
    WidgetValueError
        For fewer than two widgets, and for a widget of another package.

    Examples
    --------
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
    >>> first, second = mk.ModelGraph(model), mk.ModelGraph(model)
    >>> link = mk.link(first, second)
    >>> first.selected = "0"
    >>> second.selected
    '0'
    >>> link.close()
    """
    for widget in widgets:
        if not isinstance(widget, ModuleKGWidget):
            raise WidgetValueError(
                f"link joins widgets of this package, as ModelGraph and MaskEditor: got {a_type(widget)}"
            )
    if len(set(widgets)) < 2:
        raise WidgetValueError(f"link joins two widgets at least: {len(set(widgets))} was passed")
    every: list[Any] = list(dict.fromkeys(widgets))
    graphs = [widget for widget in every if isinstance(widget, ModelGraph)]
    editors = [widget for widget in every if isinstance(widget, MaskEditor)]
    panels = [widget for widget in every if isinstance(widget, MetricPanel)]
    explorers = [widget for widget in every if isinstance(widget, KnowledgeExplorer)]
    links = [link_pair("selected", explorers[0], other) for other in explorers[1:]]
    for name in SHARED:
        # the graph has all modules and axes: what it lacks, the others need not hear of
        able = sorted(
            (w for w in every if w.has_trait(name) and w not in explorers), key=lambda w: not isinstance(w, ModelGraph)
        )
        links += [link_pair(name, able[0], other) for other in able[1:]]
    for graph in graphs:
        links += [link_pair(SharedStructure.name, explorer, graph) for explorer in explorers]
        links += [link_pair(PrunedShare.name, editor, graph) for editor in editors]
        if editors and graph.color_by == "none":
            graph.color_by = PrunedShare.name
        for panel in panels:
            panel.color(graph)
    return Link(links)
