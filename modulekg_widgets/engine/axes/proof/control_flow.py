"""Data-dependent control flow: numbers that Python reads, boolean masks, and lists that leave torch.

`Decisions` records the decisions of a pass, or replays those of another one, so that a run with other sizes or permuted
weights takes the traced path and can be compared with it call by call. What the run would have decided itself is
recorded beside. `alternative_paths` lists paths next to the traced one, which the proof permutes as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from modulekg_widgets.engine.axes.terms.algebra import Term, atoms
from modulekg_widgets.engine.errors import ModuleKGError
from modulekg_widgets.engine.identity.walk import Walk
from modulekg_widgets.engine.operators.recorded_call import nodes_in
from modulekg_widgets.engine.operators.signature import base_name, signature_of
from modulekg_widgets.engine.residuals.removal_trial import apply_removal
from modulekg_widgets.engine.torch_runtime.caches import tensors_in
from modulekg_widgets.engine.torch_runtime.private import (
    LIST_EXPORTS,
    Overload,
    TorchDispatchMode,
    disable_current_modes,
    frame_at,
    schema_of,
)
from modulekg_widgets.engine.torch_runtime.pytree import Args, Function, Kwargs, tensors, with_tensors
from modulekg_widgets.engine.torch_runtime.rng import advance_rng, is_random
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode, OperatorNode
from modulekg_widgets.engine.tracing.source import CallerLocator, Source
from modulekg_widgets.engine.tracing.trace import REAL, trace_dataflow

if TYPE_CHECKING:
    from modulekg_widgets.engine.axes.axis import Axes

Tensor = torch.Tensor
_WRITING = {"aten::index_put", "aten::masked_scatter"}  # what takes as many rows as a mask says
MAX_OPERATOR_RATIO, MIN_OPERATORS = (
    8,
    10_000,
)  # operators of a pass on other weights, by those of the traced one and at least
_MASKS = (torch.bool, torch.uint8)
_EXTREME = 1e4  # beyond what code compares a number with
DRAW_COUNTS = range(1, 4)  # that are made before a pass which Python draws for is run again


@dataclass(frozen=True)
class Decision:
    """One call that turns data into Python values, or into a number of rows."""

    call: Function  # the overload, or the method of a tensor
    source: Source | None  # the line of code
    input_shapes: tuple[tuple[int, ...], ...]  # the shapes of its tensors
    masks: tuple[Tensor | None, ...]  # per tensor what it held where it is a mask
    result: Any  # the numbers or tensors that it gave; of what leaves torch, the tensor
    is_constant: bool = False  # whether it is made of constants of the code alone, which follow what the code computes

    @property
    def exports_data(self) -> bool:
        return self.call in LIST_EXPORTS

    @property
    def by_masks(self) -> bool:
        """True if boolean masks alone decide the size of the result, so that other inputs may change."""
        return any(mask is not None for mask in self.masks)


class Decisions:
    """The data-dependent decisions of a forward pass: recorded, or replayed from `known` until the pass diverges.

    `own` holds for each what this pass would have decided.
    """

    def __init__(self, known: Sequence[Decision | None] | None = None) -> None:
        self.known = known
        self.recorded: list[Decision] = []
        self.recomputed: list[list[Tensor]] = []
        self.diverged = False  # whether the pass came to another decision than the known one
        self._lines = CallerLocator()

    def __enter__(self) -> Decisions:
        """Starts again from an empty record, as an isolated run may call the model twice."""
        self.recorded, self.recomputed, self.diverged = [], [], False
        self._modes = ExitStack()
        self._modes.enter_context(_ExportMode(self))
        self._modes.enter_context(_OperatorMode(self))
        return self

    def __exit__(self, *error: object) -> None:
        self._modes.close()

    def of(self, call: Function, args: Args, kwargs: Kwargs, source: Source | None) -> object:
        """The result of a call that decides."""
        given = list(tensors_in((*args, *kwargs.values())))
        if self.known is None:
            return self._note(call, args, kwargs, source, given)
        at = len(self.recomputed)
        if at < len(self.known) and self.known[at] is None and not self.diverged:
            self.recomputed.append([])
            return call(*args, **kwargs)
        known = self.known[at] if at < len(self.known) and not self.diverged else None
        if known is None or known.call is not call or known.source != source or len(known.input_shapes) != len(given):
            self.diverged = True
            return call(*args, **kwargs)
        if known.is_constant:
            self.recomputed.append([])
            return call(*args, **kwargs)
        return self.replayed(known, args, kwargs, given)

    def replayed(self, known: Decision, args: Args, kwargs: Kwargs, given: Sequence[Tensor]) -> object:
        """Returns the known result of a call, and records the result that it would have had."""
        if known.by_masks:
            with disable_current_modes():
                self.recomputed.append([given[at].clone() for at, mask in enumerate(known.masks) if mask is not None])
            return _call_with_masks(known, args, kwargs, given)
        if known.exports_data:
            with disable_current_modes():
                self.recomputed.append([given[0].detach().clone()])
                fits = tuple(given[0].shape) == known.input_shapes[0]
                shown = known.result.to(given[0].dtype, copy=True) if fits else given[0]
            return known.call(shown, *args[1:], **kwargs)
        own = known.call(*args, **kwargs)
        with disable_current_modes():
            self.recomputed.append(_as_tensors(own))
            if tuple(tuple(each.shape) for each in given) != known.input_shapes:
                return own  # what is cut away takes part in it
            dtype = next((each.dtype for each in given if each.is_floating_point()), None)
            return with_tensors(known.result, lambda tensor: _copied(tensor, dtype))

    def _note(
        self, call: Function, args: Args, kwargs: Kwargs, source: Source | None, given: Sequence[Tensor]
    ) -> object:
        shapes = tuple(tuple(each.shape) for each in given)
        if call in LIST_EXPORTS:
            with disable_current_modes():
                kept = given[0].detach().clone()
            self.recorded.append(Decision(call, source, shapes, (None,), kept))
            return call(*args, **kwargs)
        result = call(*args, **kwargs)
        with disable_current_modes():
            second = {id(tensor) for tensor in tensors_in(args[1:2])}
            masks = [each.clone() if each.dtype in _MASKS and id(each) in second else None for each in given]
            by_masks = any(mask is not None for mask in masks)
            kept = None if by_masks else with_tensors(result, lambda tensor: tensor.detach().clone())
        self.recorded.append(Decision(call, source, shapes, tuple(masks), kept))
        return result

    def line(self) -> Source | None:
        """The line of code that is at work."""
        return self._lines.find(frame_at(2))


class _OperatorMode(TorchDispatchMode):
    """Hands the operators that decide to the decisions."""

    def __init__(self, decisions: Decisions) -> None:
        super().__init__()
        self.decisions = decisions

    def __torch_dispatch__(
        self, func: Overload, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        kwargs = kwargs or {}
        if _is_data_dependent_call(func, _dtypes(args, kwargs)[1:], [tensor.dtype for tensor in tensors_in(args[1:2])]):
            return self.decisions.of(func, args, kwargs, self.decisions.line())
        return func(*args, **kwargs)


class _ExportMode(TorchFunctionMode):
    """Hands what leaves torch as lists and arrays to the decisions."""

    def __init__(self, decisions: Decisions) -> None:
        super().__init__()
        self.decisions = decisions

    def __torch_function__(
        self, func: Function, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        if func in LIST_EXPORTS:
            return self.decisions.of(func, args, kwargs or {}, self.decisions.line())
        return func(*args, **kwargs) if kwargs else func(*args)


def _dtypes(args: Args, kwargs: Kwargs) -> list[torch.dtype]:
    return [tensor.dtype for tensor in tensors_in((*args, *kwargs.values()))]


def _call_with_masks(known: Decision, args: Args, kwargs: Kwargs, given: Sequence[Tensor]) -> object:
    """Runs a call with the known masks in place of its own, where the shapes agree."""
    known_masks = {
        id(own): mask.to(own.device)
        for own, mask in zip(given, known.masks, strict=True) if mask is not None and mask.shape == own.shape
    }  # fmt: skip
    args, kwargs = with_tensors((args, kwargs), lambda tensor: known_masks.get(id(tensor), tensor))
    return known.call(*args, **kwargs)


def _as_tensors(value: object) -> list[Tensor]:
    if isinstance(value, bool | int | float | complex):
        return [torch.tensor(value, dtype=torch.complex128 if isinstance(value, complex) else torch.float64)]
    return [tensor.detach().clone() for _, tensor in tensors(value)]


def _copied(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    return tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor.clone()


# ------------------------------------------------------------------------------------------------ of a traced call


class TracedPath:
    """The data-dependent control flow of the traced call: its decisions, and the numbers that vary between runs.

    `decisions` is None where the pass goes another way each time, as by a clock; empty where no data decide.
    """

    def __init__(self, axes: Axes) -> None:
        self.graph = axes.graph

    @cached_property
    def _rerun(self) -> tuple[set[int], list[Decision]] | None:
        """The operators of another run among whose numbers one differs, and its decisions; None where it parts."""
        return self._run_again()

    @cached_property
    def diverging_draws(self) -> list[int]:
        """The numbers of random draws after which the pass takes another path than the traced one."""
        return (
            [count for count in DRAW_COUNTS if self._run_again(count) is None] if self.graph.draws is not None else []
        )

    def _run_again(self, draws: int = 0) -> tuple[set[int], list[Decision]] | None:
        graph, decisions = self.graph, Decisions()

        def prepare(walked: Walk, _: object) -> None:
            advance_rng(draws)
            if graph.removal:
                apply_removal(walked, graph.removal)

        try:
            found = trace_dataflow(
                graph.model, *graph.call, training=graph.training, modes=(graph.traced_on,),
                around=decisions if graph.traced_on == REAL else None, seed=graph.seed,
                prepare=prepare if graph.removal or draws else None,
            )  # fmt: skip
        except ModuleKGError:
            return None
        same = len(found.operators) == len(graph.operators)
        if not same or not all(map(_is_same_call, graph.operators, found.operators)):
            return None
        pairs = zip(graph.operators, found.operators, strict=True)
        return {before.index for before, now in pairs if _numbers(before) != _numbers(now)}, decisions.recorded

    @cached_property
    def decisions(self) -> list[Decision] | None:
        if self.graph.traced_on != REAL:
            return []
        if self._rerun is None:
            return None
        places = zip(self._rerun[1], self._sources, strict=True)
        return [
            each if _deciding_value(place) in self._data_dependent_values else replace(each, is_constant=True)
            for each, place in places
        ]

    @cached_property
    def _sources(self) -> list[DataNode | OperatorNode | None]:
        """Per decision the operator that makes it, or the value that leaves torch; None for a constant of the code."""
        operators = iter([operator for operator in self.graph.operators if is_data_dependent(operator)])
        left = list(self.graph.escaped)
        found: list[DataNode | OperatorNode | None] = []
        for each in () if self._rerun is None else self._rerun[1]:
            if not each.exports_data:
                found.append(next(operators, None))
            elif left and left[0][0].shape == each.input_shapes[0] and left[0][0].dtype == each.result.dtype:
                found.append(left.pop(0)[0])
            else:
                found.append(None)
        return found

    @cached_property
    def _data_dependent_values(self) -> set[DataNode]:
        """The values that depend on inputs, weights or chance."""
        found = {*self.graph.inputs, *self.graph.state.values()}
        for operator in self.graph.operators:
            if is_random(operator.overload) or not found.isdisjoint(operator.inputs):
                found.update(operator.outputs)
        return found

    @cached_property
    def order(self) -> list[DataNode | OperatorNode | None]:
        """The operator or value that makes each decision; None for decisions of constants."""
        return [None if each.is_constant else place
                for each, place in zip(self.decisions or (), self._sources, strict=False)]  # fmt: skip

    @cached_property
    def at_operators(self) -> dict[int, Decision]:
        """The decisions of operators, by their index."""
        every = zip(self.decisions or (), self.order, strict=False)
        return {place.index: each for each, place in every if isinstance(place, OperatorNode)}

    @cached_property
    def varying_operators(self) -> set[int]:
        """The operators, by index, among whose arguments a number is another one each time."""
        return {operator.index for operator in self.graph.operators} if self._rerun is None else self._rerun[0]


def _deciding_value(place: DataNode | OperatorNode | None) -> DataNode | None:
    """A value that is decided by."""
    return next(iter(place.inputs), None) if isinstance(place, OperatorNode) else place


class OperatorLimit(TorchDispatchMode):
    """A limit on the number of operators of a pass, for loops that do not end on changed weights."""

    def __init__(self, graph: Dataflow, min_operators: int = MIN_OPERATORS) -> None:
        super().__init__()
        self.remaining = MAX_OPERATOR_RATIO * len(graph.operators) + min_operators

    def __torch_dispatch__(
        self, func: Overload, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        self.remaining -= 1
        if self.remaining < 0:
            raise RuntimeError("the forward pass does not end with other weights than the traced ones")
        return func(*args, **(kwargs or {}))


class ReplayDecision(TorchDispatchMode):
    """A mode that replays one known decision."""

    def __init__(self, decisions: Decisions, known: Decision) -> None:
        super().__init__()
        self.decisions = decisions
        self.known = known

    def __torch_dispatch__(
        self, func: Overload, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        kwargs = kwargs or {}
        if func is not self.known.call:
            return func(*args, **kwargs)
        return self.decisions.replayed(self.known, args, kwargs, list(tensors_in((*args, *kwargs.values()))))


def traced_path(axes: Axes) -> TracedPath:
    """Returns the traced path of a graph's axes, which is computed once."""
    if axes.traced_path is None:
        axes.traced_path = TracedPath(axes)
    return axes.traced_path


