"""What hooks write down is their user's: a look adds nothing to it, wherever it is kept."""

from __future__ import annotations

import functools
import types
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from checks.model_state import unchanged

WRITTEN: list[Any] = []
CALLS = 0


def to_a_global_list(*_: Any) -> None:
    WRITTEN.append(1)


def to_a_global_number(*_: Any) -> None:
    global CALLS
    CALLS += 1


def by_a_global_function(*_: Any) -> None:
    to_a_global_list()


def to_its_own_attribute(*_: Any) -> None:
    to_its_own_attribute.calls += 1  # type: ignore[attr-defined]


to_its_own_attribute.calls = 0  # type: ignore[attr-defined]
Read = Callable[[], object]


def kept_in_globals(hook: Callable[..., None]) -> tuple[Callable[..., None], Read]:
    return hook, lambda: (len(WRITTEN), CALLS, to_its_own_attribute.calls)  # type: ignore[attr-defined]


def nonlocal_number() -> tuple[Callable[..., None], Read]:
    calls = 0

    def hook(*_: Any) -> None:
        nonlocal calls
        calls += 1

    return hook, lambda: calls


def namespace() -> tuple[Callable[..., None], Read]:
    space = types.SimpleNamespace(calls=0)
    return lambda *_: setattr(space, "calls", space.calls + 1), lambda: space.calls


def array() -> tuple[Callable[..., None], Read]:
    counts = np.zeros(1)

    def hook(*_: Any) -> None:
        counts[0] += 1

    return hook, counts.sum


def inner_function() -> tuple[Callable[..., None], Read]:
    written: list[int] = []

    def note() -> None:
        written.append(1)

    return lambda *_: note(), lambda: len(written)


def partial() -> tuple[Callable[..., None], Read]:
    counts: Counter[str] = Counter()
    hook, read = inner_function()

    def both(counts: Counter[str], *_: Any) -> None:
        counts["calls"] += 1
        hook()

    return functools.partial(both, counts), lambda: (counts.total(), read())


PLACES: dict[str, Callable[[], tuple[Callable[..., None], Read]]] = {
    "a global list": lambda: kept_in_globals(to_a_global_list),
    "a global number": lambda: kept_in_globals(to_a_global_number),
    "a function that it calls": lambda: kept_in_globals(by_a_global_function),
    "its own attribute": lambda: kept_in_globals(to_its_own_attribute),
    "a nonlocal number": nonlocal_number,
    "a namespace": namespace,
    "an array": array,
    "a list of an inner function": inner_function,
    "arguments of a partial": partial,
}


@pytest.mark.parametrize("place", PLACES)
def test_a_look_adds_nothing(place: str) -> None:
    hook, read = PLACES[place]()
    model, x = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)), torch.randn(3, 4)
    model[0].register_forward_hook(hook)
    before = read()
    with unchanged(model, x):
        graph = mk.trace(model, x)
        assert graph.axes.verify().ok
        assert mk.plan(graph, ratio=0.5).axes
        mk.ForwardPlayer(model, x)
    assert read() == before
    model(x)
    assert read() != before
