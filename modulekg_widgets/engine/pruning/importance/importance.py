"""Importance of indices: the `Criterion` base class, and the registry of built-in and user criteria.

An importance gives each index of an axis one number, larger for what matters more; a plan removes the
smallest. There are two ways to write one: a function from a `Group`, an axis with the rows of all
parameters along it, or a subclass of `Criterion`, which sees all axes at once. `mk.importance`
registers either under a name; scoring.py calls them and checks the numbers. Built-in criteria are in
criteria.py (weights), loss_criteria.py (gradients), activations.py and expert_usage.py (data).
Scores of different axes are compared only after scoring.normalize_scores.

    @mk.importance("largest")
    def largest(group):
        return sum(member.tensor.abs().amax(1) for member in group.members)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, TypeVar, cast

import torch

from modulekg_widgets.engine.axes.axis import Axes, Axis
from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.errors import UnknownNameError, printable
from modulekg_widgets.engine.pruning.importance.index_sums import rows_of
from modulekg_widgets.engine.registry import Registry
from modulekg_widgets.engine.tracing.dataflow import DataNode

Entry = TypeVar("Entry", bound=Callable[..., object])
# a subclass of Criterion that can be made without arguments, or a function of a group
criteria: Registry[Callable[..., object]] = Registry("importance")


def importance(*names: str) -> Callable[[Entry], Entry]:
    """Register a function from a `Group` to one number per index, or a subclass of `Criterion`, under `names`.

    Parameters
    ----------
    *names : str
        What `mk.plan(graph, importance=name)` calls it by.

    Returns
    -------
    callable
        The decorator. A function gets a group with `.size` and `.members`, each with a `.tensor` of shape (size, k)
        whose row i holds what belongs to index i, and gives (size,) finite numbers, larger for what matters more.

    Raises
    ------
    UnknownNameError
        Without a name.
    DuplicateNameError
        For a taken one. A plan raises `CutError` when the function fails or gives something else.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> @mk.importance("largest")
    ... def largest(group):
    ...     return sum(member.tensor.abs().amax(1) for member in group.members)
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> mk.plan(mk.trace(model, torch.randn(1, 4)), ratio=0.5, importance="largest")
    mk.plan(graph, ratio=0.5, importance='largest')
    """
    if not names or not all(isinstance(name, str) and name for name in names):
        raise UnknownNameError('an importance is registered under a name: write @mk.importance("name")')
    return cast("Callable[[Entry], Entry]", criteria.register(*names))


class Criterion(ABC):
    """A measure of the importance of indices; subclass it, or register a function with `mk.importance`."""

    @abstractmethod
    def scores(self, axes: Axes, terms: Sequence[Term]) -> Mapping[Term, object]:
        """The importance of the indices of some axes.

        Parameters
        ----------
        axes : Axes
            The axes of a traced model.
        terms : sequence of Term
            The atoms that are asked about.

        Returns
        -------
        mapping
            For each atom of `terms` (atom.size,) finite numbers, larger for what matters more.
        """

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class GroupMember(NamedTuple):
    """The entries of one parameter along an axis."""

    name: str
    dim: int
    tensor: torch.Tensor  # (size, k): row i is a copy of the entries that belong to index i


class Group:
    """An axis with the weights along it, as a user's importance function gets it."""

    def __init__(self, axis: Axis, axes: Axes, weights: Mapping[DataNode, torch.Tensor]) -> None:
        self.axis = axis
        self.size = axis.size
        self._axes = axes
        self._weights = weights

    @cached_property
    def members(self) -> list[GroupMember]:
        """The parameters along the axis, producers and consumers, in the order of the model.

        Those whose results nobody uses are left out, but where there are no others.
        """
        term = self.axis.term
        places = [(node, at) for node, at in self._axes.tensor_dims.get(term, ()) if node in self._weights]
        used = [place for place in places if not self._axes.inference.is_idle(place[0])]
        return [
            GroupMember(node.label, at, rows_of(self._axes, term, node, at, self._weights[node]))
            for node, at in used or places
        ]

    def __repr__(self) -> str:
        return f"<Group {printable(self.axis.name)}: {self.size}>"
