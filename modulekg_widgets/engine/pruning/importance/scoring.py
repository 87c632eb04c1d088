"""Scores of indices by any importance, with the result checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from modulekg_widgets.engine.axes.axis import Axes, Axis
from modulekg_widgets.engine.axes.terms.algebra import ATOM, Term, find
from modulekg_widgets.engine.errors import CutError, ModuleKGError, a_type, printable
from modulekg_widgets.engine.pruning.importance.calibration import weights_with_data
from modulekg_widgets.engine.pruning.importance.importance import Criterion, Group, criteria
from modulekg_widgets.engine.pruning.importance.index_sums import Vector
from modulekg_widgets.engine.pruning.importance.members import weights_along

Floats = NDArray[np.float64]


def score(axes: Axes, terms: Sequence[Term], importance: object) -> dict[Term, Vector]:
    """The importance of the indices of each atom: (atom.size,), finite; larger is more important.

    `importance` is a registered name, a `Criterion`, or a function from a `Group` to one number per index.
    Raises `UnknownNameError` for an unknown name, and `CutError` when the criterion lacks what it needs or gives
    something else; what a user's function raises becomes one that names the axis.
    """
    every = list(dict.fromkeys(map(find, terms)))
    composite = next((term for term in every if term.kind != ATOM), None)
    if composite is not None:
        raise CutError(f"{composite!r} is made of several axes: pass the atoms, as [axis.term for axis in graph.axes]")
    criterion = criterion_of(importance)
    name = _name_of(importance)
    try:
        scores = criterion.scores(axes, every)
    except ModuleKGError:
        raise
    except Exception as error:  # whatever a user's class raises
        raise CutError(f"importance {name} stopped: {_message(error)}") from error
    if not isinstance(scores, Mapping):
        raise CutError(f"importance {name} gave {a_type(scores)}: return a dict by atom")
    missing = next((term for term in every if term not in scores), None)
    if missing is not None:
        raise CutError(f"importance {name} gave nothing for axis {printable(axes.of(missing).name)!r}")
    return {term: _checked(scores[term], axes.of(term), name) for term in every}


def normalize_scores(axes: Axes, scores: Mapping[Term, Vector]) -> dict[Term, Vector]:
    """Scores relative to the mean of their axis, times the number of its weights, so that axes rank together.

    What an index does to the weights that make or read it adds up: one of a residual stream, which every block reads,
    costs more than one inside of a block. An axis whose scores are all zero stays so.
    """
    weights = weights_along(axes)
    means = {term: float(np.abs(values).mean()) if len(values) else 0.0 for term, values in scores.items()}
    return {term: values / (means[term] or 1.0) * max(weights[find(term)], 1) for term, values in scores.items()}


class _FunctionCriterion(Criterion):
    """A user's function, called axis by axis."""

    def __init__(self, function: Callable[[Group], object], name: str) -> None:
        self._function = function
        self._name = name

    def scores(self, axes: Axes, terms: Sequence[Term]) -> dict[Term, object]:
        weights = weights_with_data(axes, f"importance {self._name}")
        return {term: self._score_group(Group(axes.of(term), axes, weights)) for term in terms}

    def _score_group(self, group: Group) -> object:
        try:
            return self._function(group)
        except Exception as error:
            where = f"on axis {printable(group.axis.name)!r}"
            raise CutError(f"importance {self._name} stopped {where}: {_message(error)}") from error


def criterion_of(importance: object) -> Criterion:
    """The criterion for a name, class or function; raises `CutError` for anything else."""
    entry = criteria[importance] if isinstance(importance, str) else importance
    if isinstance(entry, Criterion):
        return entry
    if isinstance(entry, type) and issubclass(entry, Criterion):
        try:
            return entry()
        except Exception as error:
            wrong = f"importance {_name_of(importance)} cannot be made without arguments: {_message(error)}"
            raise CutError(f"{wrong}; pass an object of this class") from error
    if callable(entry):
        return _FunctionCriterion(entry, _name_of(importance))
    raise CutError(
        f"importance={printable(repr(importance))}: pass a name ({', '.join(map(repr, criteria))}), a Criterion, or a "
        "function of a group"
    )


def _message(error: Exception) -> str:
    return f"{type(error).__name__}: {printable(str(error), 300)}"


def _name_of(importance: object) -> str:
    name = importance if isinstance(importance, str) else getattr(importance, "__name__", type(importance).__name__)
    return repr(printable(str(name)))


def _checked(values: object, axis: Axis, name: str) -> Vector:
    """The scores of an axis as float64 (size,); raises `CutError` for anything else."""
    where = f"importance {name} gave for axis {printable(axis.name)!r}"
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = values.numpy() if values.dtype is not torch.bfloat16 else values.float().numpy()
    try:
        scores = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError):
        raise CutError(f"{where} {printable(repr(values))}: return {axis.size} numbers") from None
    if scores.shape != (axis.size,):
        raise CutError(f"{where} the shape {list(scores.shape)}: return [{axis.size}], one number per index")
    if not np.isfinite(scores).all():
        bad = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise CutError(
            f"{where} {scores[bad]} at index {bad}: scores are finite; look for NaN or infinity in "
            f"{', '.join(printable(member.name) for member in axis.members[:3])}"
        )
    return scores
