"""The parameters and buffers of a model with every name that they have, and the places of its modules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from modulekg_widgets.engine.identity.walk import Walk
from modulekg_widgets.engine.torch_runtime.look import Stage
from modulekg_widgets.engine.torch_runtime.private import BUFFERS, PARAMETERS
from modulekg_widgets.engine.tracing.dataflow import BUFFER, PARAMETER


class Held(NamedTuple):
    """A tensor under one of its names."""

    name: str
    kind: str
    tensor: torch.Tensor
    state: dict[str, Any]  # of the module that holds it
    attribute: str
    way: tuple[Any, ...] = ()  # of a plain tensor: the containers between the attribute and it
    names: tuple[str, ...] = ()  # of a plain tensor: the attributes on the way, first that of the module


def own_tensors(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The parameters and buffers of one module by attribute."""
    own = {**(state.get(PARAMETERS) or {}), **(state.get(BUFFERS) or {})}
    return {name: tensor for name, tensor in own.items() if isinstance(tensor, torch.Tensor)}


def module_places(walk: Walk) -> list[tuple[str, int]]:
    """Every path at which a module stands, with its index; the further ones of shared modules come last."""
    places = [(walk.path(index), index) for index in range(len(walk.modules))]
    for link in walk.links():
        if link.kind == "shared":
            above, path = walk.path(link.parent), walk.path(link.target)
            alias = f"{above}.{link.name}" if above else link.name
            below = range(link.target, walk.ends[link.target])
            places += [(alias + walk.path(inner)[len(path) :], inner) for inner in below]
    return places


def held_tensors(walk: Walk, places: Sequence[tuple[str, int]]) -> Iterator[Held]:
    """The parameters and buffers under each of their names, in the order of the places."""
    for place, index in places:
        state = walk.states[index]
        for name, tensor in own_tensors(state).items():
            kind = PARAMETER if name in state[PARAMETERS] else BUFFER
            yield Held(f"{place}.{name}" if place else name, kind, tensor, state, name)


def on_stage(walk: Walk, stage: Stage) -> Walk:
    """The same places with the modules that stand for those of the walk."""
    new = Walk()
    new.names, new.parents, new.children, new.irregular = walk.names, walk.parents, walk.children, walk.irregular
    new.modules, new.states = stage.modules, stage.states
    return new
