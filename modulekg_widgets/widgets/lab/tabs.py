"""What JupyterLab's commands run in a notebook's kernel: show one object in a tab, and forget it with the tab."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from modulekg_widgets.engine.errors import ModuleKGError

if TYPE_CHECKING:
    from modulekg_widgets.widgets.shared.base import ModuleKGWidget

# by the tab: the widget that it shows, and the object that this was made for
_tabs: dict[str, tuple[weakref.ref[ModuleKGWidget], weakref.ref[Any]]] = {}


class NothingShownError(ModuleKGError, LookupError):
    """A tab that shows nothing yet, or something else."""


def show_graph(model: Any, tab: str) -> None:
    """Display the explorer of `model` in `tab`; raises what `ModelGraph` raises."""
    from modulekg_widgets.widgets.model_graph.model_graph import ModelGraph

    _show(ModelGraph(model), model, tab)


def show_masks(model: Any, tab: str, args: Any) -> None:
    """Display the mask editor of `model`, whose forward takes `args`, in `tab`; raises what `MaskEditor` raises."""
    from modulekg_widgets.widgets.mask_editor.mask_editor import MaskEditor

    _show(MaskEditor(model, args), model, tab)


def show_panel(run: Any, tab: str) -> None:
    """Display the values of a monitor or a recorded run in `tab`; raises what `MetricPanel` raises."""
    from modulekg_widgets.widgets.metric_panel.metric_panel import MetricPanel

    _show(MetricPanel(run), run, tab)


def show_plan(plan: Any, tab: str) -> None:
    """Display a plan as its table in `tab`."""
    from IPython.display import display

    close(tab)
    display(plan)


def show_again(value: Any, tab: str) -> None:
    """Display what `tab` has shown of `value` before the page was loaded anew, as it was left.

    Raises `NothingShownError` when that is not there any more.
    """
    from IPython.display import display

    widget, shown = (reference() for reference in _tabs[tab]) if tab in _tabs else (None, None)
    if widget is None or shown is not value or widget.comm is None:
        raise NothingShownError("this tab has not shown the object before: show it anew")
    display(widget)


def close(tab: Any) -> None:
    """Close what `tab` shows; nothing happens where there is none."""
    if isinstance(tab, str) and tab in _tabs:
        widget = _tabs.pop(tab)[0]()
        if widget is not None:
            widget.close()


def _show(widget: ModuleKGWidget, value: Any, tab: str) -> None:
    from IPython.display import display

    close(tab)
    _tabs[tab] = weakref.ref(widget), weakref.ref(value)
    display(widget)
