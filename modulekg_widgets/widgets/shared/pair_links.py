"""Links between two widgets: a shared trait, or a coloring; closed with either of them."""

from __future__ import annotations

import contextlib
import sys
import weakref
from typing import Any

from ipywidgets import jslink
from traitlets import Bunch

from modulekg_widgets.engine.errors import ModuleKGError
from modulekg_widgets.widgets.shared.base import ModuleKGWidget


def _is_linked_in_page(widget: ModuleKGWidget, name: str) -> bool:
    """True if a change came from a page, whose own links forward it.

    Colab makes a page of each output, without the links of others: there the kernel passes on.
    """
    return name in widget._property_lock and "google.colab" not in sys.modules


class PairLink:
    """Link of two widgets, until it or one of them is closed."""

    name = ""

    def __init__(self, one: ModuleKGWidget, other: ModuleKGWidget) -> None:
        self._pair = weakref.ref(one), weakref.ref(other)
        for widget in (one, other):
            links_of(widget).append(self)

    @property
    def widgets(self) -> list[ModuleKGWidget]:
        """Returns the widgets that still exist."""
        return [widget for reference in self._pair if (widget := reference()) is not None]

    def close(self) -> None:
        """Close the link; the widgets stay."""
        for widget in self.widgets:
            links_of(widget).remove(self)
        self._pair = ()


class SharedTrait(PairLink):
    """Link that keeps one trait of two widgets equal, on the page and in the kernel.

    What comes from the page is left to the page: the kernel may hear it late, and would send it back as news.
    """

    def __init__(self, name: str, one: ModuleKGWidget, other: ModuleKGWidget) -> None:
        self.name = name
        super().__init__(one, other)
        first, second = (other, one) if getattr(one, name) is None else (one, other)
        self._set(second, getattr(first, name))
        self._in_page = jslink((one, name), (other, name))
        for widget in (one, other):
            widget.observe(self._changed, name)

    def close(self) -> None:
        self._in_page.close()
        for widget in self.widgets:
            widget.unobserve(self._changed, self.name)
        super().close()

    def _changed(self, change: Bunch) -> None:
        owner = change["owner"]
        if _is_linked_in_page(owner, self.name):
            return
        for other in self.widgets:
            if other is not owner:
                self._set(other, change["new"])

    def _set(self, widget: ModuleKGWidget, value: object) -> None:
        with contextlib.suppress(ModuleKGError):  # a module or axis that this widget's model or run lacks
            setattr(widget, self.name, value)


class PrunedShare(PairLink):
    """Link that colors a graph by the share of each module that an editor drops; computed on the page."""

    name = "pruned"

    def __init__(self, editor: Any, graph: Any) -> None:
        super().__init__(editor, graph)
        editor.graphs = [*editor.graphs, graph]

    def close(self) -> None:
        if len(self.widgets) == 2:
            editor, graph = self.widgets
            editor.graphs = [other for other in editor.graphs if other is not graph]  # type: ignore[attr-defined]
        super().close()


class SharedStructure(PairLink):
    """Link of the selections of an explorer (a fingerprint) and a graph (the first path with it).

    The page translates what is clicked (js/src/widgets/linked_models.ts), the kernel what Python sets.
    """

    name = "structure"

    def __init__(self, explorer: Any, graph: Any) -> None:
        super().__init__(explorer, graph)
        if explorer.selected is not None:
            self._select_in_graph(explorer, graph)
        elif graph.selected is not None:
            self._select_in_explorer(explorer, graph)
        explorer.graphs = [*explorer.graphs, graph]
        for widget in (explorer, graph):
            widget.observe(self._changed, "selected")

    def close(self) -> None:
        for widget in self.widgets:
            widget.unobserve(self._changed, "selected")
        if len(self.widgets) == 2:
            explorer, graph = self.widgets
            explorer.graphs = [other for other in explorer.graphs if other is not graph]  # type: ignore[attr-defined]
        super().close()

    def _changed(self, change: Bunch) -> None:
        owner = change["owner"]
        if _is_linked_in_page(owner, "selected") or len(self.widgets) < 2:
            return
        explorer, graph = self.widgets
        (self._select_in_graph if owner is explorer else self._select_in_explorer)(explorer, graph)

    def _select_in_graph(self, explorer: Any, graph: Any) -> None:
        key = explorer.selected
        digest = key if key is None else explorer._root_of(key) or key
        if digest is not None and digest != graph._fingerprint_of(graph.selected):
            path = graph._path_of(digest)
            if path is not None:
                graph.selected = path

    def _select_in_explorer(self, explorer: Any, graph: Any) -> None:
        digest = graph._fingerprint_of(graph.selected)
        if digest is not None and digest != (explorer._root_of(explorer.selected) or explorer.selected):
            with contextlib.suppress(ModuleKGError):  # the graph of models does not know this structure
                explorer.selected = digest


def links_of(widget: ModuleKGWidget) -> list[PairLink]:
    """Returns the links of a widget, which are closed with it."""
    return vars(widget).setdefault("_links", [])


def link_pair(name: str, one: ModuleKGWidget, other: ModuleKGWidget) -> PairLink:
    """Link a trait of two widgets, or return the existing link."""
    for link in links_of(one):
        if link.name == name and other in link.widgets:
            return link
    kinds = {PrunedShare.name: PrunedShare, SharedStructure.name: SharedStructure}
    return kinds[name](one, other) if name in kinds else SharedTrait(name, one, other)
