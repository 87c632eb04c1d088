"""Pictures in cell outputs, updated when a cell ends and when the notebook is saved.

An output keeps what it was given when the widget was displayed. So each gets an id, by which the kernel replaces the
picture there; the page shows the same view on (js/src/lab/saved_pictures.ts).
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ipywidgets import Accordion, Box, DOMWidget, Output, Stack, Tab, VBox, Widget
from ipywidgets.widgets.widget import _instances

from modulekg_widgets.engine.views.pictures.boxes import MAX_WIDTH, arrange_in_rows
from modulekg_widgets.engine.views.pictures.png import notebook_pictures
from modulekg_widgets.engine.views.pictures.shapes import Picture

if TYPE_CHECKING:
    from IPython.core.formatters import DisplayFormatter


# -------------------- Picture of a box of ipywidgets: the pictures of the widgets of this package in it


VIEW_TYPE = "application/vnd.jupyter.widget-view+json"
_COLUMNS = (VBox, Tab, Accordion, Stack)
_CAPTURED_ATTRIBUTE = "_mkg_captured"  # on an Output: the run that wrote to it, and what that has shown there


def add_box_pictures(formatter: DisplayFormatter, displayed: Callable[[Widget], None]) -> None:
    """Display boxes and outputs of ipywidgets with their picture; `displayed` is called for each."""
    bundles = formatter.mimebundle_formatter
    for kind in (Box, Output):
        before = bundles.type_printers.get(kind)
        if not isinstance(before, _PictureFormatter):
            bundles.for_type(kind, _PictureFormatter(before, displayed))


class _PictureFormatter:
    """Formatter that adds the picture to the display of a box with widgets of this package."""

    def __init__(self, before: Callable[[object], object] | None, displayed: Callable[[Widget], None]) -> None:
        self.before, self.displayed = before, displayed

    def __call__(self, widget: Widget) -> object:
        bundle = self.before(widget) if self.before else widget._repr_mimebundle_()
        self.displayed(widget)
        picture = picture_of(widget)
        if picture is not None and isinstance(bundle, dict) and VIEW_TYPE in bundle:
            return bundle | notebook_pictures(picture)
        return bundle


def record_captured(widget: Widget, run: str | None) -> None:
    """Record the Output widget that captures the display of `widget`."""
    outputs = [other for other in _instances.values() if isinstance(other, Output) and run and other.msg_id == run]
    if outputs:
        output = outputs[-1]  # of several the innermost, which is the youngest
        captured = vars(output).get(_CAPTURED_ATTRIBUTE, (None, []))
        if captured[0] != run:
            captured = vars(output)[_CAPTURED_ATTRIBUTE] = (run, [])
        captured[1].append(weakref.ref(widget))


def picture_of(widget: Widget, above: frozenset[Widget] = frozenset()) -> Picture | None:
    """Returns the picture of all widgets in `widget`, except those in `above`; None if there is none."""
    if widget in above or widget.comm is None:
        return None
    own = getattr(widget, "_static_picture", None)
    if own is not None:
        return own()
    above |= {widget}
    inside = ((title, picture_of(part, above)) for title, part in _parts(widget))
    drawn = [(title, picture) for title, picture in inside if picture is not None]
    if not drawn:
        return None
    return arrange_in_rows(type(widget).__name__, drawn, MAX_WIDTH if _is_row(widget) else 0)


def _parts(widget: Widget) -> Iterator[tuple[str, Widget]]:
    """Yields the children of a box or Output, with titles."""
    if isinstance(widget, Box):
        titles = getattr(widget, "titles", ())
        for number, child in enumerate(widget.children):
            yield titles[number] if number < len(titles) else "", child
    elif isinstance(widget, Output):
        for shown in _output_widgets(widget):
            yield "", shown


def _output_widgets(output: Output) -> Iterable[Widget]:
    """The widgets that an Output shows: those captured in this session, else those that its data names."""
    _, captured = vars(output).get(_CAPTURED_ATTRIBUTE, (None, []))
    known = [widget for reference in captured if (widget := reference()) is not None]
    if known:
        return known
    # a page is believed the names of widgets, and no picture
    found = (_widget_of(entry.get("data")) for entry in output.outputs)
    return [widget for widget in found if widget is not None]


def _widget_of(data: object) -> Widget | None:
    """The widget that the data of an output refer to."""
    view = data.get(VIEW_TYPE) if isinstance(data, dict) else None
    name = view.get("model_id") if isinstance(view, dict) else None
    return _instances.get(name) if isinstance(name, str) else None


def _is_row(widget: Widget) -> bool:
    flow = widget.layout.flex_flow if isinstance(widget, Box) else None
    return isinstance(widget, Box) and not isinstance(widget, _COLUMNS) and "column" not in (flow or "")


# ----------------------------------------


SVG = "image/svg+xml"
MAX_OUTPUTS = 50  # outputs that are looked after, the latest ones

OutputState = dict[str, Any]  # a message with an output; of an output's id the picture in it, and the widget's state


class OutputPictures:
    """Outputs of one IPython shell with pictures of widgets, by display id."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.outputs: dict[str, tuple[weakref.ref[Widget], OutputState]] = {}
        shell.display_pub.register_hook(self._displayed)
        with suppress(AttributeError):  # of an older ipykernel: results keep their first picture
            shell.displayhook.register_hook(self._result)
        shell.events.register("post_run_cell", lambda result: self.refresh())

    def _displayed(self, message: OutputState) -> OutputState:
        """Give an output a display id, if it has none."""
        content = message["content"]
        widget = _widget_in(content.get("data"))
        if widget is not None and message["header"]["msg_type"] == "display_data":
            id = content.setdefault("transient", {}).setdefault("display_id", f"modulekg-{uuid4().hex}")
            self.outputs[id] = weakref.ref(widget), {"svg": content["data"][SVG], "state": _state_of(widget)}
            while len(self.outputs) > MAX_OUTPUTS:
                del self.outputs[next(iter(self.outputs))]
        return message

    def _result(self, message: OutputState) -> OutputState | None:
        """Display the result of a cell as an output with an id, as results have none."""
        content = message["content"]
        if _widget_in(content.get("data")) is None:
            return message
        self.shell.display_pub.publish(content["data"], content.get("metadata"))
        return None

    def refresh(self) -> bool:
        """Replace outdated pictures; True if there were any."""
        is_renewed = False
        for id, (reference, shown) in list(self.outputs.items()):
            widget = reference()
            if widget is None or widget.comm is None:
                del self.outputs[id]
                continue
            with suppress(Exception):  # a picture stops no cell
                is_renewed |= self._refresh(id, widget, shown)
        return is_renewed

    def _refresh(self, id: str, widget: Widget, shown: OutputState) -> bool:
        state = _state_of(widget)
        if state is not None and state == shown["state"]:
            return False
        shown["state"] = state
        picture = picture_of(widget)
        pictures = {} if picture is None else notebook_pictures(picture)
        if pictures.get(SVG, shown["svg"]) == shown["svg"]:
            return False
        shown["svg"] = pictures[SVG]
        if not isinstance(widget, DOMWidget):
            return False
        bundle = {**(DOMWidget._repr_mimebundle_(widget) or {}), **pictures}
        self.shell.display_pub.publish(bundle, {}, transient={"display_id": id}, update=True)
        return True


def _widget_in(data: object) -> Widget | None:
    """The widget whose picture an output shows."""
    view = data.get(VIEW_TYPE) if isinstance(data, dict) and SVG in data else None
    return _instances.get(view["model_id"]) if isinstance(view, dict) and "model_id" in view else None


def _state_of(widget: Widget) -> Hashable:
    """A value that differs whenever the picture may differ; None for boxes."""
    state = getattr(widget, "_picture_state", None)
    return None if state is None else state()


_by_shell: weakref.WeakKeyDictionary[object, OutputPictures] = weakref.WeakKeyDictionary()


def output_pictures() -> OutputPictures | None:
    """Returns the outputs of the running kernel; None without one, or if the page would draw widgets again."""
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    is_followed = hasattr(getattr(shell, "display_pub", None), "register_hook")
    if not is_followed or "google.colab" in sys.modules or "__vsc_ipynb_file__" in shell.user_ns:
        return None
    if shell not in _by_shell:
        _by_shell[shell] = OutputPictures(shell)
    return _by_shell[shell]
