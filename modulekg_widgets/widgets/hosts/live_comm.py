"""What stands in a widget's `comm` while adapters show it: its messages reach their pages, and theirs reach it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from comm import DummyComm
from ipywidgets import Widget

Data = dict[str, Any]
Buffers = Iterable[Any] | None


class Listener(Protocol):
    """What shows a widget: an adapter."""

    def sent(self, widget: Widget, data: Data, buffers: Buffers, asking: Data) -> None:
        """Take a message of the widget; `asking` is what its page has sent, if this answers it."""

    def gone(self, widget: Widget) -> None:
        """Take that the widget has been closed."""


class LiveComm:
    """A comm with several ends: the one that the host has opened, where it shows such widgets, and all listeners."""

    target_name = "jupyter.widget"
    kernel = "live"  # not None: somebody hears

    def __init__(self, widget: Widget, before: Any, keep: bool) -> None:
        self.comm_id: str = before.comm_id
        self.listeners: list[Listener] = []
        self._widget, self._before, self._keep = widget, before, keep
        self._heard: Callable[[Data], None] | None = None
        self._asking: Data = {}
        if not keep:  # what no page can show need not be kept there
            before.close()

    def send(self, data: Data | None = None, metadata: Data | None = None, buffers: Buffers = None) -> None:
        """Send a message of the widget to every end."""
        if self._keep:
            self._before.send(data=data, metadata=metadata, buffers=buffers)
        for listener in list(self.listeners):
            listener.sent(self._widget, data or {}, buffers, self._asking)

    def receive(self, data: Data, buffers: list[Any], asking: Data) -> None:
        """Give a page's message to the widget."""
        if self._heard is not None:
            self._asking = asking
            try:
                self._heard({"content": {"data": data}, "buffers": buffers})
            finally:
                self._asking = {}

    def on_msg(self, callback: Callable[[Data], None] | None) -> None:
        """Have what comes from pages heard."""
        self._heard = callback

    def on_close(self, callback: Callable[[Data], None] | None) -> None:
        """Pages do not close widgets."""

    def close(self, *_: Any, **__: Any) -> None:
        """Tell every end that the widget is closed."""
        if self._keep:
            self._before.close()
        listeners, self.listeners = self.listeners, []
        for listener in listeners:
            listener.gone(self._widget)

    def part(self, listener: Listener) -> None:
        """Let a listener go; without any the widget has again what it had before."""
        if listener in self.listeners:
            self.listeners.remove(listener)
        if not self.listeners and self._widget.comm is self:
            self._widget.comm = self._before if self._keep else DummyComm(comm_id=self.comm_id)
            if not self._keep:
                _forget(self.comm_id)


def live_comm(widget: Widget, keep: bool) -> LiveComm:
    """The widget's comm, which is one of these from now on; `keep`: the host can show it, too."""
    if not isinstance(widget.comm, LiveComm):
        widget.comm = LiveComm(widget, widget.comm, keep)
    return widget.comm


def _forget(id: str) -> None:
    """Leave a widget to those who hold it: where no page can name it, it need not be found by its id."""
    from ipywidgets.widgets.widget import _instances

    _instances.pop(id, None)
