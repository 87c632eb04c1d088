"""How important each index of an axis is: the criteria by name, and those of users."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch

from modulekg_widgets.engine.axes.algebra import ATOM, Term, find
from modulekg_widgets.engine.axes.axis import Axes, Axis
from modulekg_widgets.engine.errors import CutError, ModuleKGError, UnknownNameError, shown
from modulekg_widgets.engine.pruning.importance.activations import Activation
from modulekg_widgets.engine.pruning.importance.calibration import parameters_with_data
from modulekg_widgets.engine.pruning.importance.criteria import (
    FPGM,
    L1,
    L2,
    BNScale,
    Criterion,
    Random,
    rows_of,
)
from modulekg_widgets.engine.pruning.importance.index_sums import Vector
from modulekg_widgets.engine.pruning.importance.loss_criteria import Hessian, Taylor
from modulekg_widgets.engine.registry import Registry
from modulekg_widgets.engine.tracing.dataflow import DataNode

Entry = TypeVar("Entry", bound=Callable[..., Any])
# a subclass of Criterion that can be made without arguments, or a function of a group
criteria: Registry[Callable[..., Any]] = Registry("importance")


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


BUILT_IN = {
    "l1": L1, "l2": L2, "random": Random, "bn_scale": BNScale, "fpgm": FPGM,
    "taylor": Taylor, "hessian": Hessian, "activation": Activation,
}  # fmt: skip
for _name, _criterion in BUILT_IN.items():
    importance(_name)(_criterion)


class GroupMember(NamedTuple):
    """What one dimension of a parameter has of an axis."""

    name: str
    dim: int
    tensor: torch.Tensor  # (size, k): row i is a copy of the entries that belong to index i


class Group:
    """An axis with the weights along it, as a user's importance gets it."""

    def __init__(self, axis: Axis, axes: Axes, weights: Mapping[DataNode, torch.Tensor]) -> None:
        self.axis = axis
        self.size = axis.size
        self._axes = axes
        self._weights = weights

    @cached_property
    def members(self) -> list[GroupMember]:
        """The parameters that the axis runs along, producers and consumers, in the order of the model.

        Those whose results nobody uses are left out, but where there are no others.
        """
        term = self.axis.term
        places = [(node, at) for node, at in self._axes.places.get(term, ()) if node in self._weights]
        used = [place for place in places if not self._axes.inference.is_idle(place[0])]
        return [
            GroupMember(node.label, at, rows_of(self._axes, term, node, at, self._weights[node]))
            for node, at in used or places
        ]

    def __repr__(self) -> str:
        return f"<Group {shown(self.axis.name)}: {self.size}>"


def score(axes: Axes, terms: Sequence[Term], importance: Any) -> dict[Term, Vector]:
    """For each atom of `terms` how important its indices are, larger for more: (atom.size,), finite.

    `importance` is a registered name, a `Criterion`, or a function from a `Group` to one number per index.
    Raises `UnknownNameError` for an unknown name, and `CutError` when the criterion lacks what it needs or gives
    something else; what a user's function raises becomes one that names the axis.
    """
    every = list(dict.fromkeys(map(find, terms)))
    composite = next((term for term in every if term.kind != ATOM), None)
    if composite is not None:
        raise CutError(f"{composite!r} is made of several axes: pass the atoms, as [axis.term for axis in graph.axes]")
    criterion = _criterion(importance)
    name = _name_of(importance)
    try:
        found = criterion.scores(axes, every)
    except ModuleKGError:
        raise
    except Exception as error:  # whatever a user's class raises
        raise CutError(f"importance {name} stopped: {_told(error)}") from error
    if not isinstance(found, Mapping):
        raise CutError(f"importance {name} gave a {shown(type(found).__name__)}: return a dict by atom")
    missing = next((term for term in every if term not in found), None)
    if missing is not None:
        raise CutError(f"importance {name} gave nothing for axis {shown(axes.of(missing).name)!r}")
    return {term: _checked(found[term], axes.of(term), name) for term in every}


def normalised(scores: Mapping[Term, Vector]) -> dict[Term, Vector]:
    """The scores of every axis divided by the mean of their sizes, so that axes can be ranked together.

    An axis whose scores are all zero stays so.
    """
    means = {term: float(np.abs(values).mean()) if len(values) else 0.0 for term, values in scores.items()}
    return {term: values / (means[term] or 1.0) for term, values in scores.items()}


class _ByGroup(Criterion):
    """A user's function, asked axis by axis."""

    def __init__(self, function: Callable[[Group], Any], name: str) -> None:
        self._function = function
        self._name = name

    def scores(self, axes: Axes, terms: Sequence[Term]) -> dict[Term, Any]:
        weights = parameters_with_data(axes.graph, f"importance {self._name}")
        return {term: self._of(Group(axes.of(term), axes, weights)) for term in terms}

    def _of(self, group: Group) -> Any:
        try:
            return self._function(group)
        except Exception as error:
            where = f"on axis {shown(group.axis.name)!r}"
            raise CutError(f"importance {self._name} stopped {where}: {_told(error)}") from error


def _criterion(importance: Any) -> Criterion:
    entry = criteria[importance] if isinstance(importance, str) else importance
    if isinstance(entry, Criterion):
        return entry
    if isinstance(entry, type) and issubclass(entry, Criterion):
        try:
            return entry()
        except Exception as error:
            wrong = f"importance {_name_of(importance)} cannot be made without arguments: {_told(error)}"
            raise CutError(f"{wrong}; pass an object of it") from error
    if callable(entry):
        return _ByGroup(entry, _name_of(importance))
    raise CutError(
        f"importance={shown(repr(importance))}: pass a name ({', '.join(map(repr, criteria))}), a Criterion, or a "
        "function of a group"
    )


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {shown(str(error), 300)}"


def _name_of(importance: Any) -> str:
    name = importance if isinstance(importance, str) else getattr(importance, "__name__", type(importance).__name__)
    return repr(shown(str(name)))


def _checked(values: Any, axis: Axis, name: str) -> Vector:
    """What a criterion gave for an axis as (size,) in float64; raises `CutError` when it is something else."""
    where = f"importance {name} gave for axis {shown(axis.name)!r}"
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = values.numpy() if values.dtype is not torch.bfloat16 else values.float().numpy()
    try:
        found = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError):
        raise CutError(f"{where} {shown(repr(values))}: return {axis.size} numbers") from None
    if found.shape != (axis.size,):
        raise CutError(f"{where} the shape {list(found.shape)}: return [{axis.size}], one number per index")
    if not np.isfinite(found).all():
        bad = int(np.flatnonzero(~np.isfinite(found))[0])
        raise CutError(
            f"{where} {found[bad]} at index {bad}: scores are finite; look for NaN or infinity in "
            f"{', '.join(shown(member.name) for member in axis.members[:3])}"
        )
    return found
