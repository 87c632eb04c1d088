"""Makes one pruning plan for a request.

The planner chooses the trace and the axes (`axis_choice`), ties axes of repeated layers, ranks indices by
importance, and turns a ratio into counts or solves for a target (`target_solver`).
`repair_loop` then dry-runs the candidate and corrects it until it runs and computes the same as the masked
model. The result is a `PruningPlan` with edits, corrections, sizes and notes. Its parts are cached
properties, computed when they are needed. Blocks are removed before, in `block_removal`; uniform
layers by the configuration are handled in `uniform_plan`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property

import numpy as np

from modulekg_widgets.engine.axes.axis import Axis
from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.axes.proof.operator_proofs import prove
from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.errors import CutError
from modulekg_widgets.engine.pruning.cut.distributed_models import refuse_sharded
from modulekg_widgets.engine.pruning.cut.edits import Edits
from modulekg_widgets.engine.pruning.latency import NANOSECONDS_PER_MILLISECOND, Stopwatch
from modulekg_widgets.engine.pruning.plan.corrections.candidate import ATTRIBUTE, PINNED, Change, PlanCandidate
from modulekg_widgets.engine.pruning.plan.corrections.compile_edits import EditCompiler
from modulekg_widgets.engine.pruning.plan.corrections.repair_loop import Repair, output_changes, scale_changes
from modulekg_widgets.engine.pruning.plan.dry_run.dry_run import DryRunResult
from modulekg_widgets.engine.pruning.plan.saved.pruning_plan import AxisCut, PruningPlan
from modulekg_widgets.engine.pruning.plan.selection.axis_choice import AxisChoice
from modulekg_widgets.engine.pruning.plan.selection.counts import Counts, Floats, Ints, round_count
from modulekg_widgets.engine.pruning.plan.selection.explicit_axes import ExplicitAxis, explicit_axes, extend_to_groups
from modulekg_widgets.engine.pruning.plan.selection.fullest_trace import fullest_trace
from modulekg_widgets.engine.pruning.plan.selection.limits import Limits, limits_of
from modulekg_widgets.engine.pruning.plan.selection.repeated_layers import (
    ConfigConstraints,
    UniformLayers,
    uniform_layers,
)
from modulekg_widgets.engine.pruning.plan.selection.request import (
    LATENCY,
    LOCAL,
    UNIFORM,
    Request,
    check_model_unchanged,
    check_request,
)
from modulekg_widgets.engine.pruning.plan.selection.selection import Proportions, Selection
from modulekg_widgets.engine.pruning.plan.selection.shared_size import with_shared_sizes
from modulekg_widgets.engine.pruning.plan.sizes.planned_sizes import PlannedSizes
from modulekg_widgets.engine.pruning.plan.sizes.size_model import SizeModel
from modulekg_widgets.engine.pruning.plan.targets.infeasible import (
    frozen_axes_text,
    latency_miss_notes,
    missed_target_notes,
    overshoot_message,
    rounding_notes,
    slack_notes,
    too_slow_message,
    unreachable_message,
)
from modulekg_widgets.engine.pruning.plan.targets.latency_search import MULTIPLES
from modulekg_widgets.engine.pruning.plan.targets.ranking import IndexRanking, local_exponents
from modulekg_widgets.engine.pruning.plan.targets.size_search import SizeSearch
from modulekg_widgets.engine.pruning.plan.targets.target_solution import TOLERANCE, TargetSolution
from modulekg_widgets.engine.pruning.plan.targets.target_solver import LatencyTarget, TargetSolver, target_goals
from modulekg_widgets.engine.pruning.plan.unused_parameters import UnusedParameterEdits, unused_parameter_notes
from modulekg_widgets.engine.pruning.recover.sandbox_runs import TracedCall


class Planner:
    """Makes one plan; its parts are computed when they are needed.

    `config_constraints`: the constraints of the model's configuration, where they are known.
    """

    def __init__(
        self,
        graph: DataflowGraph,
        request: Request,
        config_constraints: ConfigConstraints | None = None,
        template: Planner | None = None,
    ) -> None:
        check_request(graph, request)
        refuse_sharded(graph.model)  # scores and sizes are of whole tensors
        if template is None:
            check_model_unchanged(graph)
        self.traced_graph = graph
        self.graph = fullest_trace(graph) if template is None else template.graph
        self.request = request
        self.axes = self.graph.axes
        self.notes = prove(self.axes)
        self.axis_choice = AxisChoice(self.axes, request.granularity_wanted, request.only, request.keep, graph.axes)
        self.compiler = EditCompiler(self.axes) if template is None else template.compiler
        self.repair = Repair(self.axes, self.compiler)
        self.sizes = PlannedSizes(graph, self.graph, self.compiler, self.repair.edits)
        self.layers = UniformLayers()
        if request.layers == UNIFORM:
            able = {axis.term for axis in self.axis_choice.prunable()}
            self.layers = uniform_layers(self.axes, able, self.axis_choice.outer_roles, config_constraints)
        self.config_constraints = config_constraints or ConfigConstraints()
        self.explicit = extend_to_groups(explicit_axes(request, self.axis_choice), self.layers, self.axes)
        self.repair.explicit_axes = frozenset(self.explicit)
        self.times: Mapping[int, float] = {}  # of the operators, where they were measured
        self.last_result: tuple[PlanCandidate, DryRunResult] | None = None

    def with_request(self, request: Request, config_constraints: ConfigConstraints) -> Planner:
        """A planner of another request for the same trace."""
        return Planner(self.traced_graph, request, config_constraints, self)

    def with_counts(self, counts: Mapping[Term, int]) -> Planner:
        """A planner for as many remaining indices of these axes."""
        other = Planner(self.traced_graph, self.request, template=self)
        other.explicit = {term: ExplicitAxis(count, np.empty(0, dtype=np.int64)) for term, count in counts.items()}
        other.repair.explicit_axes = frozenset(other.explicit)
        return other

    def plan(self) -> PruningPlan:
        if LATENCY in (self.request.target or {}):
            return self._plan_for_latency(self.request.target or {})
        if self.request.target is not None:
            return self._plan_for_target(self.request.target)
        return self._plan_for_ratio(self.request.ratio or 0.0)

    def _plan_for_ratio(self, ratio: float) -> PruningPlan:
        selection = self.selection(ratio)
        if not selection.changed:
            raise CutError(self._nothing_to_cut(ratio))
        attempt, rehearsal = self.repair.verified(PlanCandidate(selection, selection.counts))
        self._check_not_empty(attempt)
        return self._build_plan(attempt, rehearsal)

    def _check_not_empty(self, candidate: PlanCandidate) -> None:
        if not candidate.selection.changed:
            stayed = [change for change in self.repair.changes(candidate) if change.kind != ATTRIBUTE]
            reasons = "; ".join([*map(str, stayed[:3]), *self.repair.notes(candidate)[:3]])
            raise CutError(f"none of the selected axes could be cut: {reasons}")

    def _build_plan(self, candidate: PlanCandidate, result: DryRunResult) -> PruningPlan:
        selection = candidate.selection
        self.last_result = candidate, result
        removal = self.compiler.removal(selection.keep_masks())
        found = []
        for term, count in selection.changed.items():
            axis = self.axes.of(term)
            if all(removal.removes_all(node.names) for node, _ in axis.tensor_dims):
                continue  # it goes as a whole
            dropped = tuple(sorted(selection.orders[term][: term.size - count].tolist()))
            found.append((axis.number, AxisCut(axis.name, axis.size, dropped, _member_names(axis))))
        cuts = tuple(cut for _, cut in sorted(found, key=lambda entry: entry[0]))
        edits = self.repair.edits(candidate)
        return PruningPlan(
            axes=cuts,
            edits=edits,
            changes=(
                *self.repair.changes(candidate),
                *self._fixed_size_changes(),
                *scale_changes(result.scales),
                *output_changes(self.axes, selection),
            ),
            call=self.request.call({cut.name: list(cut.dropped) for cut in cuts}),
            notes=(
                *self.notes,
                *self.repair.notes(candidate),
                *self.layers.notes,
                *self.config_constraints.notes,
                *self._unused_parameter_notes(candidate, edits),
            ),
            blocks=(),
            traced=TracedCall.of(self.traced_graph.call, self.traced_graph.training),
            **self.sizes.count(candidate, result),
        )

    def with_unused_parameters(self, plan: PruningPlan, more: UnusedParameterEdits) -> PruningPlan | None:
        """The last plan with changes of unread parameters; None if the trace does depend on them."""
        assert self.last_result is not None
        attempt, before = self.last_result
        attributes = {path: (plan.edits.attributes.get(path, (old,))[0], now)
                      for path, (old, now) in more.attributes.items()}  # fmt: skip
        edits = Edits((*plan.edits.tensors, *more.tensors), {**plan.edits.attributes, **attributes}, plan.edits.removal)
        if not self.repair.still_runs(attempt, before, edits):
            return None
        gone = sum(
            math.prod(edit.shape) - math.prod(edit.shape_after)
            for edit in more.tensors if self.graph.state[edit.names[0]].is_parameter
        )  # fmt: skip
        still, before_that = (self._unused_parameter_notes(attempt, each) for each in (edits, plan.edits))
        notes = (*(note for note in plan.notes if note not in before_that), *still)
        changes = (*plan.changes, *more.changes)
        return replace(plan, edits=edits, changes=changes, params=(plan.params[0], plan.params[1] - gone), notes=notes)

    def _fixed_size_changes(self) -> list[Change]:
        """The axes that a ratio would prune if the code did not fix their size, as corrections."""
        fixed = self.axis_choice.fixed_size_axes() if self._wants_ratio() else []
        reasons = [(axis, self.axes.inference.fixed_sizes[axis.term]) for axis in fixed]
        return [
            Change(PINNED, f"{axis.name} is not cut: {reason.text}", reason.where, (axis.name,))
            for axis, reason in reasons
        ]

    def _unused_parameter_notes(self, candidate: PlanCandidate, edits: Edits) -> list[str]:
        """The note on unread parameters that keep their size."""
        return unused_parameter_notes(self.graph, edits, {term.size for term in candidate.selection.changed})

    # ------------------------------------------------------------ selection

    def selection(self, ratio: float) -> Selection:
        """The selection for a ratio, before any dry run."""
        return self.selection_of(self.counts.at_ratio(ratio))

    def selection_of(self, stay: Ints) -> Selection:
        """The selection for these counts of the chosen axes, and the explicit ones."""
        counts = {axis.term: int(count) for axis, count in zip(self.chosen, stay, strict=True)}
        exact = self._exact_axes
        for term, given in self.explicit.items():
            counts[term] = (
                given.remaining
                if term in exact
                else round_count(given.remaining, term.size, self.multiples.get(term, 1))
            )
        orders = {term: self.ranking.order(term) for term in counts}
        # where the user says which indices go, a size constraint may leave some of them, and takes no others
        least = {term: self.explicit[term].remaining for term in exact}
        multiples = {term: round_to for term, round_to in self.multiples.items() if round_to > 1 and term not in least}
        proportions = self.layers.proportions.restricted_to(counts)
        return Selection(orders, counts, {**self.limits.minimum, **least}, multiples, proportions=proportions)

    @cached_property
    def _exact_axes(self) -> list[Term]:
        """The axes with explicit indices, whose counts are not rounded."""
        return self.layers.proportions.with_group_members(
            term for term, given in self.explicit.items() if len(given.drop_first)
        )

    @cached_property
    def ranking(self) -> IndexRanking:
        """The order in which indices are removed."""
        return IndexRanking(self.axes, self.request, self.independent, self.explicit, self.sizes.model)

    @cached_property
    def counts(self) -> Counts:
        """The counts of the chosen axes by ratio."""
        return self._counts(self.layers.proportions)

    def _counts(self, together: Proportions) -> Counts:
        request = self.request
        scores = {} if request.scope == LOCAL else self.ranking.comparable
        # a ratio is what each axis loses; a target is spent where it costs least
        paces = local_exponents(self.axes, self.chosen) if request.target is not None else None
        is_fair = request.target is None and request.per is None
        return Counts(self.chosen, scores, request.scope, self.multiples, self.limits, is_fair, paces, together)

    @cached_property
    def multiples(self) -> dict[Term, int]:
        """The multiples of the counts."""
        every = [*self.chosen, *(self.axes.of(term) for term in self.explicit)]
        multiples = self.axis_choice.multiples(every, self.request.round_to)
        for term, round_to in self.config_constraints.multiples.items():
            multiples[term] = math.lcm(round_to, multiples.get(term, 1))
        return self.layers.proportions.multiples(multiples)

    @cached_property
    def limits(self) -> Limits:
        """The user's limits, checked against explicit counts."""
        given = [self.axes.of(term) for term in self.explicit]
        limits = limits_of(
            self.request.floor, self.request.ceiling, [*self.chosen, *given], self.axis_choice.axes_of, self.multiples
        )
        limits = limits.of_groups(self.layers.proportions, self.multiples, lambda term: self.axes.of(term).name)
        for axis in given:
            limits.check(axis, self.explicit[axis.term].remaining, "per_axis or cuts")
        return limits

    @cached_property
    def chosen(self) -> list[Axis]:
        """The axes that a ratio applies to."""
        return [axis for axis in self.independent if axis.term not in self.explicit]

    @cached_property
    def independent(self) -> list[Axis]:
        """The axes that may be cut together, if a ratio is requested."""
        if not self._wants_ratio():
            return []
        return self.axis_choice.independent(
            self.layers.proportions, {**self.layers.pinned, **self.config_constraints.pinned}
        )

    def _wants_ratio(self) -> bool:
        ratio = self.request.ratio or (self.request.ratio is not None and self.request.ceiling is not None)
        return bool(ratio) or self.request.target is not None

    # --------------------------------------------------------------- target

    def _plan_for_target(self, target: Mapping[str, float]) -> PruningPlan:
        """The plan nearest to a target."""
        formula = self.sizes.model(target)
        goals = target_goals(target, formula)
        self._check_goals(goals, formula)
        if (goals >= formula.before).any():
            return self._plan_for_target(self._drop_slack_goals(target, goals, formula))
        targeting = self.target_solver(formula, goals)
        found = targeting.solve()
        if found is None or found.gaps.min() < -TOLERANCE:
            raise self.infeasible_error(formula, goals, targeting, found)
        missed = targeting.missed_goal(found)
        if missed is not None:
            raise CutError(overshoot_message(self.request, formula, found, missed))
        self._check_not_empty(found.candidate)
        notes = missed_target_notes(self.request, formula, found), slack_notes(self.request, formula, found)
        self.notes = [*self.notes, *notes[0], *notes[1]]
        return self._build_plan(found.candidate, found.dry_run)

    def _plan_for_latency(self, target: Mapping[str, float]) -> PruningPlan:
        """The plan nearest to a target that includes milliseconds, as measured."""
        watch = Stopwatch(self.traced_graph)
        self.times = watch.times(self.sizes.counted)
        formula = self.sizes.model(target, self.times)
        whole = watch.model_time()
        goals = target_goals(target, formula, whole)
        self._check_goals(goals, formula)
        if (goals >= formula.before).any():
            tighter = self._drop_slack_goals(target, goals, formula)
            if LATENCY in tighter:
                return self._plan_for_latency(tighter)
            plan = self._plan_for_target(tighter)
            assert self.last_result is not None
            return replace(plan, latency=watch.compare_cut(self.repair.edits(self.last_result[0]), thorough=True).pair)
        multiples = MULTIPLES if self.request.round_to is None else (self.request.round_to,)
        planners = {round_to: self.with_round_to(round_to) for round_to in multiples}
        search = LatencyTarget(
            formula,
            goals,
            multiples,
            lambda round_to, goals: planners[round_to].target_solver(formula, goals),
            lambda round_to, *tried: planners[round_to].infeasible_error(formula, *tried),
            lambda candidate, thorough: watch.compare_cut(self.repair.edits(candidate), thorough),
        )
        found = search.solve()
        tried, pair = found.proposal.solution, found.comparison.pair
        planner = planners[found.round_to]
        planner._check_not_empty(tried.candidate)
        if search.is_too_slow(found):
            raise CutError(
                too_slow_message(self.request, self.axes, pair, tried, watch.slowest_modules(), self._minimum_sizes)
            )
        planner.notes = [
            *self.notes,
            *missed_target_notes(planner.request, formula, tried),
            *slack_notes(planner.request, formula, tried),
            *rounding_notes(self.request, found.round_to),
            *(
                []
                if found.proposal.is_bounded and found.share <= search.wanted
                else latency_miss_notes(self.request, search.wanted, pair)
            ),
        ]
        plan = planner._build_plan(tried.candidate, tried.dry_run)
        self.last_result = planner.last_result
        return replace(plan, latency=pair)

    def _drop_slack_goals(self, target: Mapping[str, float], goals: Floats, formula: SizeModel) -> Mapping[str, float]:
        """The budgets below the size of the model; the request is reduced to them."""
        below = (goals < formula.before).tolist()
        tighter = {unit: wanted for (unit, wanted), is_below in zip(target.items(), below, strict=True) if is_below}
        self.request = replace(self.request, target=tighter)
        return tighter

    def with_round_to(self, round_to: int) -> Planner:
        """The planner of the same request with sizes in multiples of another number."""
        if round_to == (self.request.round_to or 1):
            return self
        other = copy(self)
        other.request = replace(self.request, round_to=round_to)
        other.ranking = self.ranking
        for name in ("multiples", "limits", "counts"):
            other.__dict__.pop(name, None)
        return other

    def target_solver(self, formula: SizeModel, goals: Floats) -> TargetSolver:
        """The solver for these goals."""
        scores = self.ranking.comparable
        ranked = [scores[axis.term] for axis in self.chosen]
        together = with_shared_sizes(self.layers.proportions, self.chosen)
        apart = SizeSearch(self.counts, formula, ranked)
        search = apart if together is self.layers.proportions else SizeSearch(self._counts(together), formula, ranked)

        def sizes(attempt: PlanCandidate, rehearsal: DryRunResult) -> Mapping[str, tuple[float, float]]:
            counted: dict[str, tuple[float, float]] = {**self.sizes.count(attempt, rehearsal)}
            if LATENCY in formula.units:
                at, left = formula.units.index(LATENCY), formula.sizes(formula.counts_of(attempt.selection.counts))
                counted[LATENCY] = float(formula.before[at]), float(left[at])
            return counted

        other = None if search is apart else apart
        return TargetSolver(search, self.repair.fixed, self.repair.verify, self.selection_of, sizes, goals, other)

    def infeasible_error(
        self, formula: SizeModel, goals: Floats, solver: TargetSolver, solution: TargetSolution | None
    ) -> CutError:
        """The error for an infeasible target, with the nearest plan."""
        tried = [each for each in (solution, solver.nearest, solver.smallest()) if each is not None]
        nearest = max(tried, key=lambda each: float(each.gaps.min()), default=None)
        reason = unreachable_message(
            self.request, self.axes, formula, goals, nearest, self._minimum_sizes, solver.last_error
        )
        error = CutError(reason)
        error.__cause__ = solver.last_error
        return error

    def _check_goals(self, goals: Floats, formula: SizeModel) -> None:
        """Raise `CutError` for a target that removes nothing, or if nothing can be removed."""
        if (goals >= formula.before).all():
            sizes = zip(formula.units, formula.before.tolist(), strict=True)
            has = [f"{before / NANOSECONDS_PER_MILLISECOND:.3g} ms" if unit == LATENCY else f"{before:,.0f} {unit}"
                   for unit, before in sizes]  # fmt: skip
            raise CutError(f"target={dict(self.request.target or {})} removes nothing: the model has {', '.join(has)}")
        if not self.chosen and not self.explicit:
            raise CutError(self._nothing_to_cut(0.0))

    def _minimum_sizes(self, request: Request, units: Iterable[str]) -> dict[str, float]:
        """The minimum sizes of a request, limited by its options alone."""
        other = Planner(self.traced_graph, replace(request, scope=LOCAL, per=None))
        formula = other.sizes.model(units, self.times)
        left = formula.sizes(formula.counts_of(other.selection(1.0).counts))
        return dict(zip(formula.units, left.tolist(), strict=True))

    def _nothing_to_cut(self, ratio: float) -> str:
        if not self.axes.free:
            ways = "; ".join(frozen_axes_text(self.axes))
            return f"no axis of the model is free: graph.axes lists them with the reasons{f': {ways}' if ways else ''}"
        if self._wants_ratio() and not self.axis_choice.allowed_axes:
            return "only=… and keep=… leave no axis that may be cut: graph.axes.free lists those that could be"
        if self.layers.pinned and not self.chosen:
            return self.layers.notes[0]
        return f"a ratio of {ratio:g} removes no index of any axis: pass a larger one"


def _member_names(axis: Axis) -> tuple[str, ...]:
    return tuple(f"{node.label}[{dim}]" for node, dim in axis.tensor_dims)
