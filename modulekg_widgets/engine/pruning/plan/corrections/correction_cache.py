"""Corrections that helped once, tried first for the same line of code in other modules of the same class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.terms.algebra import ATOM, Term, find
from modulekg_widgets.engine.pruning.plan.corrections.candidate import CONSTRAINT, WHOLE, Attempt
from modulekg_widgets.engine.pruning.plan.corrections.corrections import Corrections, Place, place_of, term_at
from modulekg_widgets.engine.pruning.plan.corrections.size_constraints import SizeConstraint
from modulekg_widgets.engine.pruning.plan.dry_run.dry_run import Mismatch

Spot = tuple[type, str]  # a class of modules, and the line of its code


class Precedent(NamedTuple):
    """A correction by the places that it was about: of a size constraint both sides, of axes that stayed whole each."""

    kind: str
    places: tuple[Place, ...]
    times: int = 1


class Precedents:
    """The corrections that helped, by the class of the module and the line of its code."""

    def __init__(self, axes: Axes, corrections: Corrections) -> None:
        self.axes = axes
        self.corrections = corrections
        self._known: dict[Spot, dict[Precedent, None]] = {}

    def add(self, attempt: Attempt, trial: Attempt, mismatch: Mismatch) -> None:
        """Remember what made `trial` of `attempt`."""
        spot, home = self._spot(mismatch), _home(mismatch)
        kind = trial.changes[-1].kind
        times, terms = 1, []
        if kind == CONSTRAINT:
            constraint = trial.constraints[-1]
            times, terms = constraint.times, [constraint.left, *([constraint.right] if constraint.right else [])]
        elif kind == WHOLE:
            terms = [atom for atom in trial.selection.pinned if atom not in attempt.selection.pinned]
        places = [place for term in terms if spot and (place := place_of(self.axes, term, home)) is not None]
        if spot is not None and places and len(places) == len(terms):
            self._known.setdefault(spot, {})[Precedent(kind, tuple(places), times)] = None

    def of(self, attempt: Attempt, mismatch: Mismatch, may_hold: bool = False) -> Iterator[Attempt]:
        """The attempts with the same corrections, in the module at work; `may_hold` as of `constrained`."""
        spot = self._spot(mismatch)
        for kind, places, times in reversed(self._known.get(spot, {})) if spot is not None else ():
            terms = [term for place in places if (term := term_at(self.axes, _home(mismatch), place)) is not None]
            if len(terms) != len(places):
                continue
            if kind == CONSTRAINT:
                other = terms[1] if len(terms) > 1 else None
                if other is not None:  # one index may be more heads there than here
                    times, rest = divmod(other.size, max(terms[0].size, 1))
                    if rest:
                        continue
                constraint = SizeConstraint(terms[0], other, times)
                yield from self.corrections.constrained(attempt, mismatch, [constraint], may_hold)
            elif all(self._is_cut(attempt, term) for term in terms):
                yield self.corrections.spared(attempt, [find(term) for term in terms], mismatch)

    def everywhere(self, attempt: Attempt, mismatch: Mismatch) -> Attempt:
        """The attempt with what helped at one place at all places of the same code that need it as well."""
        for here in self._alike(mismatch):
            trial = next(self.of(attempt, here, may_hold=True), None)
            if trial is None or (trial.changes[-1].kind == WHOLE and not self._stops(attempt, here)):
                continue
            attempt = trial
        return attempt

    def _alike(self, mismatch: Mismatch) -> Iterator[Mismatch]:
        """The calls of the same operator in the same line, in other modules of the class, as places to correct."""
        first, spot = mismatch.operator, self._spot(mismatch)
        if first is None or spot is None:
            return
        homes = {first.module}
        for operator in self.axes.graph.operators:
            if (operator.overload, operator.source) != (first.overload, first.source) or operator.module in homes:
                continue
            here = Mismatch(operator.index, operator, (), where=operator.where)
            if self._spot(here) == spot:
                homes.add(operator.module)
                yield here

    def _stops(self, attempt: Attempt, mismatch: Mismatch) -> bool:
        """Whether a dry run stops in that line of that module: axes are spared where this is seen."""
        found = self.corrections.near(attempt, mismatch.position).mismatch
        return found is not None and (_home(found), self._spot(found)) == (_home(mismatch), self._spot(mismatch))

    def _is_cut(self, attempt: Attempt, term: Term) -> bool:
        return find(term).kind == ATOM and find(term) in attempt.selection.changed

    def _spot(self, mismatch: Mismatch) -> Spot | None:
        operator = mismatch.operator
        if operator is None or operator.module not in self.axes.graph.modules:
            return None
        return type(self.axes.graph.modules[operator.module].module), mismatch.where.rpartition(", ")[2]


def _home(mismatch: Mismatch) -> str:
    return "" if mismatch.operator is None else mismatch.operator.module
