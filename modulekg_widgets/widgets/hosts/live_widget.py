"""Anywidget whose page shows widgets of this package, and forwards messages between both.

Its page is js/src/marimo.ts, with js/src/standalone/live.ts in a frame; what goes between is in docs/widgets.md.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.resources import files
from typing import Any, Protocol

from anywidget import AnyWidget
from comm import DummyComm
from ipywidgets import DOMWidget, Widget
from ipywidgets.widgets.widget import _remove_buffers
from ipywidgets.widgets.widget_link import DirectionalLink, Link
from traitlets import Int, List, TraitError, Unicode

from modulekg_widgets.engine.errors import ModuleKGError, a_type, printable
from modulekg_widgets.widgets.pages.pages import CONTAINERS, HELPER_WIDGETS
from modulekg_widgets.widgets.shared.base import ModuleKGWidget, WidgetValueError

# -------------------- Comm with several ends, so that adapters and the host can show one widget at once


Data = dict[str, Any]  # of a message
Buffers = Iterable[object] | None


class Listener(Protocol):
    """Protocol of adapters that show a widget."""

    def on_widget_message(self, widget: Widget, data: Data, buffers: Buffers, request: Data) -> None:
        """Handle a message of the widget; `request` is the page message that it answers, if any."""

    def on_widget_closed(self, widget: Widget) -> None:
        """Handle the closing of the widget."""


class LiveComm:
    """Comm of a widget that broadcasts to all listeners, and to the original comm if the host can show it."""

    target_name = "jupyter.widget"
    kernel = "live"  # not None: somebody hears

    def __init__(self, widget: Widget, before: Any, keep: bool) -> None:
        self.comm_id: str = before.comm_id
        self.listeners: list[Listener] = []
        self._widget, self._before, self._keep = widget, before, keep
        self._on_message: Callable[[Data], None] | None = None
        self._request: Data = {}
        if not keep:  # what no page can show need not be kept there
            before.close()

    def send(self, data: Data | None = None, metadata: Data | None = None, buffers: Buffers = None) -> None:
        """Send a message to every end."""
        if self._keep:
            self._before.send(data=data, metadata=metadata, buffers=buffers)
        for listener in list(self.listeners):
            listener.on_widget_message(self._widget, data or {}, buffers, self._request)

    def receive(self, data: Data, buffers: list[object], request: Data) -> None:
        """Pass a message of a page to the widget."""
        if self._on_message is not None:
            self._request = request
            try:
                self._on_message({"content": {"data": data}, "buffers": buffers})
            finally:
                self._request = {}

    def on_msg(self, callback: Callable[[Data], None] | None) -> None:
        """Set the handler of messages from pages."""
        self._on_message = callback

    def on_close(self, callback: Callable[[Data], None] | None) -> None:
        """Does nothing, as pages do not close widgets."""

    def close(self, *_: object, **__: object) -> None:
        """Notify every end that the widget is closed."""
        if self._keep:
            self._before.close()
        listeners, self.listeners = self.listeners, []
        for listener in listeners:
            listener.on_widget_closed(self._widget)

    def detach(self, listener: Listener) -> None:
        """Remove a listener; after the last one the widget gets its original comm back."""
        if listener in self.listeners:
            self.listeners.remove(listener)
        if not self.listeners and self._widget.comm is self:
            self._widget.comm = self._before if self._keep else DummyComm(comm_id=self.comm_id)
            if not self._keep:
                _unregister(self.comm_id)


def live_comm(widget: Widget, keep: bool) -> LiveComm:
    """Returns the widget's comm, replaced by a LiveComm on first use; `keep` if the host can show it, too."""
    if not isinstance(widget.comm, LiveComm):
        widget.comm = LiveComm(widget, widget.comm, keep)
    return widget.comm


def _unregister(id: str) -> None:
    """Remove a widget from the registry of ipywidgets."""
    from ipywidgets.widgets.widget import _instances

    _instances.pop(id, None)


# -------------------- Closure of a widget: all widgets that its page needs, and the links between them


WidgetsById = dict[str, Widget]
REFERENCE_PREFIX = "IPY_MODEL_"


def widget_closure(widget: Widget) -> WidgetsById:
    """Returns `widget`, all widgets that it references, and the links between them, by id."""
    family: WidgetsById = {}
    waiting = [widget]
    while waiting:
        one = waiting.pop()
        if one.model_id not in family:
            family[one.model_id] = one
            waiting += referenced_widgets(one.get_state())
    for one in family.values():
        if problem := display_problem(one, f" in {a_type(widget)}"):
            raise WidgetValueError(problem)
    return family | {link.model_id: link for link in links_between(family)}