@dataclass(frozen=True)
class AlternativePath:
    """Another path through the code, taken with other data or other random draws."""

    where: str  # the line of code that leads there
    decisions: Sequence[Decision | None] = ()  # up to one that is not as in the traced pass; None for the pass's own
    draws: int = 0  # that Python and NumPy make before, so that others come


def alternative_paths(axes: Axes, follow_trace: bool) -> list[AlternativePath]:
    """Returns the paths next to the traced one: by other random draws, and by other values of single decisions.

    `follow_trace`: the pass goes the traced way up to there, else its own.
    """
    way = traced_path(axes)
    found: list[AlternativePath] = []
    lines: set[tuple[Function, Source | None]] = set()
    by_choice = _choice_dependent_values(axes)  # where indices change places, these decide otherwise
    for at, (each, place) in enumerate(zip(way.decisions or (), way.order, strict=False)):
        if each.is_constant or (each.call, each.source) in lines or _deciding_value(place) in by_choice:
            continue
        lines.add((each.call, each.source))
        before = way.decisions[:at] if follow_trace and way.decisions else [None] * at
        found += [
            AlternativePath(str(each.source), [*before, replace(each, result=other)])
            for other in _alternative_values(each.result)
        ]
    where = axes.graph.draws
    return [*(AlternativePath(str(where), draws=count) for count in way.diverging_draws), *found]


