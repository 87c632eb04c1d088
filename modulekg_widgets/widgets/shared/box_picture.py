"""The picture of a box of ipywidgets: those of our widgets in it, where a saved notebook has no box to show."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ipywidgets import Accordion, Box, Output, Stack, Tab, VBox, Widget
from ipywidgets.widgets.widget import _instances

from modulekg_widgets.engine.views.pictures.raster import saved_pictures
from modulekg_widgets.engine.views.pictures.rows import WIDEST, SizedPicture, in_rows, sized

if TYPE_CHECKING:
    from IPython.core.formatters import DisplayFormatter

VIEW_TYPE = "application/vnd.jupyter.widget-view+json"
_COLUMNS = (VBox, Tab, Accordion, Stack)
_CAPTURED = "_mkg_captured"  # on an Output: the run that wrote to it, and what that has shown there


def add_box_pictures(formatter: DisplayFormatter, displayed: Callable[[Widget], None]) -> None:
    """Have boxes and outputs of ipywidgets displayed with their picture; `displayed` is told of each."""
    bundles = formatter.mimebundle_formatter
    for kind in (Box, Output):
        before = bundles.type_printers.get(kind)
        if not isinstance(before, _WithPicture):
            bundles.for_type(kind, _WithPicture(before, displayed))


class _WithPicture:
    """Displays a widget as before, with its picture added; nothing is added where nothing of ours is in it."""

    def __init__(self, before: Callable[[Any], Any] | None, displayed: Callable[[Widget], None]) -> None:
        self.before, self.displayed = before, displayed

    def __call__(self, widget: Widget) -> Any:
        bundle = self.before(widget) if self.before else widget._repr_mimebundle_()
        self.displayed(widget)
        picture = picture_of(widget)
        if picture is not None and isinstance(bundle, dict) and VIEW_TYPE in bundle:
            return bundle | saved_pictures(picture)
        return bundle


def note_captured(widget: Widget, run: str | None) -> None:
    """Remember the Output, if any, that takes what the running cell displays: it does not know it before the end."""
    outputs = [other for other in _instances.values() if isinstance(other, Output) and run and other.msg_id == run]
    if outputs:
        output = outputs[-1]  # of several the innermost, which is the youngest
        captured = vars(output).get(_CAPTURED, (None, []))
        if captured[0] != run:
            captured = vars(output)[_CAPTURED] = (run, [])
        captured[1].append(weakref.ref(widget))


def picture_of(widget: Widget) -> str | None:
    """The picture of all that is in `widget`; None where there is none."""
    found = _picture(widget, frozenset())
    return found.svg if found else None


def _picture(widget: Widget, above: frozenset[Widget]) -> SizedPicture | None:
    if widget in above or widget.comm is None:
        return None
    own = getattr(widget, "_static_picture", None)
    if own is not None:
        return sized(own())
    above |= {widget}
    inside = ((title, _picture(part, above)) for title, part in _parts(widget))
    drawn = [(title, picture) for title, picture in inside if picture is not None]
    if not drawn:
        return None
    return in_rows(type(widget).__name__, drawn, WIDEST if _is_row(widget) else 0)


def _parts(widget: Widget) -> Iterator[tuple[str, Widget]]:
    """What a box or an Output shows, each with its title."""
    if isinstance(widget, Box):
        titles = getattr(widget, "titles", ())
        for number, child in enumerate(widget.children):
            yield titles[number] if number < len(titles) else "", child
    elif isinstance(widget, Output):
        for shown in _shown_in(widget):
            yield "", shown


def _shown_in(output: Output) -> Iterable[Widget]:
    """What the last run has displayed there, or what the page has told since."""
    _, captured = vars(output).get(_CAPTURED, (None, []))
    known = [widget for reference in captured if (widget := reference()) is not None]
    if known:
        return known
    # a page is believed the names of widgets, and no picture
    found = (_named(entry.get("data")) for entry in output.outputs)
    return [widget for widget in found if widget is not None]


def _named(data: Any) -> Widget | None:
    """The widget that an output's data, which came from a page, show."""
    view = data.get(VIEW_TYPE) if isinstance(data, dict) else None
    name = view.get("model_id") if isinstance(view, dict) else None
    return _instances.get(name) if isinstance(name, str) else None


def _is_row(widget: Widget) -> bool:
    flow = widget.layout.flex_flow if isinstance(widget, Box) else None
    return isinstance(widget, Box) and not isinstance(widget, _COLUMNS) and "column" not in (flow or "")
