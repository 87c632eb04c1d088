"""HTML page of widgets that opens offline: their state, and the script that shows it (js/src/standalone.ts)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ipywidgets import Box, DOMWidget, GridBox, HBox, Layout, Tab, VBox, Widget
from ipywidgets.embed import dependency_state
from ipywidgets.widgets.widget_link import DirectionalLink, Link

from modulekg_widgets.engine.errors import ModuleKGError, UnknownNameError, a_type, printable
from modulekg_widgets.engine.registry import Registry
from modulekg_widgets.engine.safe_files import write_atomic
from modulekg_widgets.engine.views.pictures.svg import xml_text
from modulekg_widgets.engine.views.schema import Payload
from modulekg_widgets.widgets.shared.base import ModuleKGWidget, WidgetValueError

# --------------------
# Saved messages and answers: what a page without a kernel uses in its place, registered by widget.


class SavedMessage(NamedTuple):
    """A kernel message: JSON content and binary buffers."""

    content: dict[str, object]
    buffers: Iterable[bytes]


class SavedAnswer(NamedTuple):
    """The saved answer to messages that match `question`: the message updated with `content`.

    Without buffers of its own those of the message come back.
    """

    question: dict[str, object]
    content: dict[str, object]
    buffers: Iterable[bytes] | None = None


Saved = TypeVar("Saved", SavedMessage, SavedAnswer)
# each widget's own module registers, by the name of the class; of the answers the first that fits counts
saved_updates: Registry[Callable[[Any], Iterable[SavedMessage]]] = Registry("widget")
saved_answers: Registry[Callable[[Any], Iterable[SavedAnswer]]] = Registry("widget")


# ----------------------------------------


SCHEMA_VERSION = 1  # of the page's data
# of ipywidgets itself: containers, and what joins widgets (js/src/standalone/controls.ts)
CONTAINERS = (Box, GridBox, HBox, VBox, Tab)
HELPER_WIDGETS = (Layout, Link, DirectionalLink)


def save_html(widget: DOMWidget, path: str | Path) -> Path:
    """Write widgets as one page that opens offline, without Jupyter and without Python.

    The page holds what they show now: all values of a `MetricPanel`, thinned as in the notebook. What is linked in the
    browser (`mk.link`, `jslink`) stays linked. The file appears whole or not at all.

    Parameters
    ----------
    widget : DOMWidget
        One of this package, or a `Box`, `HBox`, `VBox`, `GridBox` or `Tab` of them.
    path : str or Path
        The file, whose name ends in .html.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    WidgetValueError
        For another widget, and for a path that is none.
    UnknownNameError
        For an extension that is not .html.
    UnknownPathError
        Where there is no folder.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> with TemporaryDirectory() as folder:
    ...     page = mk.save_html(mk.ModelGraph(nn.Linear(4, 2)), Path(folder) / "model.html")
    ...     page.name, page.stat().st_size > 100_000
    ('model.html', True)
    """
    _check(widget, "")
    if not isinstance(path, str | Path):
        raise WidgetValueError(f"save_html writes a file: {a_type(path)} was passed, name one that ends in .html")
    target = Path(path)
    if target.suffix.lower() != ".html":
        raise UnknownNameError(f"save_html writes a page: name the file .html, {printable(target.name)!r} was passed")
    write_atomic(target, page_of(widget))
    return target


def page_of(widget: DOMWidget) -> bytes:
    """Returns the page of `widget`: script and data, without network access."""
    data = page_data(widget)
    code = _script()
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    parts = {
        "source": f"sha256-{digest}",  # admits the script and nothing else that a name could bring in
        "title": xml_text(_title(data)),
        "id": "mkg-page",
        "data": _embedded(data),
        "attributes": "",
        "code": code,
    }
    # js/src/core/export/html.ts fills the same template
    template = (files("modulekg_widgets.widgets.pages") / "page.html").read_text("utf-8")
    page = re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)
    return page.encode("utf-8", "backslashreplace")


def page_data(widget: DOMWidget) -> Payload:
    """Returns the data for the page's script: widgets with kind, id, state, buffers and messages."""
    _check(widget, "")
    saved = dependency_state(widget, drop_defaults=False)
    every = _open_widgets()
    waited = [one.finish() for one in map(every.__getitem__, saved) if isinstance(one, ModuleKGWidget)]
    if any(waited):
        saved = dependency_state(widget, drop_defaults=False)
    widgets = {id: every[id] for id in saved}
    for one in widgets.values():
        _check(one, f" in {a_type(widget)}")
    # ids of the same length in each run of the same code: the same page
    names = {id: f"widget-{place}" for place, id in enumerate(saved)}
    entries = [_entry(widgets[id], state, names) for id, state in saved.items()]
    return {"schema_version": SCHEMA_VERSION, "views": [names[str(widget.model_id)]], "widgets": entries}