def _choice_dependent_values(axes: Axes) -> set[DataNode]:
    """The values that say which indices the data chose, and all that is computed from them."""
    found = set(axes.inference.chosen.semantics)
    for operator in axes.graph.operators if found else ():
        if not found.isdisjoint(operator.inputs):
            found.update(operator.outputs)
    return found


def _alternative_values(value: object) -> list[Any]:
    """Returns other values that a decision might have: the opposite bool, a neighbouring integer, a large number."""
    if isinstance(value, Tensor):
        return (
            [] if value.numel() != 1 else [torch.full_like(value, other) for other in _alternative_values(value.item())]
        )
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1] if value > 0 else [value + 1]
    return [value + 1, _EXTREME, -_EXTREME] if isinstance(value, float) else []


def chosen_axes(axes: Axes) -> set[Term]:
    """The axes whose indices the data choose, as experts."""
    return {atom for meaning in axes.inference.chosen.semantics.values() for atom in atoms(meaning.axis)}


def is_data_dependent(operator: OperatorNode) -> bool:
    """True if an operator turns data into Python values or into a number of rows."""
    masks = [node.dtype for node in nodes_in(operator.args[1:2])]
    return _is_data_dependent_call(operator.overload, [node.dtype for node in operator.inputs[1:]], masks)


def _is_data_dependent_call(overload: Overload, others: Sequence[torch.dtype], second: Sequence[torch.dtype]) -> bool:
    """True if a call with such dtypes (after the first tensor, and in the second argument) depends on data."""
    signature = signature_of(overload)
    if signature.reads_data:
        return signature.depends_on_data(others)
    return any(dtype in _MASKS for dtype in second) and base_name(schema_of(overload).name) in _WRITING


def _is_same_call(before: OperatorNode, now: OperatorNode) -> bool:
    if before.overload is not now.overload or (before.module, before.source) != (now.module, now.source):
        return False
    return [node.shape for node in before.outputs] == [node.shape for node in now.outputs]


def _numbers(operator: OperatorNode) -> list[float]:
    """The numbers among its arguments, those of Python alone."""
    given = (*operator.args, *operator.kwargs.values())
    return [each for each in given if isinstance(each, int | float) and each == each]
