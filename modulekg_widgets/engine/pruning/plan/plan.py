"""`mk.plan`: choose what goes, see that it runs, then cut, mask, save or replay it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from modulekg_widgets.engine.axes.axis import Axis
from modulekg_widgets.engine.axes.cut_analysis import Cut, position_flags
from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.axes.proved import prove
from modulekg_widgets.engine.errors import CutError, shown
from modulekg_widgets.engine.keywords import called_as
from modulekg_widgets.engine.pruning.blocks.planning import plan_without
from modulekg_widgets.engine.pruning.importance.scoring import local_paces, normalised, score
from modulekg_widgets.engine.pruning.plan.attempt import ATTRIBUTE, Attempt
from modulekg_widgets.engine.pruning.plan.choice import Choice, dropped_by_cuts
from modulekg_widgets.engine.pruning.plan.counts import LOCAL, Counts, Ints, Scores, gone, rounded
from modulekg_widgets.engine.pruning.plan.dry_run import Rehearsal, planned_operators, run_through
from modulekg_widgets.engine.pruning.plan.limits import Limit, Limits, limits_of
from modulekg_widgets.engine.pruning.plan.modes import widest
from modulekg_widgets.engine.pruning.plan.obstacles import not_nearer, out_of_bounds, out_of_reach
from modulekg_widgets.engine.pruning.plan.outcome import Outcome
from modulekg_widgets.engine.pruning.plan.pruning_plan import AxisCut, PruningPlan
from modulekg_widgets.engine.pruning.plan.repair import Repair, output_changes, scale_changes
from modulekg_widgets.engine.pruning.plan.request import Importance, Request, check
from modulekg_widgets.engine.pruning.plan.search import MEETS, Search
from modulekg_widgets.engine.pruning.plan.selection import Selection
from modulekg_widgets.engine.pruning.plan.size_formula import SizeFormula
from modulekg_widgets.engine.pruning.plan.targeted import Targeting
from modulekg_widgets.engine.pruning.recover.passes import TracedCall
from modulekg_widgets.engine.tracing.flops import count_flops
from modulekg_widgets.engine.tracing.trace import REAL


@called_as("mk.plan")
def plan(
    graph: DataflowGraph,
    ratio: float | None = None,
    target: Mapping[str, float] | None = None,
    per_axis: Mapping[Any, Any] | None = None,
    cuts: Iterable[Cut] | None = None,
    importance: Importance = "l2",
    scope: str = "local",
    only: Any = None,
    keep: Any = None,
    granularity: str = "index",
    round_to: int | None = None,
    floor: Limit | None = None,
    ceiling: Limit | None = None,
    per: str | None = None,
    blocks: float | Sequence[str] | None = None,
) -> PruningPlan:
    """What to drop from a traced model, tried in a dry run; nothing is changed.

    At least one of `ratio`, `target`, `per_axis`, `cuts` and `blocks` says what goes; `ratio` and `target` exclude each
    other.

    Parameters
    ----------
    graph : DataflowGraph
        What `mk.trace` gave.
    ratio : float, optional
        The share of each axis's indices that goes, 0 … 1; with `scope="global"` or `"isomorphic"` of all indices
        together or of those on axes of one kind, the least important first.
    target : mapping, optional
        What shall be left of `"params"`, `"flops"`, `"macs"` or `"bytes"` (of parameters and buffers), as a share
        below 1 or as a number. It is met from below, within 1 % of the model where single indices, or steps of
        `round_to`, allow it; where only a step above comes so near, that is taken, and where none does, `plan.notes`
        says what is in the way. `{"flops": 0.5, "params": 0.6}` meets both: axes that cost more of the one give more
        or less than the others.
    per_axis : mapping, optional
        `{axis, layer or (parameter, dim): ratio or indices}`.
    cuts : iterable of Cut, optional
        Results of `graph.cut_analysis`, merged.
    importance : str, Criterion or function, default "l2"
        What says which indices go first: a registered name, or what `mk.importance` takes.
        In docs/quality.md "l2" is ahead of "l1" on torchcrepe and MiniLM, and level with it on the others.
    scope : {"local", "global", "isomorphic"}, default "local"
        Which indices are ranked with one another: those of an axis, or of several, by scores relative to their axis's
        mean, times its weights. "local" takes the same `ratio` of each axis, but of a `target` less where many weights
        make or read one, as on a residual stream: where two do, r stays; where n do, r to the power of √(2/n). So of
        axes of a block a quarter stays when half stays of one along which eight weights run.
    only, keep : str, module, class, Axis or list of these, optional
        Axes, layers, modules or parameters, with wildcards; `only` takes no axis that a layer elsewhere puts out as
        well.
    granularity : {"index", "head", "group"}, default "index"
        What goes where axes multiply.
    round_to : int, optional
        The sizes left are multiples of it.
    floor, ceiling : float, int or mapping, optional
        How much stays at least and at most of each axis that `ratio` or `target` takes from: a share (a float of
        0 … 1) or a number of indices (an int), of every axis or `{axis, layer or (parameter, dim): …}`. One index
        always stays; where the scope is not "local" a tenth does, unless `floor` says otherwise, and an axis loses no
        more than one and a half times the share that goes of all, but for indices below half of its mean score
        (with `per` it may).
        Corrections that the code demands may keep an axis whole in spite of a ceiling; `plan.changes` tells.
    per : {"flops", "params", "macs", "bytes"}, optional
        Rank by score for each FLOP, parameter … that removing an index saves at first, and not by scores in relation
        to the mean of their axis: what is asked for is taken where it costs least. For a scope other than "local".
    blocks : int, float or list of str, optional
        How many residual blocks go as a whole, which share of them, or which, by the paths that `graph.blocks()` lists.
        A number and a share are of those blocks that are in no other, the least important first. They go before
        anything else: a ratio is of what is left, a share in `target` of the whole model.

    Returns
    -------
    PruningPlan
        What goes and what it becomes, with the corrections that the code demanded.

    Raises
    ------
    CutError
        When no plan runs, with the line of code that stands against it; for a target that cannot be reached, with
        what is in the way and the nearest that can; and for requests that contradict one another.
    UnknownAxisError, UnknownNameError
        For an axis or an option that does not exist, with the nearest that do.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> plan = mk.plan(mk.trace(model, torch.randn(1, 4)), ratio=0.5)
    >>> print(plan)
    parameters 58 → 30 (51.7%), FLOPs 104 → 52 (50.0%), 1 axes
    <BLANKLINE>
      0.out      8 → 4      0.weight[0], 0.bias[0], 2.weight[1]
    >>> receipt = plan.cut(model)
    >>> model[0]
    Linear(in_features=4, out_features=4, bias=True)
    """
    request = Request(
        ratio,
        target,
        per_axis,
        None if cuts is None else list(cuts),
        importance,
        scope,
        only,
        keep,
        granularity,
        round_to,
        floor,
        ceiling,
        per,
        blocks if blocks is None or isinstance(blocks, float | int | str) else list(blocks),
    )
    return plan_without(graph, request, _plan_of_widths)


def _plan_of_widths(graph: DataflowGraph, request: Request) -> PruningPlan:
    return _Planner(graph, request).plan()


class _Planner:
    def __init__(self, graph: DataflowGraph, request: Request) -> None:
        check(graph, request)
        self.asked = graph
        self.graph = widest(graph)
        self.request = request
        self.axes = self.graph.axes
        self.notes = prove(self.axes)
        self.choice = Choice(self.axes, request.granularity, request.only, request.keep)
        self.outcome = Outcome(self.axes)
        self.repair = Repair(self.axes, self.outcome)
        self.given = self._given()

    def plan(self) -> PruningPlan:
        if self.request.target is not None:
            return self._to_target(self.request.target)
        return self._with_ratio(self.request.ratio or 0.0)

    def _with_ratio(self, ratio: float) -> PruningPlan:
        selection = self._selection(ratio)
        if not selection.changed:
            raise CutError(self._nothing(ratio))
        attempt, rehearsal = self.repair.proved(Attempt(selection, selection.counts))
        self._not_empty(attempt)
        return self._made(attempt, rehearsal)

    def _not_empty(self, attempt: Attempt) -> None:
        if not attempt.selection.changed:
            stayed = [change for change in self.repair.changes(attempt) if change.kind != ATTRIBUTE]
            reasons = "; ".join(str(change) for change in stayed[:3])
            raise CutError(f"every axis that was to be cut had to stay whole: {reasons}")

    def _made(self, attempt: Attempt, rehearsal: Rehearsal) -> PruningPlan:
        selection = attempt.selection
        found = []
        for term, count in selection.changed.items():
            axis = self.axes.of(term)
            dropped = tuple(sorted(selection.orders[term][: term.size - count].tolist()))
            found.append((axis.number, AxisCut(axis.name, axis.size, dropped, _members(axis))))
        cuts = tuple(cut for _, cut in sorted(found, key=lambda entry: entry[0]))
        return PruningPlan(
            axes=cuts,
            edits=self.repair.edits(attempt),
            changes=(
                *self.repair.changes(attempt),
                *scale_changes(rehearsal.scales),
                *output_changes(self.axes, selection),
            ),
            call=self.request.call({cut.name: list(cut.dropped) for cut in cuts}),
            notes=tuple(self.notes),
            traced=TracedCall.of(self.asked.call, self.asked.training),
            **self._sizes(attempt, rehearsal),
        )

    # ------------------------------------------------------------ selection

    def _selection(self, ratio: float) -> Selection:
        """What the request says, before any dry run."""
        return self._selection_of(self.counts.of(ratio))

    def _selection_of(self, stay: Ints) -> Selection:
        """So many indices of each chosen axis, and what is given."""
        counts = {axis.term: int(count) for axis, count in zip(self.chosen, stay, strict=True)}
        for term, (count, first) in self.given.items():
            counts[term] = rounded(count, term.size, 1 if len(first) else self.steps.get(term, 1))
        orders = {term: self._order(term) for term in counts}
        # where the user says which indices go, a size constraint may leave some of them, and takes no others
        least = {term: count for term, (count, first) in self.given.items() if len(first)}
        steps = {term: step for term, step in self.steps.items() if step > 1 and term not in least}
        return Selection(orders, counts, {**self.limits.least, **least}, steps)

    @cached_property
    def counts(self) -> Counts:
        """What a ratio leaves of the chosen axes."""
        request = self.request
        scores = {} if request.scope == LOCAL else self._comparable
        # a ratio is what each axis loses; a target is spent where it costs least
        paces = local_paces(self.axes, self.chosen) if request.target is not None else None
        return Counts(self.chosen, scores, request.scope, self.steps, self.limits, request.per is None, paces)

    @cached_property
    def steps(self) -> dict[Any, int]:
        """What the numbers of indices are multiples of."""
        return self.choice.steps([*self.chosen, *(self.axes.of(term) for term in self.given)], self.request.round_to)

    @cached_property
    def limits(self) -> Limits:
        """The user's, which what is given must keep as well."""
        given = [self.axes.of(term) for term in self.given]
        limits = limits_of(
            self.request.floor, self.request.ceiling, [*self.chosen, *given], self._axes_named, self.steps
        )
        for axis in given:
            limits.check(axis, self.given[axis.term][0], "per_axis or cuts")
        return limits

    @cached_property
    def chosen(self) -> list[Axis]:
        """The axes that a ratio is for: those that nothing else was said of."""
        return [axis for axis in self.independent if axis.term not in self.given]

    @cached_property
    def independent(self) -> list[Axis]:
        """The axes that may be cut together, where a ratio asks for it."""
        return self.choice.independent() if self._ratio_wanted() else []

    def _ratio_wanted(self) -> bool:
        ratio = self.request.ratio or (self.request.ratio is not None and self.request.ceiling is not None)
        return bool(ratio) or self.request.target is not None

    def _given(self) -> dict[Any, tuple[int, np.ndarray]]:
        """Per axis that the user names: how many indices stay, and those that go first."""
        found: dict[Any, tuple[int, np.ndarray]] = {}
        for term, indices in dropped_by_cuts(self.axes, self.request.cuts or ()).items():
            found[term] = (_left(self.axes.of(term), len(indices)), np.asarray(indices))
        for name, wanted in (self.request.per_axis or {}).items():
            for axis in self._named(name):
                if isinstance(wanted, float | int):
                    if not 0 <= wanted < 1:
                        raise CutError(f"per_axis[{shown(str(name))!r}]={wanted}: give a share of 0 … 1 or indices")
                    found[axis.term] = (axis.size - gone(axis.size, wanted), np.empty(0, dtype=np.int64))
                else:
                    drop = np.flatnonzero(position_flags(wanted, axis.size, f"axis {shown(axis.name)}"))
                    found[axis.term] = (_left(axis, len(drop)), drop)
        return found

    def _axes_named(self, name: Any) -> list[Axis]:
        """The axes behind a key of a mapping."""
        is_place = isinstance(name, tuple) and len(name) == 2
        if isinstance(name, str) and name in self.asked.axes and name not in self.axes:
            member = self.asked.axes[name].members[0]  # another pass may have given it another name
            is_place, name = True, (member.name, member.dim)
        return list(self.axes[name].axes) if is_place else self.choice.named(name)

    def _named(self, name: Any) -> list[Axis]:
        """The free axes behind a key of `per_axis`."""
        found = self._axes_named(name)
        free = [axis for axis in found if axis.frozen is None]
        if not free:
            why = found[0].frozen if found else "it has none"
            raise CutError(f"per_axis: no axis of {shown(str(name))!r} can be cut: {why}")
        if len(free) == 1:
            return free
        return Choice(self.axes, self.request.granularity, free, None).independent()

    # ------------------------------------------------------------ importance

    def _order(self, term: Any) -> np.ndarray:
        """The indices of an axis, the first to go first: those given, else the least important."""
        first = self.given[term][1] if term in self.given else ()
        if len(first):
            return np.concatenate([first, np.setdiff1d(np.arange(term.size), first)])
        return self._orders_by_score[term]

    @cached_property
    def _orders_by_score(self) -> dict[Any, np.ndarray]:
        return {term: np.argsort(scores, kind="stable") for term, scores in self._scores.items()}

    @cached_property
    def _scores(self) -> Scores:
        terms = [axis.term for axis in self.independent]
        terms += [term for term, (_, first) in self.given.items() if term not in terms and not len(first)]
        return score(self.axes, terms, self.request.importance)

    @cached_property
    def _comparable(self) -> Scores:
        """The scores of all chosen axes, so that they can be ranked together."""
        if self.request.per is None:
            return normalised(self.axes, self._scores)
        # in relation to the mean of an axis, a score would say nothing of what an index of it is worth
        formula = self._formula([self.request.per])
        savings = formula.savings([axis.number for axis in self.chosen], self.request.per)
        saved = {axis.term: max(float(saving), 1e-12) for axis, saving in zip(self.chosen, savings, strict=True)}
        return {term: scores / saved.get(term, 1.0) for term, scores in self._scores.items()}

    # --------------------------------------------------------------- target

    def _formula(self, units: Iterable[str]) -> SizeFormula:
        counted = self.graph if self.asked.traced_on == REAL else self.asked
        return SizeFormula(self.axes, counted.axes, list(units))

    def _to_target(self, target: Mapping[str, float]) -> PruningPlan:
        """The plan that leaves what was asked for, as near as steps of single indices come."""
        formula = self._formula(target)
        before = dict(zip(formula.units, formula.before.tolist(), strict=True))
        goals = np.array([wanted * before[unit] if wanted < 1 else wanted for unit, wanted in target.items()])
        for unit, goal in zip(target, goals, strict=True):
            if goal >= before[unit]:
                raise CutError(f"target={dict(target)} takes nothing: the model has {before[unit]:,.0f} {unit}")
        if not self.chosen and not self.given:
            raise CutError(self._nothing(0.0))
        scores = self._comparable
        search = Search(self.counts, formula, [scores[axis.term] for axis in self.chosen])
        targeting = Targeting(search, self.repair, self._selection_of, self._sizes, goals)
        found = targeting.found()
        if found is None or found.gaps.min() < -MEETS:
            nearest = found or targeting.nearest or targeting.smallest()
            raise CutError(out_of_reach(self.request, self.axes, formula, goals, nearest, self._least)) from (
                targeting.failed
            )
        missed = targeting.missed(found)
        if missed is not None:
            raise CutError(out_of_bounds(self.request, formula, goals, found, missed))
        self._not_empty(found.attempt)
        self.notes = [*self.notes, *not_nearer(self.request, formula, goals, found)]
        return self._made(found.attempt, found.rehearsal)

    def _least(self, request: Request, units: Iterable[str]) -> dict[str, float]:
        """What a request leaves at least, if nothing but its own options is in the way."""
        other = _Planner(self.asked, replace(request, scope=LOCAL, per=None))
        formula = other._formula(units)
        stay = other.counts_of_all(other._selection(1.0))
        return dict(zip(formula.units, formula.sizes(stay).tolist(), strict=True))

    def counts_of_all(self, selection: Selection) -> Ints:
        """What stays of every axis, by its number."""
        return np.array([selection.counts.get(axis.term, axis.size) for axis in self.axes], dtype=np.int64)

    def _sizes(self, attempt: Attempt, rehearsal: Rehearsal) -> dict[str, tuple[int, int]]:
        """Parameters, bytes, FLOPs and multiply-adds, before and after."""
        counted = self.asked
        if counted.traced_on == REAL:
            counted = self.graph  # random draws may have led the pass that was asked for another way
            operators = planned_operators(self.axes, attempt.selection)  # a run would count what other data lead to
        elif self.graph is self.asked and rehearsal.graph is not None:
            operators = rehearsal.graph.operators
        else:
            operators = run_through(self.asked, self.repair.edits(attempt)).operators
        before, after = counted.flops(), count_flops(operators)
        return {
            "params": self.outcome.parameters(attempt.selection),
            "bytes": self.outcome.bytes(attempt.selection),
            "flops": (int(before), int(after)),
            "macs": (before.macs, after.macs),
        }

    def _nothing(self, ratio: float) -> str:
        if not self.axes.free:
            return "no axis of the model is free: graph.axes lists them with the reasons"
        if self._ratio_wanted() and not self.choice.allowed:
            return "only=… and keep=… leave no axis that may be cut: graph.axes.free lists those that could be"
        return f"a ratio of {ratio:g} takes no index of any axis: pass a larger one"


def _members(axis: Axis) -> tuple[str, ...]:
    return tuple(f"{node.label}[{dim}]" for node, dim in axis.places)


def _left(axis: Axis, count: int) -> int:
    if count >= axis.size:
        raise CutError(f"{shown(axis.name)} would lose all of its {axis.size} indices: leave one at least")
    return axis.size - count