def _entry(widget: Widget, saved: Payload, names: dict[str, str]) -> Payload:
    state = {key: _renamed(value, names) for key, value in saved["state"].items()}
    kind = str(saved["model_name"]).removesuffix("Model")
    return {
        "kind": kind,
        "id": names[str(widget.model_id)],
        "state": state | ({"playing": False} if "playing" in state else {}),  # a page does nothing on its own
        "buffers": [{"path": one["path"], "data": one["data"]} for one in saved.get("buffers", ())],
        "messages": [
            _with_buffers({"content": content}, buffers)
            for content, buffers in _saved_messages(saved_updates, kind, widget)
        ],
        "answers": [
            _with_buffers({"question": question, "content": content}, buffers)
            for question, content, buffers in _saved_messages(saved_answers, kind, widget)
        ],
    }


def _check(widget: Widget, where: str) -> None:
    if not isinstance(widget, ModuleKGWidget) and type(widget) not in (*CONTAINERS, *(HELPER_WIDGETS if where else ())):
        known = ", ".join(one.__name__ for one in CONTAINERS)
        raise WidgetValueError(
            f"save_html writes a widget of this package, as ModelGraph, or a {known} of them: "
            f"{a_type(widget)} was passed{where}"
        )
    if widget.comm is None:
        raise WidgetValueError(f"this {printable(type(widget).__name__)} was closed{where}: make a new one")


def _open_widgets() -> dict[str, Widget]:
    from ipywidgets.widgets.widget import _instances

    return dict(_instances)


def _renamed(value: object, names: dict[str, str]) -> object:
    """Returns `value` with the ids of widgets replaced by those of the page."""
    if isinstance(value, str) and value.startswith("IPY_MODEL_"):
        id = value.removeprefix("IPY_MODEL_")
        return f"IPY_MODEL_{names[id]}" if id in names else value
    return [_renamed(item, names) for item in value] if isinstance(value, list | tuple) else value


def _saved_messages(registry: Registry[Callable[[Any], Iterable[Saved]]], kind: str, widget: Widget) -> Iterable[Saved]:
    return registry[kind](widget) if kind in registry else ()


def _with_buffers(entry: dict[str, object], buffers: Iterable[bytes] | None) -> dict[str, object]:
    """Returns `entry` with its buffers in base64; unchanged for None."""
    packed = None if buffers is None else [base64.b64encode(part).decode("ascii") for part in buffers]
    return entry if packed is None else {**entry, "buffers": packed}


def _title(data: Payload) -> str:
    """The title of the first widget that has one."""
    payloads = [entry["state"].get("payload", {}) for entry in data["widgets"]]
    titles = [payload.get("title") or ", ".join(payload.get("runs", ())) for payload in payloads]
    return next(filter(None, titles), "modulekg-widgets")


def _script() -> str:
    script = files("modulekg_widgets") / "static" / "standalone.js"
    if not script.is_file():
        raise ModuleKGError(
            "the page's code has not been built: install the package from a wheel, or with Node present"
        )
    # within a script element only these can end it
    return script.read_text("utf-8").replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _embedded(data: dict[str, object]) -> str:
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