def display_problem(widget: Widget, where: str) -> str:
    """Returns the reason why a widget cannot be shown in an adapter; "" if it can."""
    kind = printable(type(widget).__name__)
    if not isinstance(widget, ModuleKGWidget) and type(widget) not in (*CONTAINERS, *(HELPER_WIDGETS if where else ())):
        known = ", ".join(one.__name__ for one in CONTAINERS)
        return f"marimo shows widgets of this package, namely {known}: {kind} was passed{where}"
    return f"this {kind} was closed{where}: make a new one" if widget.comm is None else ""


def referenced_widgets(state: Mapping[str, object]) -> Iterator[Widget]:
    """Yields the open widgets that the traits of a state reference, alone or in lists."""
    every = _open_widgets()
    for value in state.values():
        for item in value if isinstance(value, list | tuple) else (value,):
            if isinstance(item, str) and item.startswith(REFERENCE_PREFIX):
                widget = every.get(item.removeprefix(REFERENCE_PREFIX))
                if widget is not None:
                    yield widget


def links_between(family: Mapping[str, Widget]) -> Iterator[Widget]:
    """Yields the open links with both ends in `family`."""
    for link in open_links():
        if all(end.comm is not None and end.model_id in family for end, _ in (link.source, link.target)):
            yield link


def open_links() -> Iterable[Link]:
    """Returns all open links of ipywidgets on pages."""
    return [
        one
        for one in _open_widgets().values()
        if isinstance(one, Link) and type(one) in (Link, DirectionalLink) and one.comm is not None
    ]


def _open_widgets() -> dict[str, Widget]:
    from ipywidgets.widgets.widget import _instances

    return dict(_instances)


# ----------------------------------------


NOT_BUILT = "marimo's part of the package has not been built: install the package from a wheel, or with Node present"


