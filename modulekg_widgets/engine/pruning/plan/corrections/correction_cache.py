"""Cache of corrections that helped, tried first on the same line of code in other modules of the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.terms.algebra import ATOM, Term, find
from modulekg_widgets.engine.pruning.plan.corrections.candidate import CONSTRAINT, PINNED, PlanCandidate
from modulekg_widgets.engine.pruning.plan.corrections.corrections import Corrections, DimLocation, dim_at, locate_dim
from modulekg_widgets.engine.pruning.plan.corrections.size_constraints import SizeConstraint
from modulekg_widgets.engine.pruning.plan.dry_run.dry_run import Mismatch

CodeLine = tuple[type, str]  # a class of modules, and the line of its code


class CachedCorrection(NamedTuple):
    """A correction by the locations of its dimensions."""

    kind: str
    locations: tuple[DimLocation, ...]
    times: int = 1


class CorrectionCache:
    """The corrections that helped, by module class and line of code."""

    def __init__(self, axes: Axes, corrections: Corrections) -> None:
        self.axes = axes
        self.corrections = corrections
        self._cache: dict[CodeLine, dict[CachedCorrection, None]] = {}

    def add(self, candidate: PlanCandidate, trial: PlanCandidate, mismatch: Mismatch) -> None:
        """Store the correction that led from one candidate to another."""
        spot, home = self._code_line(mismatch), _module_path(mismatch)
        kind = trial.changes[-1].kind
        times, terms = 1, []
        if kind == CONSTRAINT:
            constraint = trial.constraints[-1]
            times, terms = constraint.times, [constraint.left, *([constraint.right] if constraint.right else [])]
        elif kind == PINNED:
            terms = [atom for atom in trial.selection.pinned if atom not in candidate.selection.pinned]
        places = [place for term in terms if spot and (place := locate_dim(self.axes, term, home)) is not None]
        if spot is not None and places and len(places) == len(terms):
            self._cache.setdefault(spot, {})[CachedCorrection(kind, tuple(places), times)] = None

    def candidates(
        self, candidate: PlanCandidate, mismatch: Mismatch, include_met: bool = False
    ) -> Iterator[PlanCandidate]:
        """The candidates with the stored corrections, in the module of the mismatch."""
        spot = self._code_line(mismatch)
        for kind, places, times in reversed(self._cache.get(spot, {})) if spot is not None else ():
            terms = [term for place in places if (term := dim_at(self.axes, _module_path(mismatch), place)) is not None]
            if len(terms) != len(places):
                continue
            if kind == CONSTRAINT:
                other = terms[1] if len(terms) > 1 else None
                if other is not None:  # one index may be more heads there than here
                    times, rest = divmod(other.size, max(terms[0].size, 1))
                    if rest:
                        continue
                constraint = SizeConstraint(terms[0], other, times)
                yield from self.corrections.with_constraints(candidate, mismatch, [constraint], include_met)
            elif all(self._is_cut(candidate, term) for term in terms):
                yield self.corrections.with_pinned(candidate, [find(term) for term in terms], mismatch)

    def apply_everywhere(self, candidate: PlanCandidate, mismatch: Mismatch) -> PlanCandidate:
        """The candidate with the last correction applied to all modules that need it."""
        for here in self._same_calls(mismatch):
            trial = next(self.candidates(candidate, here, include_met=True), None)
            if trial is None or (trial.changes[-1].kind == PINNED and not self._stops_there(candidate, here)):
                continue
            candidate = trial
        return candidate

    def _same_calls(self, mismatch: Mismatch) -> Iterator[Mismatch]:
        """Mismatches at the same line of code in other modules of the class."""
        first, spot = mismatch.operator, self._code_line(mismatch)
        if first is None or spot is None:
            return
        homes = {first.module}
        for operator in self.axes.graph.operators:
            if (operator.overload, operator.source) != (first.overload, first.source) or operator.module in homes:
                continue
            here = Mismatch(operator.index, operator, (), where=operator.where)
            if self._code_line(here) == spot:
                homes.add(operator.module)
                yield here

    def _stops_there(self, candidate: PlanCandidate, mismatch: Mismatch) -> bool:
        """True if a dry run stops at that line of that module."""
        found = self.corrections.rerun(candidate, mismatch.position).mismatch
        return found is not None and (_module_path(found), self._code_line(found)) == (
            _module_path(mismatch),
            self._code_line(mismatch),
        )

    def _is_cut(self, candidate: PlanCandidate, term: Term) -> bool:
        return find(term).kind == ATOM and find(term) in candidate.selection.changed

    def _code_line(self, mismatch: Mismatch) -> CodeLine | None:
        operator = mismatch.operator
        if operator is None or operator.module not in self.axes.graph.modules:
            return None
        return type(self.axes.graph.modules[operator.module].module), mismatch.where.rpartition(", ")[2]


def _module_path(mismatch: Mismatch) -> str:
    return "" if mismatch.operator is None else mismatch.operator.module
