"""The pictures in the outputs of cells are renewed when a cell ends and when the notebook is saved.

An output keeps what it was given when the widget was displayed. So each gets an id, by which the kernel replaces the
picture there; the page shows the same view on (js/src/lab/saved_pictures.ts).
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Hashable
from contextlib import suppress
from typing import Any
from uuid import uuid4

from ipywidgets import DOMWidget, Widget
from ipywidgets.widgets.widget import _instances

from modulekg_widgets.engine.views.pictures.raster import saved_pictures
from modulekg_widgets.widgets.shared.box_picture import VIEW_TYPE, picture_of

SVG = "image/svg+xml"
MOST = 50  # outputs that are looked after, the latest ones

Shown = dict[str, Any]  # of an output's id: the picture in it, and the widget's state then


class OutputPictures:
    """The outputs of one IPython shell that show widgets with pictures, by their ids."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.outputs: dict[str, tuple[weakref.ref[Widget], Shown]] = {}
        shell.display_pub.register_hook(self._displayed)
        with suppress(AttributeError):  # of an older ipykernel: results keep their first picture
            shell.displayhook.register_hook(self._result)
        shell.events.register("post_run_cell", lambda result: self.renew())

    def _displayed(self, message: dict[str, Any]) -> dict[str, Any]:
        """Give an output its id, where the user has given it none."""
        content = message["content"]
        widget = _widget_in(content.get("data"))
        if widget is not None and message["header"]["msg_type"] == "display_data":
            id = content.setdefault("transient", {}).setdefault("display_id", f"modulekg-{uuid4().hex}")
            self.outputs[id] = weakref.ref(widget), {"svg": content["data"][SVG], "state": _state_of(widget)}
            while len(self.outputs) > MOST:
                del self.outputs[next(iter(self.outputs))]
        return message

    def _result(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """What a cell ends with is displayed in place of being its result: results have no ids."""
        content = message["content"]
        if _widget_in(content.get("data")) is None:
            return message
        self.shell.display_pub.publish(content["data"], content.get("metadata"))
        return None

    def renew(self) -> bool:
        """Replace the pictures that are not those of today; whether there were any."""
        is_renewed = False
        for id, (reference, shown) in list(self.outputs.items()):
            widget = reference()
            if widget is None or widget.comm is None:
                del self.outputs[id]
                continue
            with suppress(Exception):  # a picture stops no cell
                is_renewed |= self._renew(id, widget, shown)
        return is_renewed

    def _renew(self, id: str, widget: Widget, shown: Shown) -> bool:
        state = _state_of(widget)
        if state is not None and state == shown["state"]:
            return False
        shown["state"] = state
        picture = picture_of(widget)
        pictures = {} if picture is None else saved_pictures(picture)
        if pictures.get(SVG, shown["svg"]) == shown["svg"]:
            return False
        shown["svg"] = pictures[SVG]
        if not isinstance(widget, DOMWidget):
            return False
        bundle = {**(DOMWidget._repr_mimebundle_(widget) or {}), **pictures}
        self.shell.display_pub.publish(bundle, {}, transient={"display_id": id}, update=True)
        return True


def _widget_in(data: Any) -> Widget | None:
    """The widget that an output shows with a picture of ours."""
    view = data.get(VIEW_TYPE) if isinstance(data, dict) and SVG in data else None
    return _instances.get(view["model_id"]) if isinstance(view, dict) and "model_id" in view else None


def _state_of(widget: Widget) -> Hashable:
    """What changes whenever the picture may; None of boxes, whose insides are not followed."""
    state = getattr(widget, "_picture_state", None)
    return None if state is None else state()


_kept: weakref.WeakKeyDictionary[Any, OutputPictures] = weakref.WeakKeyDictionary()


def output_pictures() -> OutputPictures | None:
    """Those of the running kernel; None where there is none, or one whose page would draw the widgets anew."""
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    is_followed = hasattr(getattr(shell, "display_pub", None), "register_hook")
    if not is_followed or "google.colab" in sys.modules or "__vsc_ipynb_file__" in shell.user_ns:
        return None
    if shell not in _kept:
        _kept[shell] = OutputPictures(shell)
    return _kept[shell]
