"""Cache of corrections that helped, tried first on the same line of code in other modules of the class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from modulekg_widgets.engine.axes.terms.algebra import ATOM, Term, find
from modulekg_widgets.engine.pruning.plan.corrections.candidate import CONSTRAINT, PINNED, PlanCandidate
from modulekg_widgets.engine.pruning.plan.corrections.corrections import Corrections
from modulekg_widgets.engine.pruning.plan.corrections.dim_locations import DimLocation, dim_at, locate_dim
from modulekg_widgets.engine.pruning.plan.corrections.size_conflict import SizeConflict
from modulekg_widgets.engine.pruning.plan.dry_run.dry_run import DryRunResult, Mismatch
from modulekg_widgets.engine.pruning.plan.selection.selection import SizeConstraint

CodeLine = tuple[type, str]  # a class of modules, and the line of its code


class CachedCorrection(NamedTuple):
    """A correction by the locations of its dimensions."""

    kind: str
    locations: tuple[DimLocation, ...]
    times: int = 1


class CorrectionCache:
    """The corrections that helped, by module class and line of code."""

    def __init__(self, corrections: Corrections, rerun: Callable[[PlanCandidate, int], DryRunResult]) -> None:
        self.axes = corrections.axes
        self.corrections = corrections
        self.rerun = rerun
        self._cache: dict[CodeLine, dict[CachedCorrection, None]] = {}

    def add(self, conflict: SizeConflict, trial: PlanCandidate) -> None:
        """Store the correction that led from the candidate of a conflict to another."""
        line, kind = _code_line(conflict), trial.changes[-1].kind
        times, terms = 1, []
        if kind == CONSTRAINT:
            constraint = trial.constraints[-1]
            times, terms = constraint.times, [constraint.left, *([constraint.right] if constraint.right else [])]
        elif kind == PINNED:
            terms = [atom for atom in trial.selection.pinned if atom not in conflict.candidate.selection.pinned]
        if line is None or not terms:
            return
        places = [locate_dim(self.axes, term, conflict.path) for term in terms]
        found = tuple(place for place in places if place is not None)
        if len(found) == len(terms):
            self._cache.setdefault(line, {})[CachedCorrection(kind, found, times)] = None

    def candidates(self, conflict: SizeConflict, include_met: bool = False) -> Iterator[PlanCandidate]:
        """The candidates with the stored corrections, in the module of the conflict.

        `include_met`: also where a constraint holds already, as a search over other sizes has to know of it.
        """
        line, candidate, where = _code_line(conflict), conflict.candidate, conflict.mismatch.where
        for kind, places, times in reversed(self._cache.get(line, {})) if line is not None else ():
            terms = [term for place in places if (term := dim_at(self.axes, conflict.path, place)) is not None]
            if len(terms) != len(places):
                continue
            if kind == CONSTRAINT:
                other = terms[1] if len(terms) > 1 else None
                if other is not None:  # one index may be more heads there than here
                    times, rest = divmod(other.size, max(terms[0].size, 1))
                    if rest:
                        continue
                constraint = SizeConstraint(terms[0], other, times)
                is_met = constraint.is_met(candidate.selection)
                if not is_met or (include_met and constraint not in candidate.constraints):
                    found = self.corrections.with_constraint(candidate, constraint, where)
                    if found is not None:
                        yield found
            elif all(_is_cut(candidate, term) for term in terms):
                yield self.corrections.with_pinned(candidate, [find(term) for term in terms], where)

    def apply_everywhere(self, conflict: SizeConflict, candidate: PlanCandidate) -> PlanCandidate:
        """The candidate with the last correction applied to all modules that need it."""
        for mismatch in self._same_calls(conflict):
            here = replace(conflict, candidate=candidate, mismatch=mismatch)
            trial = next(self.candidates(here, include_met=True), None)
            if trial is None or (trial.changes[-1].kind == PINNED and not self._stops_there(here)):
                continue
            candidate = trial
        return candidate

    def _same_calls(self, conflict: SizeConflict) -> Iterator[Mismatch]:
        """Mismatches at the same line of code in other modules of the class."""
        first, line = conflict.mismatch.operator, _code_line(conflict)
        if first is None or line is None:
            return
        homes = {first.module}
        for operator in self.axes.graph.operators:
            if (operator.overload, operator.source) != (first.overload, first.source) or operator.module in homes:
                continue
            here = Mismatch(operator.index, operator, (), where=operator.where)
            if _code_line(replace(conflict, mismatch=here)) == line:
                homes.add(operator.module)
                yield here

    def _stops_there(self, conflict: SizeConflict) -> bool:
        """True if a dry run stops at that line of that module."""
        found = self.rerun(conflict.candidate, conflict.mismatch.position).mismatch
        if found is None:
            return False
        stop = replace(conflict, mismatch=found)
        return (stop.path, _code_line(stop)) == (conflict.path, _code_line(conflict))


def _is_cut(candidate: PlanCandidate, term: Term) -> bool:
    return find(term).kind == ATOM and find(term) in candidate.selection.changed


def _code_line(conflict: SizeConflict) -> CodeLine | None:
    if conflict.module is None:
        return None
    return type(conflict.module.module), conflict.mismatch.where.rpartition(", ")[2]
