"""The order in which the indices of an axis are removed, and their ranking across axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np

from modulekg_widgets.engine.axes.axis import Axes, Axis
from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.pruning.importance.members import weights_along
from modulekg_widgets.engine.pruning.importance.scoring import normalize_scores, score
from modulekg_widgets.engine.pruning.plan.selection.counts import Floats, Ints, Scores
from modulekg_widgets.engine.pruning.plan.selection.explicit_axes import ExplicitAxis
from modulekg_widgets.engine.pruning.plan.selection.request import LATENCY, Request
from modulekg_widgets.engine.pruning.plan.sizes.size_model import SizeModel

# --------------------
# Scores for targets: the loss of an index relative to the sizes that it saves, comparable across axes.
# A layer passes on the energy of its indices, the squares of their scores. The share that an index has of it is what
# the weights along its axis lose; of what they save, the FLOPs of the axis tell. Shares add up while little goes; the
# less of an axis is left, the more of that the next index takes, so its share of what is left counts as well.
# Measured on the nets of docs/quality.md at 0.3 of the FLOPs, where scores were in relation to the mean of their axis
# alone: an LSTM had 16 % of its answers right where it has 42, torchcrepe 2 % where it has 46, a decoder a perplexity
# of 29 for 23.


REMAINING_WEIGHT = 0.1  # how much what is left of an axis counts, beside what it had; of 0 … 1
SAVINGS_EXPONENT = 0.75  # power of what is saved for each weight; of 0 … 1, where 0 spends everywhere alike
EPSILON = 1e-12  # of the energy of an axis


def target_scores(scores: Scores, weights: Mapping[Term, int], savings: Mapping[Term, float]) -> dict[Term, Floats]:
    """The scores of all axes for a target, comparable across axes.

    `weights`: how many run along an axis; `savings`: the share of the sizes asked for that goes with all of it.
    """
    found = {}
    for term, own in scores.items():
        saved_by_weight = max(savings.get(term, 0.0), EPSILON) / max(weights.get(term, 0), 1)
        found[term] = _lost_energy(own) / saved_by_weight**SAVINGS_EXPONENT
    return found


def _lost_energy(scores: Floats) -> Floats:
    """The energy that is lost with each index once lower ones are removed, relative to the mean."""
    if not len(scores):
        return scores
    relative = scores / (np.abs(scores).mean() or 1.0)
    energy = np.sign(relative) * relative**2
    order = np.argsort(energy, kind="stable")
    left = np.maximum(np.cumsum(np.maximum(energy[order], 0.0)[::-1])[::-1], np.finfo(np.float64).tiny)
    after = np.maximum(np.append(left[1:], 0.0), EPSILON * left[0])
    of_the_rest = np.empty_like(energy)
    of_the_rest[order] = np.maximum.accumulate(len(left) * np.log(left / np.minimum(left, after)))
    return (1 - REMAINING_WEIGHT) * energy / (np.abs(energy).mean() or 1.0) + REMAINING_WEIGHT * of_the_rest


# ----------------------------------------


MIN_SAVING = 1e-12  # of the sizes of a model


class IndexRanking:
    """The importance of the indices that a request may remove.

    `independent`: the axes of a ratio; `given`: those that the user names; `formula` makes one for a unit.
    """

    def __init__(
        self,
        axes: Axes,
        request: Request,
        independent: Sequence[Axis],
        explicit: Mapping[Term, ExplicitAxis],
        formula: Callable[[list[str]], SizeModel],
    ) -> None:
        self.axes = axes
        self.request = request
        self.independent = independent
        self.explicit = explicit
        self._formula = formula

    def order(self, term: Term) -> Ints:
        """The indices of an axis in the order of removal: explicit ones first, then the least important."""
        first = self.explicit[term].drop_first if term in self.explicit else ()
        if len(first):
            return np.concatenate([first, np.setdiff1d(np.arange(term.size), first)])
        return self._orders[term]

    @cached_property
    def _orders(self) -> dict[Term, Ints]:
        return {term: np.argsort(scores, kind="stable") for term, scores in self.scores.items()}

    @cached_property
    def scores(self) -> Scores:
        """The scores of all axes without explicit indices."""
        terms = [axis.term for axis in self.independent]
        terms += [term for term, given in self.explicit.items() if term not in terms and not len(given.drop_first)]
        return score(self.axes, terms, self.request.importance)

    @cached_property
    def comparable(self) -> Scores:
        """The scores of the chosen axes, comparable across axes."""
        if self.request.per is not None:
            # in relation to the mean of an axis, a score would say nothing of what an index of it is worth
            saved = self._mean_savings([self.request.per])
            return {term: scores / max(saved.get(term, 1.0), MIN_SAVING) for term, scores in self.scores.items()}
        if self.request.target is None:
            return normalize_scores(self.axes, self.scores)
        units = ["flops" if unit == LATENCY else unit for unit in self.request.target]
        savings = {term: saving * term.size for term, saving in self._mean_savings(list(dict.fromkeys(units))).items()}
        return target_scores(self.scores, weights_along(self.axes), savings)

    def _mean_savings(self, units: list[str]) -> dict[Term, float]:
        """The mean share of these sizes that the first index of each axis saves."""
        chosen = [axis for axis in self.independent if axis.term not in self.explicit]
        formula = self._formula(units)
        savings = [formula.savings([axis.number for axis in chosen], unit) for unit in units]
        return {axis.term: float(saved) for axis, saved in zip(chosen, np.mean(savings, axis=0), strict=True)}


# -------------------- Per-axis exponents for local targets: an axis shared by n weights keeps r**sqrt(2/n)


ROOT = 0.5


def local_exponents(axes: Axes, chosen: Sequence[Axis]) -> Floats:
    """The exponent of each axis: sqrt(2 / weights along it), at most 1.

    One weight makes and one reads an axis inside of a block: it keeps what the ratio leaves. One that many weights run
    along keeps more, as the docstring of `mk.plan` says; of powers of 2 over the weights the root serves best.
    """
    weights = weights_along(axes)
    return np.array([min(1.0, 2 / max(weights[axis.term], 1)) ** ROOT for axis in chosen])
