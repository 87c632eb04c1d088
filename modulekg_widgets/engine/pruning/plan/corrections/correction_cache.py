"""Cache of corrections that helped, tried first on the same line of code in other modules of the class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from modulekg_widgets.engine.axes.terms.algebra import ATOM, Term, find
from modulekg_widgets.engine.pruning.plan.corrections.candidate import CONSTRAINT, PINNED, PlanCandidate
from modulekg_widgets.engine.pruning.plan.corrections.correction_kinds import Corrections
from modulekg_widgets.engine.pruning.plan.corrections.dim_locations import DimLocation, dim_at, locate_dim
from modulekg_widgets.engine.pruning.plan.corrections.failed_dry_run import FailedDryRun
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

    def add(self, failure: FailedDryRun, trial: PlanCandidate) -> None:
        """Store the correction that led from the candidate of a failed dry run to another."""
        line, kind = _code_line(failure), trial.changes[-1].kind
        times, terms = 1, []
        if kind == CONSTRAINT:
            constraint = trial.constraints[-1]
            times, terms = constraint.times, [constraint.left, *([constraint.right] if constraint.right else [])]
        elif kind == PINNED:
            terms = [atom for atom in trial.selection.pinned if atom not in failure.candidate.selection.pinned]
        if line is None or not terms:
            return
        places = [locate_dim(self.axes, term, failure.path) for term in terms]
        found = tuple(place for place in places if place is not None)
        if len(found) == len(terms):
            self._cache.setdefault(line, {})[CachedCorrection(kind, found, times)] = None

    def candidates(self, failure: FailedDryRun, include_met: bool = False) -> Iterator[PlanCandidate]:
        """The candidates with the stored corrections, in the module where a dry run failed.

        `include_met`: also where a constraint holds already, as a search over other sizes has to know of it.
        """
        line, candidate, where = _code_line(failure), failure.candidate, failure.mismatch.where
        for kind, places, times in reversed(self._cache.get(line, {})) if line is not None else ():
            terms = [term for place in places if (term := dim_at(self.axes, failure.path, place)) is not None]
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

    def apply_everywhere(self, failure: FailedDryRun, candidate: PlanCandidate) -> PlanCandidate:
        """The candidate with the last correction applied to all modules that need it."""
        for mismatch in self._same_calls(failure):
            here = replace(failure, candidate=candidate, mismatch=mismatch)
            trial = next(self.candidates(here, include_met=True), None)
            if trial is None or (trial.changes[-1].kind == PINNED and not self._stops_there(here)):
                continue
            candidate = trial
        return candidate

    def _same_calls(self, failure: FailedDryRun) -> Iterator[Mismatch]:
        """Mismatches at the same line of code in other modules of the class."""
        first, line = failure.mismatch.operator, _code_line(failure)
        if first is None or line is None:
            return
        homes = {first.module}
        for operator in self.axes.graph.operators:
            if (operator.overload, operator.source) != (first.overload, first.source) or operator.module in homes:
                continue
            here = Mismatch(operator.index, operator, (), where=operator.where)
            if _code_line(replace(failure, mismatch=here)) == line:
                homes.add(operator.module)
                yield here

    def _stops_there(self, failure: FailedDryRun) -> bool:
        """True if a dry run stops at that line of that module."""
        found = self.rerun(failure.candidate, failure.mismatch.position).mismatch
        if found is None:
            return False
        stop = replace(failure, mismatch=found)
        return (stop.path, _code_line(stop)) == (failure.path, _code_line(failure))


def _is_cut(candidate: PlanCandidate, term: Term) -> bool:
    return find(term).kind == ATOM and find(term) in candidate.selection.changed


def _code_line(failure: FailedDryRun) -> CodeLine | None:
    if failure.module is None:
        return None
    return type(failure.module.module), failure.mismatch.where.rpartition(", ")[2]
