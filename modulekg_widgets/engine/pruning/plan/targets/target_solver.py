"""A plan for the sizes that were asked for: searched on formulas, tried in dry runs, and searched again where they say
otherwise."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from modulekg_widgets.engine.axes.terms.algebra import Term, atoms
from modulekg_widgets.engine.errors import CutError
from modulekg_widgets.engine.pruning.plan.corrections.candidate import ATTRIBUTE, Attempt
from modulekg_widgets.engine.pruning.plan.corrections.repair import Repair
from modulekg_widgets.engine.pruning.plan.corrections.size_constraints import solved
from modulekg_widgets.engine.pruning.plan.dry_run.dry_run import Rehearsal
from modulekg_widgets.engine.pruning.plan.selection.counts import Floats, Ints
from modulekg_widgets.engine.pruning.plan.selection.selection import Selection
from modulekg_widgets.engine.pruning.plan.targets.search import ENOUGH, MEETS, Ground, Search

MOST_ROUNDS = 6  # of search and dry run
MOST_PROOFS = 3
FURTHER = (0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95)  # of the way to everything, where a choice does not do
log = logging.getLogger("modulekg_widgets")

Sizes = Callable[[Attempt, Rehearsal], Mapping[str, tuple[float, float]]]


@dataclass(frozen=True)
class Tried:
    """An attempt that runs, and how far what it leaves is below the goals, relative to the model."""

    attempt: Attempt
    rehearsal: Rehearsal
    left: Floats
    gaps: Floats
    as_budgets: bool = False  # of several goals the tightest is to be met, and the others are kept

    @property
    def miss(self) -> float:
        """How far it is off, where more than the goals counts as far more."""
        gaps = self.gaps.min(keepdims=True) if self.as_budgets else self.gaps
        return float(np.max(np.where(gaps >= 0, gaps, np.where(gaps >= -MEETS, MEETS, 1.0) - gaps)))

    def has_room(self, at: int) -> bool:
        """Whether a goal is a budget of which more is left over than of the tightest."""
        return self.as_budgets and bool(self.gaps[at] > max(MEETS, float(self.gaps.min())))


class Targeting:
    """Finds the attempt that leaves what was asked for.

    `selection_of` makes a selection of what stays of the chosen axes; `sizes` counts what an attempt leaves; `apart`: a
    search that ties nothing, where `search` takes for granted what may not be so.
    """

    def __init__(
        self,
        search: Search,
        repair: Repair,
        selection_of: Callable[[Ints], Selection],
        sizes: Sizes,
        goals: Floats,
        apart: Search | None = None,
    ) -> None:
        self.search = search
        self.repair = repair
        self.selection_of = selection_of
        self.sizes = sizes
        self.goals = goals
        self.apart = apart
        self.formula = search.formula
        self.places = {axis.term: at for at, axis in enumerate(search.counts.chosen)}
        self._numbers = {axis.term: axis.number for axis in repair.axes}
        self.failed: CutError | None = None  # what the last choice that does not run said
        self.nearest: Tried | None = None  # of all that ran

    def found(self) -> Tried | None:
        """The attempt that comes nearest and computes what it should; None where none leaves so little.

        Several goals are budgets: where they cannot all be met, the tightest is, and the others are kept.
        """
        search, apart = self.search, self.apart
        found = self._found()
        if len(self.goals) == 1 or (found is not None and found.gaps.min() >= -MEETS and self.missed(found) is None):
            return found
        self.search, self.apart = search.with_budgets(), apart and apart.with_budgets()
        own = self._found()
        if own is not None and own.gaps.min() >= -MEETS:
            return own
        return None if found is None else replace(found, as_budgets=True)

    def _found(self) -> Tried | None:
        best, proved = self._tried(None), None
        if self.apart is not None and (best is None or best.miss > MEETS):
            self.search = self.apart
            best = min((each for each in (best, self._tried(None)) if each), key=lambda each: each.miss, default=None)
        for _ in range(MOST_PROOFS):
            if best is None:
                return None
            start = best.attempt if best.attempt.strict else self._begun(best.attempt.selection, None)
            attempt, rehearsal = self.repair.confirmed(start, best.attempt, best.rehearsal)
            if attempt.selection.counts == best.attempt.selection.counts:
                return replace(best, attempt=attempt, rehearsal=rehearsal)
            proved = self._measured(attempt, rehearsal)
            best = None if proved.miss <= MEETS else self._tried(attempt)
            if best is None:
                break
        return proved

    def smallest(self) -> Tried | None:
        """What is left when all goes that may; None where that does not run."""
        return self._run(self.search.counts.of(1.0), None)

    def missed(self, found: Tried) -> int | None:
        """The goal of which far less is left although steps would come nearer; None where there is none.

        A single goal is so where the least that may go takes more, and so is the tightest of budgets; of several goals
        that are all to be met one is where the others keep it.
        """
        worst = int(np.argmin(found.gaps) if found.as_budgets else np.argmax(found.gaps))
        if found.gaps[worst] <= MEETS:
            return None
        wanted = found.attempt.wanted
        stay = np.array([wanted.get(axis.term, axis.size) for axis in self.search.counts.chosen], dtype=np.int64)
        if len(self.goals) == 1 or found.as_budgets:
            return worst if (stay >= self.search.counts.of(0.0)).all() else None
        ground = self._ground(found.attempt)
        steps = self.search.all_stepped(stay, ground, (1, -1))
        largest = np.abs(self.search.gaps(steps, self.goals, ground) - self.search.gaps(stay, self.goals, ground))
        return worst if found.gaps[worst] > largest[:, worst].max() else None

    # --------------------------------------------------------------- rounds

    def _tried(self, known: Attempt | None) -> Tried | None:
        """The best of some rounds of search and dry run, each with what the earlier ones have found."""
        goals, best, went_further = self.goals, None, False
        for _ in range(MOST_ROUNDS):
            # what the code demands shows where all axes give alike; sizes that differ much may run into nothing else
            is_look = known is None and len(goals) > 1 and not self.search.as_budgets
            search = self.search.by_ratio if is_look else self.search.nearest
            stay = search(goals, self._ground(known))
            now = None if stay is None else self._run(stay, known)
            if now is None:
                if went_further or (best is not None and best.gaps.min() >= -MEETS):
                    break
                went_further, now = True, self._further(known)
                if now is None:
                    break
            is_better = best is None or now.miss < best.miss
            best = now if is_better or best is None else best
            counts = self.counts_of(now.attempt.selection)
            expected = self.formula.sizes(counts)
            is_as_planned = known is now.attempt or (
                now.attempt.wanted == now.attempt.selection.counts and (expected == now.left).all()
            )
            has_learnt = _learnt(now.attempt) > _learnt(known)
            if now.miss <= ENOUGH or not (is_look or (is_better and not is_as_planned) or has_learnt):
                break
            known = now.attempt
            goals = self.goals + (expected - now.left)
        if best is not None and best.gaps.min() < -MEETS and not went_further:
            now = self._further(best.attempt)
            best = now if now is not None and now.miss < best.miss else best
        return best

    def _run(self, stay: Ints, known: Attempt | None) -> Tried | None:
        """What becomes of a choice in a dry run; None where no correction makes it run."""
        attempt = self._begun(self.selection_of(stay), known)
        if not attempt.selection.changed:
            return None
        try:
            return self._measured(*self.repair.mended(attempt))
        except CutError as error:
            log.debug("a choice does not run: %s", error)
            self.failed = error
            return None

    def _measured(self, attempt: Attempt, rehearsal: Rehearsal) -> Tried:
        counted = self.sizes(attempt, rehearsal)
        left = np.array([counted[unit][1] for unit in self.formula.units], dtype=np.float64)
        gaps = (self.goals - left) / np.maximum(self.formula.before, 1.0)
        tried = Tried(attempt, rehearsal, left, gaps, self.search.as_budgets)
        if self.nearest is None or tried.miss < self.nearest.miss:
            self.nearest = tried
        return tried

    def _further(self, known: Attempt | None) -> Tried | None:
        """Where the choice does not run, or what had to stay leaves too much: with a larger ratio others may."""
        fresh = self._fresh(known)
        ground = self._ground(fresh)
        for ratio in FURTHER:
            stay = self.search.counts.of(ratio)
            if (self.search.gaps(stay, self.goals, ground) < 0).any():
                continue
            now = self._run(stay, fresh)
            if now is not None and now.gaps.min() >= -MEETS:
                return now
        return None

    def _fresh(self, known: Attempt | None) -> Attempt | None:
        """What dry runs have found of attributes, without the axes that had to stay whole."""
        if known is None:
            return None
        changes = tuple(change for change in known.changes if change.kind == ATTRIBUTE)
        return replace(known, selection=replace(known.selection, pinned={}), constraints=(), changes=changes, wanted={})

    # ------------------------------------------------------------- attempts

    def _begun(self, selection: Selection, known: Attempt | None) -> Attempt:
        """A new attempt with what earlier ones have found."""
        if known is None:
            return Attempt(replace(selection, pinned={}), selection.counts)
        pinned = known.selection.pinned
        whole = {term: term.size for term in pinned if term in selection.counts}
        begun = replace(selection, counts={**selection.counts, **whole}, pinned=pinned)
        constraints = (*known.constraints, *known.shared)
        settled = solved(begun, constraints, begun.counts) if constraints else begun
        return replace(known, selection=settled or begun, wanted=begun.counts)

    def counts_of(self, selection: Selection) -> Ints:
        """What stays of all axes."""
        found = self.formula.full.copy()
        for term, count in selection.counts.items():
            if term in self._numbers:
                found[self._numbers[term]] = count
        return found

    def _ground(self, known: Attempt | None) -> Ground:
        """What becomes of a choice under the corrections that are known."""
        counts = self.search.counts
        base = self.counts_of(self.selection_of(counts.sizes))
        own = np.array([self._numbers[axis.term] for axis in counts.chosen], dtype=np.int64)
        tied = self._tied(known)
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
                after = self.counts_of(self._begun(self.selection_of(stay), known).selection)
                settled[key] = np.where(after == row, -1, after)
            return np.where(settled[key] < 0, row, settled[key])

        apart = {*pinned, *(int(at) for mover in tied for at in mover)}
        alone = [mover for mover in counts.together.movers if apart.isdisjoint(mover.tolist())]
        return Ground(settle, [*alone, *tied])

    def _tied(self, known: Attempt | None) -> list[Ints]:
        """The chosen axes in size constraints, those that one chain of constraints joins together."""
        groups: list[set[int]] = []
        for constraint in (*known.constraints, *known.shared) if known is not None else ():
            terms = [constraint.left, *([constraint.right] if constraint.right is not None else [])]
            own = {self.places[atom] for term in terms for atom in self._with(term) if atom in self.places}
            for group in [group for group in groups if group & own]:
                groups.remove(group)
                own |= group
            if own:
                groups.append(own)
        pinned = known.selection.pinned if known is not None else {}
        free = [sorted(at for at in group if self.search.counts.chosen[at].term not in pinned) for group in groups]
        return [np.array(group) for group in free if group]

    def _with(self, term: Term) -> list[Term]:
        """The axes in a dimension, and those that go with them."""
        return self.search.counts.proportions.all_with(atoms(term))


def _learnt(known: Attempt | None) -> int:
    """How many corrections of sizes an attempt has got."""
    return 0 if known is None else len(known.constraints) + len(known.shared) + len(known.selection.pinned)
