"""Pruning schedules: gradual pruning over the steps of a training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import nn

from modulekg_widgets.engine.axes.graph import DataflowGraph, trace
from modulekg_widgets.engine.errors import (
    CutError,
    UnknownKeywordError,
    UnknownNameError,
    closest_match_hint,
    printable,
)
from modulekg_widgets.engine.pruning.cut.optimizer_state import Optimizers
from modulekg_widgets.engine.pruning.importance.scoring import normalize_scores, score
from modulekg_widgets.engine.pruning.plan.plan import plan as make_plan
from modulekg_widgets.engine.pruning.plan.selection.axis_choice import AxisChoice
from modulekg_widgets.engine.pruning.plan.selection.counts import Counts, removed_count, round_count
from modulekg_widgets.engine.pruning.plan.selection.request import FREE, Request, check_target
from modulekg_widgets.engine.pruning.plan.sizes.size_model import SizeModel

Shape = Callable[[float], float]  # from 0 … 1 of the steps to 0 … 1 of the way between the ratios
SHAPES = ("cubic", "linear", "constant", "exponential")
_RESERVED_OPTIONS = ("ratio", "target", "per_axis", "cuts", "floor", "ceiling")


class PruningSchedule:
    """A schedule that grows the share of removed indices from `start` to `end` over a training.

    The ratios are of the sizes before the first cut; with a `target`, a size as the FLOPs falls instead, from that
    of the model at the first cut to what the target leaves. The schedule begins at step `first` and is at `end` in step
    `first + steps - 1`, the last of `range(steps)`; in between it cuts every `every` steps.

    Parameters
    ----------
    steps : int
        How many steps it takes.
    start, end : float, default 0.0 and 0.5
        Shares of the indices that are gone, 0 ≤ start ≤ end < 1.
    shape : {"cubic", "linear", "constant", "exponential"} or function, default "cubic"
        "cubic" is fast at first (Zhu and Gupta 2017, "To prune, or not to prune"), "constant" is all at once,
        "exponential" takes the same share of what is left each time; a function maps 0 … 1 of the steps to 0 … 1 of
        the way.
    first : int, default 0
        The step at which it begins.
    every : int, default 1
        How many steps lie between two cuts.
    target : mapping, optional
        What shall be left of one size at the end, as `{"flops": 0.5}` in `mk.plan`; it takes the place of `start` and
        `end`.

    Raises
    ------
    CutError
        For numbers that make no schedule.
    UnknownNameError
        For a shape that does not exist.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> schedule = mk.PruningSchedule(steps=3, end=0.5, shape="linear")
    >>> for step in range(3):
    ...     if schedule.due(step):
    ...         receipt = schedule.cut(model, torch.randn(1, 4), step)
    ...     print(step, model[0].out_features)
    0 8
    1 6
    2 4
    >>> schedule.undo()
    >>> model[0].out_features
    8
    """

    def __init__(
        self,
        steps: int,
        start: float = 0.0,
        end: float = 0.5,
        shape: str | Shape = "cubic",
        *,
        first: int = 0,
        every: int = 1,
        target: Mapping[str, float] | None = None,
    ) -> None:
        for name, value, least in (("steps", steps, 1), ("first", first, 0), ("every", every, 1)):
            if not isinstance(value, int) or value < least:
                raise CutError(f"{name}={printable(repr(value))}: give a whole number of at least {least}")
        check_target(target)
        if target is not None and len(target) > 1:
            raise CutError(
                f"target={printable(repr(target))}: a schedule follows one size, mk.plan meets several at once"
            )
        if target is not None and (start, end) != (0.0, 0.5):
            raise CutError(f"start={start}, end={end}: the target says what is left at the end, leave them out")
        if not 0 <= start <= end < 1:
            raise CutError(f"start={start}, end={end}: give shares of the indices with 0 ≤ start ≤ end < 1")
        if not callable(shape) and shape not in SHAPES:
            raise UnknownNameError(
                f"shape={printable(str(shape))!r}: {closest_match_hint(str(shape), SHAPES)}, or pass a function"
            )
        self.steps = steps
        self.start = start
        self.end = end
        self.shape = shape
        self.first = first
        self.every = every
        self.target = None if target is None else dict(target)
        self.done = 0.0  # the ratio that the model has been brought to; of the way, where a target is the end of it
        self.receipts: list[Any] = []  # of the cuts made here, in order
        self._before: list[float] = []  # what `done` was before each of them
        self._original_axis_sizes: dict[str, int] = {}  # of the axes before the first cut
        self._original_sizes: dict[str, float] = {}  # of the model before the first cut, by unit of the target

    # --------------------------------------------------------------- ratios

    def ratio(self, step: int) -> float:
        """The share of the original indices that is removed after a step.

        Parameters
        ----------
        step : int
            A step of the training.

        Returns
        -------
        float
            0 … 1; 0 before the schedule begins.

        Raises
        ------
        CutError
            When a function as shape gives something that is no share; where a target takes the place of ratios.
        """
        if self.target is not None:
            raise CutError(f"a target leaves the ratios open: schedule.left({step}) says what is left of the sizes")
        if step < self.first:
            return 0.0
        if self.shape == "exponential":
            return 1 - (1 - self.start) * ((1 - self.end) / (1 - self.start)) ** self._elapsed_share(step)
        found = self.start + (self.end - self.start) * _shape_value(self.shape, self._elapsed_share(step))
        if not 0 <= found < 1:
            raise CutError(f"the shape gives the ratio {found} at step {step}: it maps 0 … 1 to 0 … 1")
        return found

    def left(self, step: int) -> dict[str, float]:
        """The remaining share of the target's size after a step.

        Parameters
        ----------
        step : int
            A step of the training.

        Returns
        -------
        dict
            By unit, 0 … 1; empty without a target. A target above 1, a number, is a share from the first cut on.

        Raises
        ------
        CutError
            When a function as shape gives something that is no share.
        """
        return self._remaining_sizes(step, self._original_sizes)

    def _remaining_sizes(self, step: int, whole: Mapping[str, float]) -> dict[str, float]:
        reached, left = self._progress_at(step), {}
        for unit, wanted in (self.target or {}).items():
            share = wanted if wanted < 1 else min(1.0, wanted / whole.get(unit, wanted))
            left[unit] = share**reached if self.shape == "exponential" else 1 - (1 - share) * reached
        return left

    def _elapsed_share(self, step: int) -> float:
        """The elapsed share of the steps, 0 … 1."""
        return min(1.0, max(0, step - self.first) / (self.steps - 1)) if self.steps > 1 else 1.0

    def _progress_at(self, step: int) -> float:
        """The ratio after a step, or with a target the progress towards it."""
        if self.target is None:
            return self.ratio(step)
        if step < self.first:
            return 0.0
        found = (
            self._elapsed_share(step)
            if self.shape == "exponential"
            else _shape_value(self.shape, self._elapsed_share(step))
        )
        if not 0 <= found <= 1:
            raise CutError(f"the shape gives {found} at step {step}: it maps 0 … 1 to 0 … 1")
        return found

    def due(self, step: int) -> bool:
        """True if the schedule cuts at a step and there is something to remove.

        Parameters
        ----------
        step : int
            A step of the training.

        Returns
        -------
        bool
            Whether `cut` has something to do.
        """
        last = self.first + self.steps - 1
        if step < self.first or (step < last and (step - self.first) % self.every):
            return False
        return self._progress_at(step) > self.done + 1e-12

    # ----------------------------------------------------------------- cuts

    def cut(
        self,
        model: nn.Module,
        args: Any = (),
        step: int | None = None,
        *,
        kwargs: Mapping[str, Any] | None = None,
        optimizer: Optimizers | None = None,
        recalibrate: Iterable[Any] | None = None,
        compensate: bool = False,
        copies: Sequence[Any] = (),
        **options: Any,
    ) -> Any:
        """Trace `model(*args, **kwargs)` again and cut it to the ratio of `step`, or to what the target leaves then.

        Parameters
        ----------
        model : nn.Module
            The model, cut in place.
        args : tensor or tuple
            What forward takes.
        step : int
            The step of the training; it must be given.
        kwargs : mapping, optional
            What forward takes by name.
        optimizer : torch.optim.Optimizer or list of them, optional
            Its state is cut alike; a list for parameters that several train, as Muon and AdamW do.
        recalibrate, compensate, copies
            As in `plan.cut`: batches that renew running statistics, whether outputs are compensated with them, and
            averages of the weights that are cut alike.
        **options : Any
            Those of `mk.plan`, as `importance` and `scope`.

        Returns
        -------
        Receipt or None
            The way back; None where the ratio takes no whole index yet.

        Raises
        ------
        CutError
            Without a step; also what `mk.trace` and `mk.plan` raise. Nothing has changed then.
        UnknownKeywordError
            For what the schedule itself sets, and what would be of sizes that change: `ratio`, `target`, `per_axis`,
            `cuts`, `floor` and `ceiling`.
        """
        if step is None:
            raise CutError("which step is it? pass schedule.cut(model, args, step)")
        taken = [name for name in _RESERVED_OPTIONS if name in options]
        if taken:
            raise UnknownKeywordError(f"{taken[0]} is what the schedule sets: leave it out, or call mk.plan yourself")
        wanted = self._progress_at(step)
        graph = trace(model, args, kwargs)
        sizes = {**{axis.name: axis.size for axis in graph.axes}, **self._original_axis_sizes}
        now = self._target_sizes(graph)
        whole = self._original_sizes or now
        if self.target is None:
            plan = self._make_plan(graph, wanted, sizes, options)
        else:
            goals = {unit: share * whole[unit] for unit, share in self._remaining_sizes(step, whole).items()}
            target = {unit: goal for unit, goal in goals.items() if goal < now[unit]}
            plan = make_plan(graph, target=target, **options) if target else None
        receipt = None
        if plan is not None:
            receipt = plan.cut(model, optimizer, recalibrate, compensate, copies)
            self.receipts.append(receipt)
            self._before.append(self.done)
        self.done, self._original_axis_sizes, self._original_sizes = max(wanted, self.done), sizes, whole
        return receipt

    def _target_sizes(self, graph: DataflowGraph) -> dict[str, float]:
        """The sizes of a model in the units of the target."""
        if self.target is None:
            return {}
        formula = SizeModel(graph.axes, list(self.target))
        return dict(zip(formula.units, formula.before.tolist(), strict=True))

    def _make_plan(self, graph: DataflowGraph, wanted: float, sizes: Mapping[str, int], options: dict[str, Any]) -> Any:
        """The plan that removes a share of the original indices; None if that is no index."""
        asked = Request(granularity=options.get("granularity"), layers=options.get("layers", FREE))
        choice = AxisChoice(graph.axes, asked.granularity_wanted, options.get("only"), options.get("keep"))
        chosen = choice.independent()
        multiples = choice.multiples(chosen, options.get("round_to"))
        scope = options.get("scope", "local")
        if scope == "local":
            ratios = {}
            for axis in chosen:
                original = sizes[axis.name]
                left = round_count(original - removed_count(original, wanted), axis.size, multiples.get(axis.term, 1))
                if left < axis.size:
                    ratios[axis.name] = (axis.size - left) / axis.size
            rest = {name: value for name, value in options.items() if name not in ("only", "keep")}
            return make_plan(graph, per_axis=ratios, **rest) if ratios else None
        now, before = sum(axis.size for axis in chosen), sum(sizes[axis.name] for axis in chosen)
        less = now - (before - int(before * wanted + 1e-9))
        if less <= 0:
            return None
        try:
            return make_plan(graph, ratio=less / now, **options)
        except CutError:
            found = score(graph.axes, [axis.term for axis in chosen], options.get("importance", "l2"))
            counts = Counts(chosen, normalize_scores(graph.axes, found), scope, multiples)
            if (counts.at_ratio(less / now) == counts.sizes).all():
                return None  # all of it goes in rounding
            raise

    def undo(self) -> None:
        """Undo every cut of this schedule; the model and optimizer are byte for byte as before."""
        while self.receipts:
            self.receipts[-1].undo()
            self.receipts.pop()
            self.done = self._before.pop()

    # ---------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """The progress of the schedule in plain values, without receipts."""
        return {
            "version": 1,
            "done": self.done,
            "sizes": dict(self._original_axis_sizes),
            "whole": dict(self._original_sizes),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`, with the model as it was cut then.

        Parameters
        ----------
        state : mapping
            What `state_dict` gave.

        Raises
        ------
        CutError
            For anything else.
        """
        if not isinstance(state, Mapping) or state.get("version") != 1 or not {"done", "sizes"} <= state.keys():
            raise CutError("this is not a state of a PruningSchedule: pass what its state_dict() gave")
        self.done = float(state["done"])
        self._original_axis_sizes = {str(name): int(size) for name, size in state["sizes"].items()}
        self._original_sizes = {str(unit): float(size) for unit, size in state.get("whole", {}).items()}
        self.receipts, self._before = [], []

    def __repr__(self) -> str:
        given = (("first", self.first, 0), ("every", self.every, 1), ("target", self.target, None))
        extra = "".join(f", {name}={value}" for name, value, usual in given if value != usual)
        return f"PruningSchedule({self.steps}, {self.start}, {self.end}, {self.shape!r}{extra})"


def _shape_value(shape: str | Shape, way: float) -> float:
    if callable(shape):
        return float(shape(way))
    return {"cubic": 1 - (1 - way) ** 3, "linear": way, "constant": 1.0}[shape]
