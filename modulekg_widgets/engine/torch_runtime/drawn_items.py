"""Items of a loader that draws random numbers, made so that nobody else's numbers change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Any, TypeVar

import torch

from modulekg_widgets.engine.torch_runtime.rng import (
    ReproducibleDraws,
    State,
    generators_of_the_cpu,
    put_back,
    python_generators,
)
from modulekg_widgets.engine.torch_runtime.threads import OthersWork, others_compute

T = TypeVar("T")
CPU = torch.device("cpu")
States = list[tuple[State, Any]]
_END: Any = object()


def drawn_apart(items: Iterable[T]) -> Iterator[T]:
    """The items, as of a loader that shuffles: what is drawn to make them leaves the process's generators as they were.

    They are those that would come now; each goes on where the one before has come to, whatever was drawn in between.
    Beside threads that compute, torch draws from copies of its generators; Python and NumPy have no such.
    """
    draws = _DrawsOfItems()
    every = draws.made(lambda: iter(items))
    while (item := draws.made(lambda: next(every, _END))) is not _END:
        yield item


class _DrawsOfItems:
    """Where the draws of one iteration have come to."""

    def __init__(self) -> None:
        self._others = OthersWork()
        self._copies = ReproducibleDraws() if others_compute() else None  # in the place of torch's generators
        self._own: States = []

    def made(self, make: Any) -> Any:
        """What `make` makes, drawn behind what was made before."""
        if self._copies is None and self._others:
            reached = [state for (read, _), state in self._own if read is torch.get_rng_state]
            self._copies = ReproducibleDraws({CPU: reached[0]} if reached else None)
        states = generators_of_the_cpu() if self._copies is None else python_generators()
        others = OthersWork()
        before = [(state, state[0]()) for state in generators_of_the_cpu()]
        put_back([(state, own) for state, own in self._own if state in states])
        try:
            with self._copies or nullcontext():
                return make()
        finally:
            now = [(state, state[0]()) for state in states]
            self._own = [] if others else now
            put_back(before, others)
