"""Functions that JupyterLab commands run in a kernel: show an object in a tab, and close it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from modulekg_widgets.engine.errors import ModuleKGError

if TYPE_CHECKING:
    from modulekg_widgets.engine.monitoring.run import Run
    from modulekg_widgets.engine.torch_runtime.modules import Model
    from modulekg_widgets.widgets.shared.base import ModuleKGWidget

# by the tab: the widget that it shows, and the object that this was made for
_tabs: dict[str, tuple[weakref.ref[ModuleKGWidget], weakref.ref[object]]] = {}


class NothingShownError(ModuleKGError, LookupError):
    """A tab that shows nothing yet, or another object."""


def show_graph(model: Model, tab: str) -> None:
    """Display a ModelGraph of `model` in `tab`; raises what `ModelGraph` raises."""
    from modulekg_widgets.widgets.model_graph.model_graph import ModelGraph

    _show(ModelGraph(model), model, tab)


def show_masks(model: Model, tab: str, args: object) -> None:
    """Display a MaskEditor of `model` in `tab`; raises what `MaskEditor` raises."""
    from modulekg_widgets.widgets.mask_editor.mask_editor import MaskEditor

    _show(MaskEditor(model, args), model, tab)


def show_panel(run: Run, tab: str) -> None:
    """Display a MetricPanel of a run in `tab`; raises what `MetricPanel` raises."""
    from modulekg_widgets.widgets.metric_panel.metric_panel import MetricPanel

    _show(MetricPanel(run), run, tab)


def show_plan(plan: object, tab: str) -> None:
    """Display a plan as its table in `tab`."""
    from IPython.display import display

    close(tab)
    display(plan)


def show_again(value: object, tab: str) -> None:
    """Display the widget of `tab` again after the page was reloaded, in its present state.

    Raises `NothingShownError` when that is not there any more.
    """
    from IPython.display import display

    references = _tabs.get(tab)
    widget, shown = (None, None) if references is None else (references[0](), references[1]())
    if widget is None or shown is not value or widget.comm is None:
        raise NothingShownError("this tab has not shown the object before: show it again")
    display(widget)


def close(tab: object) -> None:
    """Close the widget of `tab`, if there is one."""
    if isinstance(tab, str) and tab in _tabs:
        widget = _tabs.pop(tab)[0]()
        if widget is not None:
            widget.close()


def _show(widget: ModuleKGWidget, value: object, tab: str) -> None:
    from IPython.display import display

    close(tab)
    _tabs[tab] = weakref.ref(widget), weakref.ref(value)
    display(widget)
