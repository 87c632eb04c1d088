"""Base of widgets that show a model: an outdated notice once it is not as shown, and a refresh button."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from traitlets import Unicode

from modulekg_widgets.engine.errors import CancelledError, ModuleKGError
from modulekg_widgets.engine.torch_runtime import model_snapshot
from modulekg_widgets.engine.torch_runtime.isolation.progress import has_listener
from modulekg_widgets.engine.torch_runtime.model_snapshot import ModelSnapshot, snapshot_of
from modulekg_widgets.engine.views.payload import text
from modulekg_widgets.widgets.shared.base import ModuleKGWidget, is_main_thread, when_idle
from modulekg_widgets.widgets.shared.progress import Progress

if TYPE_CHECKING:
    from modulekg_widgets.engine.torch_runtime.modules import Model

SIZES_CHANGED = "Outdated: the model's layers or sizes have changed since this was drawn."
WEIGHTS_CHANGED = "Outdated: the model's weights have changed since this was drawn."
OUTDATED_MESSAGES = {model_snapshot.SIZES: SIZES_CHANGED, model_snapshot.WEIGHTS: WEIGHTS_CHANGED, "": ""}
MODEL_DELETED = "The model no longer exists. Make a new widget to show another one."
SLOW_SECONDS = 0.05  # seconds of a comparison, after which the next one waits
PAUSE_FACTOR = 20  # times as long


class ModelWidget(ModuleKGWidget):
    """Widget of a model that compares its state after each cell."""

    outdated = Unicode("").tag(sync=True)
    progress = Unicode("").tag(sync=True)  # of what the page has asked for, while it runs

    _shown_snapshot: ModelSnapshot | None = None
    _working: Progress | None = None

    def _watch(self, model: object) -> None:
        """Take the present state of `model` as the one that is shown."""
        self._shown_snapshot = snapshot_of(model)
        self.outdated = ""
        _watching.add(self)
        _compare_after_cells()

    def _accept_change(self, model: object) -> None:
        """Take a change of `model` as known, if it is the one that is shown."""
        if self._shown_snapshot is not None and self._shown_snapshot.model is model:
            self._watch(model)

    def _check_outdated(self) -> None:
        """Set `outdated` if the model differs from the one that is shown."""
        if self._shown_snapshot is not None:
            change = self._shown_snapshot.change()
            is_shown = change != model_snapshot.WEIGHTS or self._shows_weights()
            self.outdated = OUTDATED_MESSAGES[change] if is_shown else ""

    def _shows_weights(self) -> bool:
        """True if something that is shown depends on the values of weights."""
        return True

    def _redraw(self, model: Model) -> None:
        """Show the present state of the model."""
        raise NotImplementedError

    def set_state(self, sync_data: dict[str, object]) -> None:
        """Apply changes from a page, except of `outdated` and `progress`."""
        super().set_state({name: value for name, value in sync_data.items() if name not in ("outdated", "progress")})

    def finish(self) -> bool:
        """Wait for background work; True if there was any."""
        self._check_outdated()
        return super().finish() or self.outdated != ""

    def _handle_custom_msg(self, content: object, buffers: object) -> None:
        kind = content.get("kind") if isinstance(content, Mapping) else None
        if kind == "refresh":
            when_idle(self._refresh_shown)
        elif kind == "cancel_refresh":
            working = self._working  # another thread may end it meanwhile
            if working is not None:
                working.cancel()
        else:
            super()._handle_custom_msg(content, buffers)

    def _refresh_shown(self) -> None:
        model = None if self._shown_snapshot is None else self._shown_snapshot.model
        if model is None:
            self.outdated = MODEL_DELETED
            return
        try:
            with self._show_work("Refresh"):
                self._redraw(model)
        except CancelledError as error:
            self._check_outdated()  # what was cancelled may be of another widget, which is shown after this one
            if self.outdated:
                self.outdated = text(f"{self.outdated} {error}")
        except ModuleKGError as error:
            self._check_outdated()
            self.outdated = text(f"{self.outdated} It could not be refreshed: {error}".strip())

    @contextmanager
    def _show_work(self, title: str) -> Iterator[None]:
        """Show the progress of what the page has asked for in the page, where it can be cancelled."""
        if has_listener():
            yield
            return
        self._working = Progress(title, lambda done: setattr(self, "progress", done))
        try:
            with self._working.observing():
                yield
        finally:
            self._working, self.progress = None, ""


_watching: weakref.WeakSet[ModelWidget] = weakref.WeakSet()
_hooked: weakref.WeakSet[object] = weakref.WeakSet()
_next = 0.0  # when the models are compared again, at the earliest


def _compare_after_cells() -> None:
    """Register the comparison with IPython, after each cell and each message of a page."""
    from IPython.core.getipython import get_ipython

    events = getattr(get_ipython(), "events", None)
    if events is not None and events not in _hooked:
        _hooked.add(events)
        events.register("post_execute", _compare_all)


def _compare_all() -> None:
    global _next
    start = time.monotonic()
    if not is_main_thread() or start < _next:
        return
    for widget in list(_watching):
        with suppress(Exception):  # a look at a picture stops no cell
            if widget.comm is not None:
                widget._check_outdated()
    taken = time.monotonic() - start
    _next = start + PAUSE_FACTOR * taken if taken > SLOW_SECONDS else 0.0