class LiveWidget(AnyWidget):
    """Adapter that shows a widget of this package as an anywidget; `close()` leaves that widget open."""

    _esm = Unicode().tag(sync=True)  # the package's own file, and never anything of a model
    root = Unicode().tag(sync=True)
    states = List().tag(sync=True)  # of all widgets, as they were when this one was made
    changes = Int(0).tag(sync=True)  # set by the page alone, after it has changed something: marimo then runs cells

    def __init__(self, widget: DOMWidget, keep: bool) -> None:
        self.widget = widget
        self._comms: dict[str, LiveComm] = {}
        self._family: WidgetsById = {}
        self._changed: dict[str, set[str]] = defaultdict(set)  # the traits that are no longer as in `states`
        self._first: set[str] = set()
        self._closed: list[str] = []
        self._keep = keep
        family = widget_closure(widget)
        self._attach(family)
        self._first = set(family)
        super().__init__(
            _esm=_page_script(), root=str(widget.model_id), states=[_widget_state(one) for one in family.values()]
        )
        self.on_msg(self._on_message)

    def __repr__(self) -> str:
        return f"<marimo's {type(self.widget).__name__}{'' if self.comm else ', closed'}>"

    def set_state(self, sync_data: dict[str, object]) -> None:
        """Accept `changes` alone from a page."""
        super().set_state({name: value for name, value in sync_data.items() if name == "changes"})

    def close(self) -> None:
        """Remove the widgets from the pages; they stay open."""
        comms, self._comms = self._comms, {}
        for comm in comms.values():
            comm.detach(self)
        if self.comm is not None:
            layout = self.layout
            super().close()
            layout.close()

    # -------------------------------------------------------------- from the widgets, in any thread

    def on_widget_message(self, widget: Widget, data: Data, buffers: Buffers, request: Data) -> None:
        """Forward a message of a widget, after those that it references."""
        id = str(widget.model_id)
        state = data.get("state", {})
        self._changed[id].update(state)
        new = {one.model_id: one for one in referenced_widgets(state) if one.model_id not in self._comms}
        if new:
            self._add(new)
        self._send_content({"kind": "message", "id": id, "data": data, **request}, list(buffers or ()))

    def on_widget_closed(self, widget: Widget) -> None:
        """Remove a closed widget; the adapter closes with the one that it shows."""
        id = next((key for key, one in self._family.items() if one is widget), None)
        if id is None:
            return
        del self._family[id]
        self._comms.pop(id, None)
        self._changed.pop(id, None)
        self._closed.append(id)
        self._send_content({"kind": "close", "id": id})
        if widget is self.widget:
            self.close()

    # -------------------------------------------------------------- from the page

    def _on_message(self, _: object, content: object, buffers: Buffers) -> None:
        if not isinstance(content, dict):
            return
        page = content.get("page")
        if content.get("kind") == "open":
            self._open(page)
        elif content.get("kind") == "messages":
            number = content.get("number")
            try:
                self._receive(content.get("messages"), list(buffers or ()), {"page": page, "number": number})
            finally:  # the page waits for it
                self._send_content({"kind": "done", "page": page, "number": number})

    def _open(self, page: object) -> None:
        """Send a page the differences from `states`."""
        self._add_links()
        changed = [(self._family[id], names) for id, names in list(self._changed.items()) if id in self._family]
        self._send_content(
            {
                "kind": "opened",
                "page": page,
                "added": [_widget_state(one) for id, one in self._family.items() if id not in self._first],
                "changed": [_widget_state(one, sorted(names & set(one.keys))) for one, names in changed],
                "gone": list(self._closed),
            }
        )

    def _receive(self, messages: object, buffers: list[object], request: Data) -> None:
        self._add_links()  # what has been linked since
        for message in filter(lambda one: isinstance(one, dict), messages if isinstance(messages, list) else ()):
            count = int(message.get("buffers", 0))
            own, buffers = buffers[:count], buffers[count:]
            comm, widget = self._comms.get(message.get("id")), self._family.get(message.get("id"))
            if comm is None or widget is None or message.get("method") not in ("update", "custom"):
                continue
            comm.receive(message, own, request)
            if message["method"] == "update":
                self._follow(widget, message.get("state", {}))

    def _follow(self, widget: Widget, names: Iterable[str]) -> None:
        """Forward a change along links whose other end is on another page."""
        for link in open_links():
            ends = [(link.source, link.target)] + ([(link.target, link.source)] if type(link) is Link else [])
            for (source, name), (target, other) in ends:
                if source is widget and name in names and target.model_id not in self._comms:
                    with contextlib.suppress(ModuleKGError, TraitError):  # a module that the other's model lacks
                        setattr(target, other, getattr(source, name))

    # -------------------------------------------------------------- the family

    def _attach(self, family: WidgetsById) -> None:
        for id, widget in family.items():
            self._family[id] = widget
            self._comms[id] = live_comm(widget, self._keep)
            self._comms[id].listeners.append(self)

    def _add(self, widgets: WidgetsById) -> None:
        """Add widgets that are new."""
        known = set(self._comms)
        family = {
            id: one for widget in widgets.values() for id, one in widget_closure(widget).items() if id not in known
        }
        self._attach(family)
        self._send_content({"kind": "add", "added": [_widget_state(one) for one in family.values()]})
        self._add_links()

    def _add_links(self) -> None:
        links = {link.model_id: link for link in links_between(self._family) if link.model_id not in self._comms}
        if links:
            self._attach(links)
            self._send_content({"kind": "add", "added": [_widget_state(link) for link in links.values()]})

    def _send_content(self, content: Data, buffers: list[object] | None = None) -> None:
        if buffers is None:
            state, paths, buffers = _remove_buffers(content)
            content = {**dict(state), "paths": paths}
        if self.comm is not None:
            self.send(content, buffers)


def _widget_state(widget: Widget, names: list[str] | None = None) -> Data:
    """Returns id, kind and state of a widget for js/src/standalone/live.ts."""
    kind = str(widget._model_name).removesuffix("Model")
    return {"id": str(widget.model_id), "kind": kind, "state": widget.get_state(names)}


def _page_script() -> str:
    script = files("modulekg_widgets") / "static" / "marimo.js"
    if not script.is_file():
        raise ModuleKGError(NOT_BUILT)
    return script.read_text("utf-8")


def close_with_cell(adapter: LiveWidget) -> None:
    """In marimo: close the adapter when its cell runs again or is deleted."""
    try:
        from marimo._runtime.cell_lifecycle_item import CellLifecycleItem
        from marimo._runtime.context import safe_get_context

        class Closing(CellLifecycleItem):
            def create(self, context: object) -> None:
                pass

            def dispose(self, context: object, deletion: bool) -> bool:
                adapter.close()
                return True

        context = safe_get_context()
        if context is not None:
            context.cell_lifecycle_registry.add(Closing())
    except (ImportError, AttributeError, TypeError):  # of another version: then the adapter goes with the kernel
        return
