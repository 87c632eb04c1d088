"""Which indices of an axis go first, and how those of several axes rank with one another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np

from modulekg_widgets.engine.axes.algebra import Term
from modulekg_widgets.engine.axes.axis import Axes, Axis
from modulekg_widgets.engine.pruning.importance.scoring import normalised, score
from modulekg_widgets.engine.pruning.importance.votes import weights_along
from modulekg_widgets.engine.pruning.plan.counts import Ints, Scores
from modulekg_widgets.engine.pruning.plan.given import GivenAxis
from modulekg_widgets.engine.pruning.plan.request import LATENCY, Request
from modulekg_widgets.engine.pruning.plan.size_formula import SizeFormula
from modulekg_widgets.engine.pruning.plan.spending import worths

LEAST_SAVED = 1e-12  # of the sizes of a model


class IndexRanking:
    """The importance of the indices that a request may take, computed where it is asked for.

    `independent`: the axes of a ratio; `given`: those that the user names; `formula` makes one for a unit.
    """

    def __init__(
        self,
        axes: Axes,
        request: Request,
        independent: Sequence[Axis],
        given: Mapping[Term, GivenAxis],
        formula: Callable[[list[str]], SizeFormula],
    ) -> None:
        self.axes = axes
        self.request = request
        self.independent = independent
        self.given = given
        self._formula = formula

    def order(self, term: Term) -> Ints:
        """The indices of an axis, the first to go first: those given, else the least important."""
        first = self.given[term].first if term in self.given else ()
        if len(first):
            return np.concatenate([first, np.setdiff1d(np.arange(term.size), first)])
        return self._orders[term]

    @cached_property
    def _orders(self) -> dict[Term, Ints]:
        return {term: np.argsort(scores, kind="stable") for term, scores in self.scores.items()}

    @cached_property
    def scores(self) -> Scores:
        """The scores of every axis of which the user does not say what goes."""
        terms = [axis.term for axis in self.independent]
        terms += [term for term, given in self.given.items() if term not in terms and not len(given.first)]
        return score(self.axes, terms, self.request.importance)

    @cached_property
    def comparable(self) -> Scores:
        """The scores of all chosen axes, so that they can be ranked together."""
        if self.request.per is not None:
            # in relation to the mean of an axis, a score would say nothing of what an index of it is worth
            saved = self._saved([self.request.per])
            return {term: scores / max(saved.get(term, 1.0), LEAST_SAVED) for term, scores in self.scores.items()}
        if self.request.target is None:
            return normalised(self.axes, self.scores)
        units = ["flops" if unit == LATENCY else unit for unit in self.request.target]
        savings = {term: saving * term.size for term, saving in self._saved(list(dict.fromkeys(units))).items()}
        return worths(self.scores, weights_along(self.axes), savings)

    def _saved(self, units: list[str]) -> dict[Term, float]:
        """Which share of these sizes goes with the first index of each chosen axis, the mean over them."""
        chosen = [axis for axis in self.independent if axis.term not in self.given]
        formula = self._formula(units)
        savings = [formula.savings([axis.number for axis in chosen], unit) for unit in units]
        return {axis.term: float(saved) for axis, saved in zip(chosen, np.mean(savings, axis=0), strict=True)}
