"""Widgets that show a model, and say so when it is no longer as it was shown: cut, masked, or trained since."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import nn
from traitlets import Unicode

from modulekg_widgets.engine.errors import ModuleKGError
from modulekg_widgets.engine.torch_runtime.private import version_of
from modulekg_widgets.engine.views.payload import text
from modulekg_widgets.widgets.shared.base import ModuleKGWidget, in_main_thread, when_idle

SIZES = "Outdated: the model's layers or sizes have changed since this was drawn."
WEIGHTS = "Outdated: the model's weights have changed since this was drawn."
GONE = "The model no longer exists. Make a new widget to show another one."
SLOW = 0.05  # seconds of a comparison, after which the next one waits
PAUSE = 20  # times as long


class ModelState:
    """The modules, sizes and write counters of a model, told by looks at them alone; the model is held weakly."""

    def __init__(self, model: nn.Module) -> None:
        self._model = weakref.ref(model)
        self._sizes, self._weights = _state_of(model)

    @property
    def model(self) -> nn.Module | None:
        """The model, as long as somebody else has it."""
        return self._model()

    def change(self) -> str:
        """How the model differs from what it was; "" where it does not, or is there no longer."""
        model = self.model
        if model is None:
            return ""
        sizes, weights = _state_of(model)
        if sizes != self._sizes:
            return SIZES
        return "" if weights == self._weights else WEIGHTS


def _state_of(model: nn.Module) -> tuple[list[Any], list[Any]]:
    """What says that modules and sizes are the same, and what says that weights are."""
    sizes: list[Any] = []
    weights: list[Any] = []
    for name, module in _slots(model):
        sizes.append((name, type(module)))
        for tensors in (vars(module).get("_parameters"), vars(module).get("_buffers")):
            for key, tensor in (tensors or {}).items():
                if isinstance(tensor, torch.Tensor):
                    sizes.append((key, _told(lambda t=tensor: (tuple(t.shape), t.dtype))))
                    weights.append((_told(lambda t=tensor: version_of(t)), _told(lambda t=tensor: t.data_ptr())))
    return sizes, weights


def _slots(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every module once, by the name of its first slot."""
    seen: set[int] = set()
    waiting: list[tuple[str, nn.Module]] = [("", model)]
    while waiting:
        name, module = waiting.pop()
        if id(module) not in seen:
            seen.add(id(module))
            yield name, module
            inside: Mapping[str, Any] = vars(module).get("_modules") or {}
            waiting.extend((slot, inner) for slot, inner in inside.items() if isinstance(inner, nn.Module))


def _told(ask: Any) -> Any:
    """The answer; None of tensors that have none, as an inference tensor counts no writing."""
    try:
        return ask()
    except Exception:  # noqa: BLE001 - tensors of any class are asked
        return None


class ModelWidget(ModuleKGWidget):
    """A widget that shows a model, with a line where that has changed since, and a button that shows it as it is."""

    outdated = Unicode("").tag(sync=True)

    _shown_state: ModelState | None = None

    def _watch(self, model: Any) -> None:
        """From now on the widget shows `model` as it is at this moment."""
        self._shown_state = ModelState(model) if isinstance(model, nn.Module) else None
        self.outdated = ""
        _watching.add(self)
        _compare_after_cells()

    def _settle(self, model: Any) -> None:
        """Take what was done to `model` as known, where the widget shows that one."""
        if self._shown_state is not None and self._shown_state.model is model:
            self._watch(model)

    def _compare(self) -> None:
        """Say whether the model is still as it is shown."""
        if self._shown_state is not None:
            self.outdated = self._shown_state.change()

    def _show_anew(self, model: nn.Module) -> None:
        """Show the model as it has become."""
        raise NotImplementedError

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take what the page has set, but for what the kernel alone knows."""
        super().set_state({name: value for name, value in sync_data.items() if name != "outdated"})

    def finish(self) -> bool:
        """Wait for what is still being made in the background; whether there was anything."""
        self._compare()
        return super().finish() or self.outdated != ""

    def _handle_custom_msg(self, content: Any, buffers: Any) -> None:
        if isinstance(content, Mapping) and content.get("kind") == "refresh":
            when_idle(self._refresh_shown)
        else:
            super()._handle_custom_msg(content, buffers)

    def _refresh_shown(self) -> None:
        model = None if self._shown_state is None else self._shown_state.model
        if model is None:
            self.outdated = GONE
            return
        try:
            self._show_anew(model)
        except ModuleKGError as error:
            self.outdated = text(f"{WEIGHTS} It could not be refreshed: {error}")


_watching: weakref.WeakSet[ModelWidget] = weakref.WeakSet()
_hooked: weakref.WeakSet[Any] = weakref.WeakSet()
_next = 0.0  # when the models are compared again, at the earliest


def _compare_after_cells() -> None:
    """Where there is IPython, compare after each cell and each message of a page."""
    from IPython.core.getipython import get_ipython

    events = getattr(get_ipython(), "events", None)
    if events is not None and events not in _hooked:
        _hooked.add(events)
        events.register("post_execute", _compare_all)


def _compare_all() -> None:
    global _next
    start = time.monotonic()
    if not in_main_thread() or start < _next:
        return
    for widget in list(_watching):
        with suppress(Exception):  # a look at a picture stops no cell
            if widget.comm is not None:
                widget._compare()
    taken = time.monotonic() - start
    _next = start + PAUSE * taken if taken > SLOW else 0.0
