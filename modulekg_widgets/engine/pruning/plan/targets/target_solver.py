"""Solves for a plan with target sizes: search on formulas, dry run, and search again with the corrections.

Each round asks `size_search` for counts, dry-runs and corrects them (`repair_loop`), and adds the corrections
to the search. The nearest candidate is verified at the end. Several goals are met together if possible;
otherwise they are budgets, and the tightest one is met. `infeasible` words the errors if no candidate
comes near.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from modulekg_widgets.engine.axes.terms.algebra import Term, atoms
from modulekg_widgets.engine.errors import CutError
from modulekg_widgets.engine.profiling.timing import LatencyComparison
from modulekg_widgets.engine.pruning.plan.corrections.candidate import ATTRIBUTE, PlanCandidate
from modulekg_widgets.engine.pruning.plan.corrections.constraint_solver import solve_constraints
from modulekg_widgets.engine.pruning.plan.dry_run.dry_run import DryRunResult
from modulekg_widgets.engine.pruning.plan.selection.counts import Floats, Ints
from modulekg_widgets.engine.pruning.plan.selection.request import LATENCY
from modulekg_widgets.engine.pruning.plan.selection.selection import Selection
from modulekg_widgets.engine.pruning.plan.sizes.size_model import SizeModel
from modulekg_widgets.engine.pruning.plan.targets.latency_search import LatencySearch, MeasuredCut, Proposal
from modulekg_widgets.engine.pruning.plan.targets.size_search import SearchContext, SizeSearch
from modulekg_widgets.engine.pruning.plan.targets.target_solution import (
    GOOD_ENOUGH,
    LATENCY_TOLERANCE,
    TOLERANCE,
    TargetSolution,
)

MAX_ROUNDS = 6  # of search and dry run
MAX_VERIFICATIONS = 3
LARGER_RATIOS = (0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95)  # of the way to everything, where a choice does not do
log = logging.getLogger("modulekg_widgets")

CountSizes = Callable[[PlanCandidate, DryRunResult], Mapping[str, tuple[float, float]]]
FixCandidate = Callable[[PlanCandidate], tuple[PlanCandidate, DryRunResult]]
VerifyCandidate = Callable[[PlanCandidate, PlanCandidate, DryRunResult], tuple[PlanCandidate, DryRunResult]]


class TargetSolver:
    """Finds the candidate for target sizes.

    `fix` corrects a candidate until it runs, `verify` compares it with the masked model; `selection_of` makes a
    selection of what stays of the chosen axes; `sizes` counts what a candidate leaves; `ungrouped_search` ties nothing,
    where `search` takes for granted what may not be so.
    """

    def __init__(
        self,
        search: SizeSearch,
        fix: FixCandidate,
        verify: VerifyCandidate,
        selection_of: Callable[[Ints], Selection],
        sizes: CountSizes,
        goals: Floats,
        ungrouped_search: SizeSearch | None = None,
    ) -> None:
        self.search = search
        self.fix = fix
        self.verify = verify
        self.selection_of = selection_of
        self.sizes = sizes
        self.goals = goals
        self.ungrouped_search = ungrouped_search
        self.formula = search.formula
        self.places = {axis.term: at for at, axis in enumerate(search.counts.chosen)}
        self.last_error: CutError | None = None  # what the last choice that does not run said
        self.nearest: TargetSolution | None = None  # of all that ran

    def solve(self) -> TargetSolution | None:
        """The nearest verified candidate; None if none is small enough.

        Several goals are budgets: where they cannot all be met, the tightest is, and the others are kept.
        """
        search, apart = self.search, self.ungrouped_search
        found = self._solve()
        if len(self.goals) == 1 or (
            found is not None and found.gaps.min() >= -TOLERANCE and self.missed_goal(found) is None
        ):
            return found
        self.search, self.ungrouped_search = search.as_budget_search(), apart and apart.as_budget_search()
        own = self._solve()
        if own is not None and own.gaps.min() >= -TOLERANCE:
            return own
        return None if found is None else replace(found, is_budget=True)

    def _solve(self) -> TargetSolution | None:
        best, proved = self._search_rounds(None), None
        if self.ungrouped_search is not None and (best is None or best.error > TOLERANCE):
            self.search = self.ungrouped_search
            best = min(
                (each for each in (best, self._search_rounds(None)) if each), key=lambda each: each.error, default=None
            )
        for _ in range(MAX_VERIFICATIONS):
            if best is None:
                return None
            start = best.candidate if best.candidate.strict else self._start(best.candidate.selection, None)
            attempt, rehearsal = self.verify(start, best.candidate, best.dry_run)
            if attempt.selection.counts == best.candidate.selection.counts:
                return replace(best, candidate=attempt, dry_run=rehearsal)
            proved = self._measure(attempt, rehearsal)
            best = None if proved.error <= TOLERANCE else self._search_rounds(attempt)
            if best is None:
                break
        return proved

    def smallest(self) -> TargetSolution | None:
        """The candidate with the largest ratio; None if it does not run."""
        return self._run_choice(self.search.counts.at_ratio(1.0), None)

    def missed_goal(self, solution: TargetSolution) -> int | None:
        """The goal that is missed although steps would come nearer; else None.

        A single goal is so where the least that may go takes more, and so is the tightest of budgets; of several goals
        that are all to be met one is where the others keep it.
        """
        worst = int(np.argmin(solution.gaps) if solution.is_budget else np.argmax(solution.gaps))
        if solution.gaps[worst] <= TOLERANCE:
            return None
        wanted = solution.candidate.wanted
        stay = np.array([wanted.get(axis.term, axis.size) for axis in self.search.counts.chosen], dtype=np.int64)
        if len(self.goals) == 1 or solution.is_budget:
            return worst if (stay >= self.search.counts.at_ratio(0.0)).all() else None
        ground = self._context(solution.candidate)
        steps = self.search.neighbours(stay, ground, (1, -1))
        largest = np.abs(self.search.gaps(steps, self.goals, ground) - self.search.gaps(stay, self.goals, ground))
        return worst if solution.gaps[worst] > largest[:, worst].max() else None

    # --------------------------------------------------------------- rounds

    def _search_rounds(self, known: PlanCandidate | None) -> TargetSolution | None:
        """The best candidate of some rounds of search and dry run."""
        goals, best, went_further = self.goals, None, False
        for _ in range(MAX_ROUNDS):
            # what the code demands shows where all axes give alike; sizes that differ much may run into nothing else
            is_look = known is None and len(goals) > 1 and not self.search.is_budget
            search = self.search.by_ratio if is_look else self.search.nearest
            stay = search(goals, self._context(known))
            now = None if stay is None else self._run_choice(stay, known)
            if now is None:
                if went_further or (best is not None and best.gaps.min() >= -TOLERANCE):
                    break
                went_further, now = True, self._with_larger_ratio(known)
                if now is None:
                    break
            is_better = best is None or now.error < best.error
            best = now if is_better or best is None else best
            counts = self.formula.counts_of(now.candidate.selection.counts)
            expected = self.formula.sizes(counts)
            is_as_planned = known is now.candidate or (
                now.candidate.wanted == now.candidate.selection.counts and (expected == now.sizes).all()
            )
            has_learnt = _correction_count(now.candidate) > _correction_count(known)
            if now.error <= GOOD_ENOUGH or not (is_look or (is_better and not is_as_planned) or has_learnt):
                break
            known = now.candidate
            goals = self.goals + (expected - now.sizes)
        if best is not None and best.gaps.min() < -TOLERANCE and not went_further:
            now = self._with_larger_ratio(best.candidate)
            best = now if now is not None and now.error < best.error else best
        return best

    def _run_choice(self, stay: Ints, known: PlanCandidate | None) -> TargetSolution | None:
        """The corrected candidate for a choice; None if it does not run."""
        attempt = self._start(self.selection_of(stay), known)
        if not attempt.selection.changed:
            return None
        try:
            return self._measure(*self.fix(attempt))
        except CutError as error:
            log.debug("a choice does not run: %s", error)
            self.last_error = error
            return None

    def _measure(self, candidate: PlanCandidate, result: DryRunResult) -> TargetSolution:
        counted = self.sizes(candidate, result)
        left = np.array([counted[unit][1] for unit in self.formula.units], dtype=np.float64)
        gaps = (self.goals - left) / np.maximum(self.formula.before, 1.0)
        tried = TargetSolution(candidate, result, left, gaps, self.search.is_budget)
        if self.nearest is None or tried.error < self.nearest.error:
            self.nearest = tried
        return tried

    def _with_larger_ratio(self, known: PlanCandidate | None) -> TargetSolution | None:
        """A candidate with a larger ratio, if the present one does not run or is too large."""
        fresh = self._without_pins(known)
        ground = self._context(fresh)
        for ratio in LARGER_RATIOS:
            stay = self.search.counts.at_ratio(ratio)
            if (self.search.gaps(stay, self.goals, ground) < 0).any():
                continue
            now = self._run_choice(stay, fresh)
            if now is not None and now.gaps.min() >= -TOLERANCE:
                return now
        return None

    def _without_pins(self, known: PlanCandidate | None) -> PlanCandidate | None:
        """The known attribute corrections, without pinned axes."""
        if known is None:
            return None
        changes = tuple(change for change in known.changes if change.kind == ATTRIBUTE)
        return replace(known, selection=replace(known.selection, pinned={}), constraints=(), changes=changes, wanted={})

    # ------------------------------------------------------------- attempts

    def _start(self, selection: Selection, known: PlanCandidate | None) -> PlanCandidate:
        """A new candidate with the corrections of earlier ones."""
        if known is None:
            return PlanCandidate(replace(selection, pinned={}), selection.counts)
        pinned = known.selection.pinned
        whole = {term: term.size for term in pinned if term in selection.counts}
        begun = replace(selection, counts={**selection.counts, **whole}, pinned=pinned)
        constraints = (*known.constraints, *known.shared_constraints)
        settled = solve_constraints(begun, constraints, begun.counts) if constraints else begun
        return replace(known, selection=settled or begun, wanted=begun.counts)

    def _context(self, known: PlanCandidate | None) -> SearchContext:
        """The search context for the known corrections."""
        counts = self.search.counts
        base = self.formula.counts_of(self.selection_of(counts.sizes).counts)
        own = np.array([axis.number for axis in counts.chosen], dtype=np.int64)
        tied = self._tied_groups(known)
        pinned = [] if known is None else [at for term, at in self.places.items() if term in known.selection.pinned]
        settled: dict[bytes, Ints] = {}

        def settle(stay: Ints) -> Ints:
            found = np.repeat(base[None], len(stay), axis=0)
            found[:, own] = stay
            found[:, own[pinned]] = counts.sizes[pinned]
            return np.array([constrained(row, each) for row, each in zip(found, stay, strict=True)]) if tied else found

        def constrained(row: Ints, stay: Ints) -> Ints:
            key = stay[np.concatenate(tied)].tobytes()
            if key not in settled:
                after = self.formula.counts_of(self._start(self.selection_of(stay), known).selection.counts)
                settled[key] = np.where(after == row, -1, after)
            return np.where(settled[key] < 0, row, settled[key])

        apart = {*pinned, *(int(at) for mover in tied for at in mover)}
        alone = [mover for mover in counts.group_arrays.groups if apart.isdisjoint(mover.tolist())]
        return SearchContext(settle, [*alone, *tied])

    def _tied_groups(self, known: PlanCandidate | None) -> list[Ints]:
        """The chosen axes that size constraints tie together."""
        groups: list[set[int]] = []
        for constraint in (*known.constraints, *known.shared_constraints) if known is not None else ():
            terms = [constraint.left, *([constraint.right] if constraint.right is not None else [])]
            own = {
                self.places[atom] for term in terms for atom in self._with_group_members(term) if atom in self.places
            }
            for group in [group for group in groups if group & own]:
                groups.remove(group)
                own |= group
            if own:
                groups.append(own)
        pinned = known.selection.pinned if known is not None else {}
        free = [sorted(at for at in group if self.search.counts.chosen[at].term not in pinned) for group in groups]
        return [np.array(group) for group in free if group]

    def _with_group_members(self, term: Term) -> list[Term]:
        """The axes of a dimension and their groups."""
        return self.search.counts.proportions.with_group_members(atoms(term))


def _correction_count(known: PlanCandidate | None) -> int:
    """The number of size corrections of a candidate."""
    return 0 if known is None else len(known.constraints) + len(known.shared_constraints) + len(known.selection.pinned)


# -------------------- Targets that include milliseconds


class LatencyTarget:
    """Finds the cut for a target that includes milliseconds.

    `solver_for` solves for goals with sizes in multiples of a number, `explain` says why it cannot; `measure` times a
    candidate, the more exactly the second time. `formula` has the milliseconds of the uncut modules, which are taken to
    go down as their FLOPs.
    """

    def __init__(
        self,
        formula: SizeModel,
        goals: Floats,
        multiples: Sequence[int],
        solver_for: Callable[[int, Floats], TargetSolver],
        explain: Callable[[int, Floats, TargetSolver, TargetSolution | None], CutError],
        measure: Callable[[PlanCandidate, bool], LatencyComparison],
    ) -> None:
        self.formula = formula
        self.goals = goals
        self.multiples = multiples
        self.solver_for = solver_for
        self.explain = explain
        self.measure = measure
        self.at = formula.units.index(LATENCY)
        self.wanted = float(goals[self.at] / formula.before[self.at])
        self._infeasible_error: Callable[[], CutError] | None = None

    def solve(self) -> MeasuredCut:
        """The nearest cut; raises `CutError` if none is near, or none is faster than the model."""
        found = LatencySearch(self.wanted, self._propose, self._measure, self.multiples).run()
        if found is None:
            assert self._infeasible_error is not None
            raise self._infeasible_error()
        return found

    def is_too_slow(self, found: MeasuredCut) -> bool:
        """True if a cut is far slower than requested, or slower than the model."""
        return found.share > min(self.wanted * (1 + LATENCY_TOLERANCE), 1.0)

    def _measure(self, solution: TargetSolution, thorough: bool) -> LatencyComparison:
        return self.measure(solution.candidate, thorough)

    def _propose(self, share: float, round_to: int) -> Proposal | None:
        """The cut for an estimated share, or the smallest one; None if there is none."""
        found = self._solve(share * float(self.formula.before[self.at]), round_to)
        if found is None:
            return None
        return Proposal(found, float(found.sizes[self.at] / self.formula.before[self.at]), found.has_slack(self.at))

    def _solve(self, estimate: float, round_to: int, is_least: bool = False) -> TargetSolution | None:
        goals = self.goals.copy()
        goals[self.at] = estimate
        solver = self.solver_for(round_to, goals)
        found = solver.solve()
        if found is not None and found.gaps.min() >= -TOLERANCE:
            return found
        if not is_least and (found is None or found.gaps[self.at] < -TOLERANCE):
            least = solver.smallest()
            if least is not None:
                return self._solve(
                    float(least.sizes[self.at] + TOLERANCE * self.formula.before[self.at] / 2), round_to, True
                )
        # why, is asked where no rounding does: it takes other plans to tell
        self._infeasible_error = self._infeasible_error or (lambda: self.explain(round_to, goals, solver, found))
        return None


def target_goals(target: Mapping[str, float], formula: SizeModel, whole: float = 1.0) -> Floats:
    """The goals by unit, with milliseconds in units of the estimate."""
    before = dict(zip(formula.units, formula.before.tolist(), strict=True))

    def goal(unit: str, wanted: float) -> float:
        if wanted < 1:
            return wanted * before[unit]
        return wanted / whole * before[unit] if unit == LATENCY else wanted

    return np.array([goal(unit, wanted) for unit, wanted in target.items()])
