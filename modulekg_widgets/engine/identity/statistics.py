"""Fingerprints, sizes, levels and shared tensors of all modules of a model, each computed once on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import torch

from modulekg_widgets.engine.identity.fingerprint import Identities
from modulekg_widgets.engine.identity.levels import LEVEL_METHODS, checked_level_method
from modulekg_widgets.engine.identity.skeleton_source import STORED_BYTES, ModelLike, as_module
from modulekg_widgets.engine.identity.tensors import (
    PLAIN_TENSORS,
    TensorBase,
    direct_tensors,
    is_uninitialised,
    without_subclass_code,
)
from modulekg_widgets.engine.identity.walk import Walk, walk
from modulekg_widgets.engine.torch_runtime.modules import Attributes


class ModuleStatistics:
    """Statistics of the modules of one model by index in the walk; each kind is computed when first used."""

    def __init__(self, model: ModelLike) -> None:
        self.walk = walk(as_module(model))
        self._levels: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return len(self.walk.modules)

    def children(self, index: int) -> Sequence[int]:
        """The modules that have their place directly below a module.

        Parameters
        ----------
        index : int
            Of the module, in the order of `modules()`.

        Returns
        -------
        sequence of int
            Their indices, in order.
        """
        return self.walk.children.get(index, ())

    @cached_property
    def identities(self) -> Identities:
        """The structural fingerprints, computed once."""
        return Identities(self.walk)

    @cached_property
    def sizes(self) -> ModuleSizes:
        """Parameters and bytes per module, computed once."""
        return sizes(self.walk)

    @cached_property
    def tied(self) -> list[list[TensorLocation]]:
        """The tensors that are registered under several names, each with all its places."""
        return tied_tensors(self.walk)

    @cached_property
    def shared_groups(self) -> list[list[int]]:
        """Modules that hold the same tensor, or a slot that leads to the same module."""
        groups = [[place.module for place in group] for group in self.tied]
        return groups + [[link.target, link.parent] for link in self.walk.links()]

    @cached_property
    def shared(self) -> set[int]:
        """The modules that several slots lead to, and those that hold a tensor of another module."""
        return {link.target for link in self.walk.links()} | {place.module for group in self.tied for place in group}

    def level(self, index: int, levels: str = "repetition") -> str:
        """The level of a module.

        Parameters
        ----------
        index : int
            Of the module, in the order of `modules()`.
        levels : {"repetition", "depth"}
            What tells stages and blocks: runs of alike structures (engine/identity/levels.py has the rules), or depth:
            a child of the root that has children is a stage then, everything else that has children a block.

        Returns
        -------
        str
            "model", "stage", "block" or "op".

        Raises
        ------
        UnknownNameError
            For other `levels`.
        """
        return self.levels(levels)[index]

    def levels(self, levels: str = "repetition") -> list[str]:
        """The levels of all modules.

        Parameters
        ----------
        levels : {"repetition", "depth"}
            As of `level`.

        Returns
        -------
        list of str
            In the order of `modules()`.

        Raises
        ------
        UnknownNameError
            For other `levels`.
        """
        if checked_level_method(levels) not in self._levels:
            self._levels[levels] = LEVEL_METHODS[levels](self.walk)
        return self._levels[levels]


@dataclass(frozen=True, slots=True)
class ModuleSizes:
    """Per module: parameters in and below it (each tensor once), its own parameters, and bytes with buffers.

    Uninitialised parameters count as zero.
    """

    params: list[int]
    direct_params: list[int]
    bytes: list[int]


def sizes(walk: Walk) -> ModuleSizes:
    """Count every module of the walk; a tensor under several names, or in a shared module, counts once per total."""
    figures: dict[int, tuple[int, int]] = {}  # id of a tensor -> its parameters and bytes
    own = [_count_direct_tensors(state, figures) for state in walk.states]
    places: dict[int, set[int]] = {}  # id of a tensor -> the modules that hold it
    for index, keys in enumerate(own):
        for key in keys:
            places.setdefault(key, set()).add(index)
    own_params = [sum(figures[key][0] for key in keys) for keys in own]
    params, total_bytes = list(own_params), [sum(figures[key][1] for key in keys) for keys in own]

    def add(index: int, key: int, sign: int) -> None:
        params[index] += sign * figures[key][0]
        total_bytes[index] += sign * figures[key][1]

    highest = list(range(len(own)))  # the outermost module that a cycle leads back to from here or below
    for link in walk.links():
        if link.kind == "cycle":
            highest[link.parent] = min(highest[link.parent], link.target)
            continue
        for key in {key for index in walk.reachable(link.target) for key in own[index]}:
            if link.parent not in places[key]:
                places[key].add(link.parent)
                add(link.parent, key, +1)
    for key, holders in places.items():
        ordered = sorted(holders)
        for left, right in pairwise(ordered):
            # a total sums its subtree: what two neighbours in pre-order both hold is taken off where they meet
            add(walk.common_ancestor(left, right), key, -1)
    for index in range(len(own) - 1, 0, -1):
        params[walk.parents[index]] += params[index]
        total_bytes[walk.parents[index]] += total_bytes[index]
        highest[walk.parents[index]] = min(highest[walk.parents[index]], highest[index])
    for index in range(1, len(own)):
        if highest[index] < index:  # it contains its container, and so all that this contains
            params[index], total_bytes[index] = params[walk.parents[index]], total_bytes[walk.parents[index]]
    return ModuleSizes(params, own_params, total_bytes)


def _count_direct_tensors(state: Attributes, figures: dict[int, tuple[int, int]]) -> set[int]:
    keys: set[int] = set()
    with without_subclass_code():
        for own in direct_tensors(state):
            if own.tensor is None or is_uninitialised(own.tensor):
                continue
            keys.add(id(own.tensor))
            elements = TensorBase.numel(own.tensor)
            size = _bytes_of(own.tensor, elements)
            figures[id(own.tensor)] = (elements if own.role == "parameter" else 0, size)
    return keys


def _bytes_of(tensor: torch.Tensor, elements: int) -> int:
    if type(tensor) in PLAIN_TENSORS and STORED_BYTES in tensor.__dict__:
        return tensor.__dict__[STORED_BYTES]
    return elements * TensorBase.element_size(tensor)


class TensorLocation(NamedTuple):
    """The location of a registered tensor: index of the module and name there."""

    module: int
    name: str


def tied_tensors(walk: Walk) -> list[list[TensorLocation]]:
    """Tensors registered under several names, each with all of its locations in the order of the walk."""
    places: dict[int, list[TensorLocation]] = {}
    for index, state in enumerate(walk.states):
        for own in direct_tensors(state):
            if own.tensor is not None:
                places.setdefault(id(own.tensor), []).append(TensorLocation(index, own.name))
    return [group for group in places.values() if len(group) > 1]
