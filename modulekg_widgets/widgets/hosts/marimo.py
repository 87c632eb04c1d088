"""`mk.marimo`: a widget as an anywidget, the kind that marimo shows."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ipywidgets import DOMWidget

from modulekg_widgets.engine.errors import MissingPackageError
from modulekg_widgets.widgets.hosts.live_widget import display_problem
from modulekg_widgets.widgets.shared.base import WidgetValueError

if TYPE_CHECKING:
    from modulekg_widgets.widgets.hosts.live_widget import LiveWidget


def marimo(widget: DOMWidget) -> LiveWidget:
    """Show a widget in marimo, or wherever else anywidgets are shown.

    The widget is the same object as before: what is clicked sets its attributes, and what Python sets is drawn. To
    have marimo run the cells that use it after each click, wrap the result: `view = mo.ui.anywidget(mk.marimo(graph))`,
    and name `view` in those cells.

    Parameters
    ----------
    widget : DOMWidget
        One of this package, or a `Box`, `HBox`, `VBox`, `GridBox` or `Tab` of them.

    Returns
    -------
    LiveWidget
        An anywidget, which displays itself; `close()` takes it away and leaves the widget open.

    Raises
    ------
    WidgetValueError
        For anything else.
    MissingPackageError
        Where anywidget is not installed.

    Examples
    --------
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> graph = mk.ModelGraph(nn.Sequential(nn.Linear(4, 8), nn.ReLU()))
    >>> view = mk.marimo(graph)
    >>> view
    <marimo's ModelGraph>
    >>> view.close()
    """
    if problem := display_problem(widget, ""):
        raise WidgetValueError(problem)
    if find_spec("anywidget") is None:
        raise MissingPackageError("marimo shows anywidgets alone: pip install 'modulekg-widgets[marimo]'")
    from modulekg_widgets.widgets.hosts.live_widget import LiveWidget, close_with_cell

    in_marimo = _is_marimo()
    adapter = LiveWidget(widget, keep=not in_marimo)
    if in_marimo:
        close_with_cell(adapter)
    return adapter


def _is_marimo() -> bool:
    running = getattr(sys.modules.get("marimo"), "running_in_notebook", None)
    return running is not None and bool(running())
