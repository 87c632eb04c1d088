"""Workbench: graph, mask editor, metric panel and knowledge explorer of one model, linked."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING

from ipywidgets import widget_serialization
from traitlets import Bunch, Dict, Instance, Unicode, validate

from modulekg_widgets.engine.errors import UnknownNameError, closest_match_hint, printable
from modulekg_widgets.engine.views.pictures.shapes import Picture
from modulekg_widgets.widgets.knowledge_explorer import KnowledgeExplorer
from modulekg_widgets.widgets.linking import link
from modulekg_widgets.widgets.mask_editor.mask_editor import MaskEditor
from modulekg_widgets.widgets.metric_panel.metric_panel import MetricPanel
from modulekg_widgets.widgets.model_graph.model_graph import ModelGraph
from modulekg_widgets.widgets.shared.base import ModuleKGWidget, WidgetValueError, check_keywords
from modulekg_widgets.widgets.shared.pair_links import PrunedShare

if TYPE_CHECKING:
    from torch import nn

    from modulekg_widgets.widgets.metric_panel.metric_panel import Source

KEYWORDS = ("args", "kwargs", "monitor", "kg", "optimizer", "batches", "loss", "evaluate", "split")
PARTS = ("graph", "editor", "panel", "explorer")
DEFAULT_SPLIT = {"rows": 0.5, "columns": 0.6}  # the share of the graph above, and of the editor beside the panel
MIN_SHARE = 0.1


class Workbench(ModuleKGWidget):
    """A `ModelGraph`, a `MaskEditor` and a `MetricPanel` of one model that share what is chosen: `Workbench(model, x)`.

    Parameters
    ----------
    model : torch.nn.Module
        What all parts show.
    args, kwargs : optional
        What its forward takes.
    monitor : Monitor, Recording, str, Path, or several of them, optional
        What the `MetricPanel` shows; without it there is none.
    kg : KnowledgeGraph, optional
        What a `KnowledgeExplorer` shows; without it there is none.
    optimizer : torch.optim.Optimizer, optional
        Its state is cut along.
    batches, loss, evaluate
        Of the editor: data for sensitivity and new statistics, and a function that judges the model, as in
        `mk.MaskEditor`.
    split : dict, optional
        What the attribute starts with.
    layout : ipywidgets.Layout or dict, optional
        Size and margins in the page.
    **unknown
        Refused: a keyword that there is not.

    Attributes
    ----------
    graph, editor, panel, explorer
        The parts; `panel` and `explorer` may be None.
    split : dict
        The shares of the page, {"rows": 0.1 … 0.9, "columns": 0.1 … 0.9}: of the graph above, and of the editor beside
        the panel. It can be set at any time, here and in the browser.

    Raises
    ------
    UnknownKeywordError, UnknownNameError, WidgetValueError
        And what the parts raise: nothing is left of a workbench that cannot be made.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> bench = mk.Workbench(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.zeros(1, 4))
    >>> bench.graph.selected = "2"
    >>> bench.editor.selected
    '2'
    >>> bench.close()
    """

    _model_name = Unicode("WorkbenchModel").tag(sync=True)
    _view_name = Unicode("WorkbenchView").tag(sync=True)

    graph = Instance(ModelGraph).tag(sync=True, **widget_serialization)
    editor = Instance(MaskEditor).tag(sync=True, **widget_serialization)
    panel = Instance(MetricPanel, allow_none=True).tag(sync=True, **widget_serialization)
    explorer = Instance(KnowledgeExplorer, allow_none=True).tag(sync=True, **widget_serialization)
    split = Dict().tag(sync=True)

    def __init__(
        self,
        model: nn.Module,
        args: object = (),
        kwargs: Mapping[str, object] | None = None,
        monitor: Source | Iterable[Source] | None = None,
        *,
        kg: object = None,
        optimizer: object = None,
        batches: Iterable[object] | None = None,
        loss: Callable[..., object] | None = None,
        evaluate: Callable[..., object] | None = None,
        split: Mapping[str, float] | None = None,
        layout: object = None,
        **unknown: object,
    ) -> None:
        check_keywords("Workbench", unknown, KEYWORDS)
        parts: dict[str, ModuleKGWidget | None] = {}
        try:
            parts["editor"] = MaskEditor(
                model, args, kwargs, optimizer=optimizer, batches=batches, loss=loss, evaluate=evaluate
            )
            parts["graph"] = ModelGraph(model, args, kwargs)
            parts["panel"] = None if monitor is None else MetricPanel(monitor)
            parts["explorer"] = None if kg is None else KnowledgeExplorer(kg)
            super().__init__(**parts, split=dict(split or {}), **({} if layout is None else {"layout": layout}))
        except BaseException:
            for part in parts.values():
                if part is not None:
                    part.close()  # nothing is left of a workbench that could not be made
            raise
        link(*self._parts())
        self.graph.color_by = PrunedShare.name  # also beside a panel: as without colors, until something goes

    def __repr__(self) -> str:
        return f"<Workbench: {', '.join(map(repr, self._parts()))}>"

    def _parts(self) -> list[ModuleKGWidget]:
        return [part for name in PARTS if (part := self._trait_values.get(name)) is not None]

    def close(self) -> None:
        """Close the workbench and its parts; monitor, model and knowledge graph stay."""
        parts = self._parts()
        super().close()
        for part in parts:
            part.close()

    @validate("split")
    def _check_split(self, proposal: Bunch) -> dict[str, float]:
        for name, share in proposal["value"].items():
            if name not in DEFAULT_SPLIT:
                raise UnknownNameError(
                    f"there is no split {printable(str(name))!r}: {closest_match_hint(str(name), DEFAULT_SPLIT)}"
                )
            if isinstance(share, bool) or not isinstance(share, int | float) or not MIN_SHARE <= share <= 1 - MIN_SHARE:
                raise WidgetValueError(
                    f"split[{name!r}] is a share of {MIN_SHARE} … {1 - MIN_SHARE}: got {printable(repr(share))}"
                )
        return {**DEFAULT_SPLIT, **proposal["value"]}

    def _picture_state(self) -> Hashable:
        return self.graph._picture_state()

    def _static_picture(self) -> Picture | None:
        return self.graph._static_picture()
