"""How a plan is made: what a request chooses, corrected until a dry run goes as planned."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property

import numpy as np

from modulekg_widgets.engine.axes.axis import Axis, ListElements
from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.axes.proof.proved import prove
from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.errors import CutError
from modulekg_widgets.engine.pruning.cut.edits import Edits
from modulekg_widgets.engine.pruning.cut.replicas import refuse_sharded
from modulekg_widgets.engine.pruning.latency import NANOSECONDS, Stopwatch
from modulekg_widgets.engine.pruning.plan.corrections.candidate import ATTRIBUTE, WHOLE, Attempt, Change
from modulekg_widgets.engine.pruning.plan.corrections.compile_edits import Outcome
from modulekg_widgets.engine.pruning.plan.corrections.repair import Repair, output_changes, scale_changes
from modulekg_widgets.engine.pruning.plan.dry_run.dry_run import Rehearsal, planned_operators, run_through
from modulekg_widgets.engine.pruning.plan.saved.pruning_plan import AxisCut, PruningPlan
from modulekg_widgets.engine.pruning.plan.selection.choice import Choice
from modulekg_widgets.engine.pruning.plan.selection.counts import LOCAL, Counts, Floats, Ints, rounded
from modulekg_widgets.engine.pruning.plan.selection.explicit_axes import NamedAxes, alike, given_by
from modulekg_widgets.engine.pruning.plan.selection.fullest_trace import widest
from modulekg_widgets.engine.pruning.plan.selection.limits import Limits, limits_of
from modulekg_widgets.engine.pruning.plan.selection.proportions import Proportions
from modulekg_widgets.engine.pruning.plan.selection.repeated import ANY, Said, UniformLayers, uniform_layers
from modulekg_widgets.engine.pruning.plan.selection.request import LATENCY, UNIFORM, Request, check, check_current
from modulekg_widgets.engine.pruning.plan.selection.selection import Selection
from modulekg_widgets.engine.pruning.plan.selection.shared_size import with_one_number
from modulekg_widgets.engine.pruning.plan.sizes.size_formula import SizeFormula
from modulekg_widgets.engine.pruning.plan.targets.infeasible import (
    frozen_axes,
    not_as_fast,
    not_nearer,
    out_of_bounds,
    out_of_reach,
    rounded_for_speed,
    too_slow,
    within_budgets,
)
from modulekg_widgets.engine.pruning.plan.targets.latency import STEPS, LatencyTarget, goals_of
from modulekg_widgets.engine.pruning.plan.targets.ranking import IndexRanking, local_paces
from modulekg_widgets.engine.pruning.plan.targets.search import MEETS, Search
from modulekg_widgets.engine.pruning.plan.targets.target_solver import Targeting, Tried
from modulekg_widgets.engine.pruning.plan.unread_parameters import Followers, left_behind
from modulekg_widgets.engine.pruning.recover.passes import TracedCall
from modulekg_widgets.engine.tracing.dataflow import OperatorNode
from modulekg_widgets.engine.tracing.flops import count_flops
from modulekg_widgets.engine.tracing.trace import REAL

# --------------------
# How large a model is before and after a plan: counted on what a dry run did, or by formula for a search.


class PlannedSizes:
    """Counts what plans leave; `asked` is the pass that was traced, `graph` the one that the plan is made on."""

    def __init__(self, asked: DataflowGraph, graph: DataflowGraph, repair: Repair) -> None:
        self.asked = asked
        self.graph = graph
        self.axes = graph.axes
        self.repair = repair
        # random draws may have led the pass that was asked for another way
        self.counted = graph if asked.traced_on == REAL else asked

    def of(self, attempt: Attempt, rehearsal: Rehearsal) -> dict[str, tuple[int, int]]:
        """Parameters, bytes, FLOPs, those of them in products, and multiply-adds, before and after."""
        if self.asked.traced_on == REAL:
            operators = self._planned(attempt.selection)  # a run would count what other data lead to
        elif self.graph is self.asked and rehearsal.graph is not None:
            operators = rehearsal.graph.operators
        else:
            operators = run_through(self.asked, self.repair.edits(attempt)).operators
        before, after = self.counted.flops(), count_flops(operators)
        return {
            "params": self.repair.outcome.parameters(attempt.selection),
            "bytes": self.repair.outcome.bytes(attempt.selection),
            "flops": (int(before), int(after)),
            "matmul_flops": (before.matmul, after.matmul),
            "macs": (before.macs, after.macs),
        }

    def _planned(self, selection: Selection) -> list[OperatorNode]:
        """The recorded operators in planned sizes, without those that elements of lists take along."""
        operators = planned_operators(self.axes, selection)
        removal = self.repair.outcome.removal(selection.keeps())
        if not removal:
            return operators
        elements = ListElements(self.axes)
        cut = {self.axes.of(term) for term in selection.changed}
        return [each for each in operators if not (
            removal.takes(each.module) and any(axis in cut for axis in elements.axes_of_cost(each.module))
        )]  # fmt: skip

    def formula(self, units: Iterable[str], times: Mapping[int, float] | None = None) -> SizeFormula:
        """The sizes in these units, for many choices at once; `times` of the operators of `counted` for "latency"."""
        wanted = tuple(units)
        if times or self.counted is not self.graph:
            return SizeFormula(self.axes, self.counted.axes, wanted, times)
        known, key = self.axes.size_formulas, (wanted, tuple(axis.number for axis in self.axes.free))
        if key not in known:
            known[key] = SizeFormula(self.axes, self.axes, wanted)
        return known[key]

    def counts(self, selection: Selection) -> Ints:
        """What stays of every axis, by its number, as a formula takes it."""
        return np.array([selection.counts.get(axis.term, axis.size) for axis in self.axes], dtype=np.int64)


# ----------------------------------------


class Planner:
    """Makes one plan; its parts are computed where they are asked for.

    `said`: what is known of what a configuration can say.
    """

    def __init__(self, graph: DataflowGraph, request: Request, said: Said = ANY, like: Planner | None = None) -> None:
        check(graph, request)
        refuse_sharded(graph.model)  # scores and sizes are of whole tensors
        if like is None:
            check_current(graph)
        self.asked = graph
        self.graph = widest(graph) if like is None else like.graph
        self.request = request
        self.axes = self.graph.axes
        self.notes = prove(self.axes)
        self.choice = Choice(self.axes, request.granularity_wanted, request.only, request.keep)
        self.outcome = Outcome(self.axes) if like is None else like.outcome
        self.repair = Repair(self.axes, self.outcome)
        self.sizes = PlannedSizes(graph, self.graph, self.repair)
        self.named = NamedAxes(graph.axes, self.choice)
        self.layers = UniformLayers()
        if request.layers == UNIFORM:
            able = {axis.term for axis in self.choice.able()}
            self.layers = uniform_layers(self.axes, able, self.choice.outer, said)
        self.said = said
        self.given = alike(given_by(request, self.named), self.layers, self.axes)
        self.repair.named = frozenset(self.given)
        self.times: Mapping[int, float] = {}  # of the operators, where they were measured
        self.made: tuple[Attempt, Rehearsal] | None = None

    def again(self, request: Request, said: Said) -> Planner:
        """A planner of another request for the same pass."""
        return Planner(self.asked, request, said, self)

    def plan(self) -> PruningPlan:
        if LATENCY in (self.request.target or {}):
            return self._to_latency(self.request.target or {})
        if self.request.target is not None:
            return self._to_target(self.request.target)
        return self._with_ratio(self.request.ratio or 0.0)

    def _with_ratio(self, ratio: float) -> PruningPlan:
        selection = self.selection(ratio)
        if not selection.changed:
            raise CutError(self._nothing(ratio))
        attempt, rehearsal = self.repair.proved(Attempt(selection, selection.counts))
        self._not_empty(attempt)
        return self._made(attempt, rehearsal)

    def _not_empty(self, attempt: Attempt) -> None:
        if not attempt.selection.changed:
            stayed = [change for change in self.repair.changes(attempt) if change.kind != ATTRIBUTE]
            reasons = "; ".join([*map(str, stayed[:3]), *self.repair.notes(attempt)[:3]])
            raise CutError(f"every axis that was to be cut had to stay whole: {reasons}")

    def _made(self, attempt: Attempt, rehearsal: Rehearsal) -> PruningPlan:
        selection = attempt.selection
        self.made = attempt, rehearsal
        removal = self.outcome.removal(selection.keeps())
        found = []
        for term, count in selection.changed.items():
            axis = self.axes.of(term)
            if all(removal.takes_all(node.names) for node, _ in axis.places):
                continue  # it goes as a whole
            dropped = tuple(sorted(selection.orders[term][: term.size - count].tolist()))
            found.append((axis.number, AxisCut(axis.name, axis.size, dropped, _members(axis))))
        cuts = tuple(cut for _, cut in sorted(found, key=lambda entry: entry[0]))
        edits = self.repair.edits(attempt)
        return PruningPlan(
            axes=cuts,
            edits=edits,
            changes=(
                *self.repair.changes(attempt),
                *self._of_fixed_size(),
                *scale_changes(rehearsal.scales),
                *output_changes(self.axes, selection),
            ),
            call=self.request.call({cut.name: list(cut.dropped) for cut in cuts}),
            notes=(
                *self.notes,
                *self.repair.notes(attempt),
                *self.layers.notes,
                *self.said.notes,
                *self._left_behind(attempt, edits),
            ),
            blocks=(),
            traced=TracedCall.of(self.asked.call, self.asked.training),
            **self.sizes.of(attempt, rehearsal),
        )

    def followed(self, plan: PruningPlan, more: Followers) -> PruningPlan | None:
        """The plan that was made last with what its pass does not read; None where it does depend on that."""
        assert self.made is not None
        attempt, before = self.made
        attributes = {path: (plan.edits.attributes.get(path, (old,))[0], now)
                      for path, (old, now) in more.attributes.items()}  # fmt: skip
        edits = Edits((*plan.edits.tensors, *more.tensors), {**plan.edits.attributes, **attributes}, plan.edits.removal)
        if not self.repair.goes_on(attempt, before, edits):
            return None
        gone = sum(
            math.prod(edit.shape) - math.prod(edit.shape_after)
            for edit in more.tensors if self.graph.state[edit.names[0]].is_parameter
        )  # fmt: skip
        still, before_that = self._left_behind(attempt, edits), self._left_behind(attempt, plan.edits)
        notes = (*(note for note in plan.notes if note not in before_that), *still)
        changes = (*plan.changes, *more.changes)
        return replace(plan, edits=edits, changes=changes, params=(plan.params[0], plan.params[1] - gone), notes=notes)

    def _of_fixed_size(self) -> list[Change]:
        """What a ratio or target would take, if its size did not stand in the code."""
        fixed = self.choice.of_fixed_size() if self._ratio_wanted() else []
        reasons = [(axis, self.axes.inference.fixed_sizes[axis.term]) for axis in fixed]
        return [
            Change(WHOLE, f"{axis.name} stays whole, for {reason.text}", reason.where, (axis.name,))
            for axis, reason in reasons
        ]

    def _left_behind(self, attempt: Attempt, edits: Edits) -> list[str]:
        """The note of what the pass does not read and a cut leaves as it is."""
        return left_behind(self.graph, edits, {term.size for term in attempt.selection.changed})

    # ------------------------------------------------------------ selection

    def selection(self, ratio: float) -> Selection:
        """What the request says, before any dry run."""
        return self.selection_of(self.counts.of(ratio))

    def selection_of(self, stay: Ints) -> Selection:
        """So many indices of each chosen axis, and what is given."""
        counts = {axis.term: int(count) for axis, count in zip(self.chosen, stay, strict=True)}
        exact = self._exact
        for term, given in self.given.items():
            counts[term] = given.left if term in exact else rounded(given.left, term.size, self.steps.get(term, 1))
        orders = {term: self.ranking.order(term) for term in counts}
        # where the user says which indices go, a size constraint may leave some of them, and takes no others
        least = {term: self.given[term].left for term in exact}
        steps = {term: step for term, step in self.steps.items() if step > 1 and term not in least}
        proportions = self.layers.proportions.among(counts)
        return Selection(orders, counts, {**self.limits.least, **least}, steps, proportions=proportions)

    @cached_property
    def _exact(self) -> list[Term]:
        """The axes of which the user says how many stay by the indices that go, whatever they are multiples of."""
        return self.layers.proportions.all_with(term for term, given in self.given.items() if len(given.first))

    @cached_property
    def ranking(self) -> IndexRanking:
        """Which indices go first."""
        return IndexRanking(self.axes, self.request, self.independent, self.given, self.sizes.formula)

    @cached_property
    def counts(self) -> Counts:
        """What a ratio leaves of the chosen axes."""
        return self._counts(self.layers.proportions)

    def _counts(self, together: Proportions) -> Counts:
        request = self.request
        scores = {} if request.scope == LOCAL else self.ranking.comparable
        # a ratio is what each axis loses; a target is spent where it costs least
        paces = local_paces(self.axes, self.chosen) if request.target is not None else None
        is_fair = request.target is None and request.per is None
        return Counts(self.chosen, scores, request.scope, self.steps, self.limits, is_fair, paces, together)

    @cached_property
    def steps(self) -> dict[Term, int]:
        """What the numbers of indices are multiples of."""
        every = [*self.chosen, *(self.axes.of(term) for term in self.given)]
        return self.layers.proportions.steps(self.choice.steps(every, self.request.round_to))

    @cached_property
    def limits(self) -> Limits:
        """The user's, which what is given must keep as well."""
        given = [self.axes.of(term) for term in self.given]
        limits = limits_of(
            self.request.floor, self.request.ceiling, [*self.chosen, *given], self.named.every, self.steps
        )
        limits = self.layers.proportions.limits(limits, self.steps, lambda term: self.axes.of(term).name)
        for axis in given:
            limits.check(axis, self.given[axis.term].left, "per_axis or cuts")
        return limits

    @cached_property
    def chosen(self) -> list[Axis]:
        """The axes that a ratio is for: those that nothing else was said of."""
        return [axis for axis in self.independent if axis.term not in self.given]

    @cached_property
    def independent(self) -> list[Axis]:
        """The axes that may be cut together, where a ratio asks for it."""
        if not self._ratio_wanted():
            return []
        return self.choice.independent(self.layers.proportions, {**self.layers.whole, **self.said.whole})

    def _ratio_wanted(self) -> bool:
        ratio = self.request.ratio or (self.request.ratio is not None and self.request.ceiling is not None)
        return bool(ratio) or self.request.target is not None

    # --------------------------------------------------------------- target

    def _to_target(self, target: Mapping[str, float]) -> PruningPlan:
        """The plan that leaves what was asked for, as near as steps of single indices come."""
        formula = self.sizes.formula(target)
        goals = goals_of(target, formula)
        self._check(goals, formula)
        if (goals >= formula.before).any():
            return self._to_target(self._without_loose(target, goals, formula))
        targeting = self.targeting(formula, goals)
        found = targeting.found()
        if found is None or found.gaps.min() < -MEETS:
            raise self.refusal(formula, goals, targeting, found)
        missed = targeting.missed(found)
        if missed is not None:
            raise CutError(out_of_bounds(self.request, formula, found, missed))
        self._not_empty(found.attempt)
        notes = not_nearer(self.request, formula, found), within_budgets(self.request, formula, found)
        self.notes = [*self.notes, *notes[0], *notes[1]]
        return self._made(found.attempt, found.rehearsal)

    def _to_latency(self, target: Mapping[str, float]) -> PruningPlan:
        """The plan that takes as long as was asked for, as measured, and leaves what was asked for beside."""
        watch = Stopwatch(self.asked)
        self.times = watch.times(self.sizes.counted)
        formula = self.sizes.formula(target, self.times)
        whole = watch.whole()
        goals = goals_of(target, formula, whole)
        self._check(goals, formula)
        if (goals >= formula.before).any():
            tighter = self._without_loose(target, goals, formula)
            if LATENCY in tighter:
                return self._to_latency(tighter)
            plan = self._to_target(tighter)
            assert self.made is not None
            return replace(plan, latency=watch.of(self.repair.edits(self.made[0]), thorough=True).pair)
        steps = STEPS if self.request.round_to is None else (self.request.round_to,)
        planners = {step: self.rounding_to(step) for step in steps}
        search = LatencyTarget(planners, formula, goals, watch)
        found = search.found()
        tried, pair = found.proposal.tried, found.comparison.pair
        planner = planners[found.step]
        planner._not_empty(tried.attempt)
        if search.is_too_slow(found):
            raise CutError(too_slow(self.request, self.axes, pair, tried, watch.slowest(), self._least))
        planner.notes = [
            *self.notes,
            *not_nearer(planner.request, formula, tried),
            *within_budgets(planner.request, formula, tried),
            *rounded_for_speed(self.request, found.step),
            *(
                []
                if found.proposal.is_bound and found.share <= search.wanted
                else not_as_fast(self.request, search.wanted, pair)
            ),
        ]
        plan = planner._made(tried.attempt, tried.rehearsal)
        self.made = planner.made
        return replace(plan, latency=pair)

    def _without_loose(self, target: Mapping[str, float], goals: Floats, formula: SizeFormula) -> Mapping[str, float]:
        """The budgets that are less than the model has, which are from here on what was asked for."""
        below = (goals < formula.before).tolist()
        tighter = {unit: wanted for (unit, wanted), is_below in zip(target.items(), below, strict=True) if is_below}
        self.request = replace(self.request, target=tighter)
        return tighter

    def rounding_to(self, step: int) -> Planner:
        """The planner of the same request where sizes are multiples of a step; scores are computed once for all."""
        if step == (self.request.round_to or 1):
            return self
        other = copy(self)
        other.request = replace(self.request, round_to=step)
        other.ranking = self.ranking
        for name in ("steps", "limits", "counts"):
            other.__dict__.pop(name, None)
        return other

    def targeting(self, formula: SizeFormula, goals: Floats) -> Targeting:
        """What finds the attempt that leaves so much."""
        scores = self.ranking.comparable
        ranked = [scores[axis.term] for axis in self.chosen]
        together = with_one_number(self.layers.proportions, self.chosen)
        apart = Search(self.counts, formula, ranked)
        search = apart if together is self.layers.proportions else Search(self._counts(together), formula, ranked)

        def sizes(attempt: Attempt, rehearsal: Rehearsal) -> Mapping[str, tuple[float, float]]:
            counted: dict[str, tuple[float, float]] = {**self.sizes.of(attempt, rehearsal)}
            if LATENCY in formula.units:
                at, left = formula.units.index(LATENCY), formula.sizes(self.sizes.counts(attempt.selection))
                counted[LATENCY] = float(formula.before[at]), float(left[at])
            return counted

        other = None if search is apart else apart
        return Targeting(search, self.repair, self.selection_of, sizes, goals, other)

    def refusal(self, formula: SizeFormula, goals: Floats, targeting: Targeting, found: Tried | None) -> CutError:
        """Why no attempt leaves so little, and what comes nearest."""
        tried = [each for each in (found, targeting.nearest, targeting.smallest()) if each is not None]
        nearest = max(tried, key=lambda each: float(each.gaps.min()), default=None)
        reason = out_of_reach(self.request, self.axes, formula, goals, nearest, self._least, targeting.failed)
        error = CutError(reason)
        error.__cause__ = targeting.failed
        return error

    def _check(self, goals: Floats, formula: SizeFormula) -> None:
        """Raise `CutError` for a target that takes nothing, or where nothing can be taken."""
        if (goals >= formula.before).all():
            sizes = zip(formula.units, formula.before.tolist(), strict=True)
            has = [f"{before / NANOSECONDS:.3g} ms" if unit == LATENCY else f"{before:,.0f} {unit}"
                   for unit, before in sizes]  # fmt: skip
            raise CutError(f"target={dict(self.request.target or {})} takes nothing: the model has {', '.join(has)}")
        if not self.chosen and not self.given:
            raise CutError(self._nothing(0.0))

    def _least(self, request: Request, units: Iterable[str]) -> dict[str, float]:
        """What a request leaves at least, if nothing but its own options is in the way."""
        other = Planner(self.asked, replace(request, scope=LOCAL, per=None))
        formula = other.sizes.formula(units, self.times)
        stay = other.sizes.counts(other.selection(1.0))
        return dict(zip(formula.units, formula.sizes(stay).tolist(), strict=True))

    def _nothing(self, ratio: float) -> str:
        if not self.axes.free:
            ways = "; ".join(frozen_axes(self.axes))
            return f"no axis of the model is free: graph.axes lists them with the reasons{f': {ways}' if ways else ''}"
        if self._ratio_wanted() and not self.choice.allowed:
            return "only=… and keep=… leave no axis that may be cut: graph.axes.free lists those that could be"
        if self.layers.whole and not self.chosen:
            return self.layers.notes[0]
        return f"a ratio of {ratio:g} takes no index of any axis: pass a larger one"


def _members(axis: Axis) -> tuple[str, ...]:
    return tuple(f"{node.label}[{dim}]" for node, dim in axis.places)
