"""The short way for norms: hooks between two convolutions find nothing of ours in the cache, so each call counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any

import torch

from modulekg_widgets.engine.monitoring.entry import Entry
from modulekg_widgets.engine.monitoring.gather import (
    Observation,
    first_tensor,
    is_measurable,
    is_rehearsal,
    tracing_state,
    transforms,
)
from modulekg_widgets.engine.monitoring.readings import EVAL, TRAIN

Tensor = torch.Tensor
SOURCES = ("ForwardInputMoments", "ForwardOutputMoments", "BackwardOutputMoments")
in_backward = torch._C._current_graph_task_id  # -1 outside of a backward pass


class Now:
    """The step that is being measured, as the hooks of its calls see it."""

    __slots__ = ("epoch", "is_paused", "unscaled")

    def __init__(self, unscaled: Callable[[Tensor], Tensor] | None) -> None:
        self.epoch = 0
        self.is_paused = False  # backward passes are not those of the training
        self.unscaled = unscaled  # takes a loss scale out of a gradient


class Quick:
    """One module of which nothing is measured but one norm of its input, of its output, and of the gradient there."""

    __slots__ = ("_calls", "_gradient", "_input", "_most", "_now", "_open", "_output", "_overwrites", "_root_state")

    def __init__(
        self, entries: Sequence[Entry], now: Now, root_state: dict[str, Any], most: int, overwrites: bool
    ) -> None:
        by_need = {entry.needs[0]: entry for entry in entries}
        self._input, self._output, self._gradient = (by_need.get(need) for need in SOURCES)
        self._now = now
        self._root_state = root_state
        self._most = most
        self._overwrites = overwrites
        self._calls = {TRAIN: 0, EVAL: 0}
        self._open: dict[int, list[tuple[int, str, bool]]] = {}  # calls that have not returned, by thread

    def reset(self) -> None:
        """Count calls anew."""
        self._calls[TRAIN] = self._calls[EVAL] = 0
        self._open.clear()

    def before(self, args: tuple[Any, ...]) -> None:
        if in_backward() != -1:
            return
        x = args[0] if args else None
        if type(x) is Tensor and x.is_floating_point():
            if x.is_meta or transforms() is not None or tracing_state() is not None or torch.compiler.is_compiling():
                return
        elif is_rehearsal(args):
            return
        else:
            x = first_tensor(args)
        phase = TRAIN if self._root_state.get("training", True) else EVAL
        call = self._calls[phase]
        self._calls[phase] = call + 1
        entry = self._input
        is_seen = entry is not None and x is not None
        self._open.setdefault(get_ident(), []).append((call, phase, is_seen))
        if is_seen and call < self._most:
            entry.take(x.detach(), call, phase)  # type: ignore[union-attr]

    def after(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> tuple[int, str] | None:
        """Call and phase of a call whose graph is not there yet, as under checkpointing; None for any other."""
        calls = self._open.get(get_ident())
        if not calls:
            return None
        call, phase, is_seen = calls.pop()
        if call >= self._most or output is None:
            return None
        if kwargs and not is_seen and self._input is not None and not self._overwrites:
            x = first_tensor(args)
            x = first_tensor(tuple(kwargs.values())) if x is None else x
            if x is not None:
                self._input.take(x.detach(), call, phase)
        y = output if type(output) is Tensor and output.is_floating_point() else first_tensor(output)
        if y is None:
            return None
        if self._output is not None:
            self._output.take(y.detach(), call, phase)
        if self._gradient is None:
            return None
        if not y.requires_grad or y.is_leaf:
            return call, phase
        y.register_hook(self._seen(self._gradient, call, phase))
        return None

    def _seen(self, entry: Entry, call: int, phase: str) -> Callable[[Tensor | None], None]:
        now = self._now
        epoch = now.epoch

        def seen(gradient: Tensor | None) -> None:
            if epoch == now.epoch and not now.is_paused and gradient is not None and is_measurable(gradient):
                entry.take(gradient.detach() if now.unscaled is None else now.unscaled(gradient), call, phase)

        return seen


def quick_for(
    entries: Sequence[Entry], now: Now, root_state: dict[str, Any], most: int, overwrites: bool
) -> Quick | None:
    """The short way, where these entries allow it."""
    needs = [entry.needs[0] for entry in entries if entry.quick is not None and entry.needs[0] in SOURCES]
    if not entries or len(needs) < len(entries) or len(set(needs)) < len(needs):
        return None
    return Quick(entries, now, root_state, most, overwrites)


def observation_of(tap_module: torch.nn.Module, call: int, phase: str, now: Now) -> Observation:
    """The observation of a call that takes the long way after all."""
    return Observation(tap_module, call, phase, now.epoch)
