"""Interleaved timing of cut copies beside the uncut model."""

from __future__ import annotations

import statistics
import weakref
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.operators.cost import operator_flops
from modulekg_widgets.engine.profiling.profile import module_times, timed_on_copy
from modulekg_widgets.engine.profiling.timing import (
    MIN_ROUNDS,
    SECONDS,
    Call,
    LatencyComparison,
    TimedModel,
    check_has_data,
    interleaved_times,
)
from modulekg_widgets.engine.pruning.cut.edits import Edits
from modulekg_widgets.engine.pruning.recover.sandbox_runs import CutSandbox, run_as_cut
from modulekg_widgets.engine.residuals.module_removal import NOTHING_REMOVED
from modulekg_widgets.engine.torch_runtime.isolation.shadow import ALL
from modulekg_widgets.engine.torch_runtime.modules import registered_tensors
from modulekg_widgets.engine.torch_runtime.private import disable_current_modes
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode, OperatorNode

T = TypeVar("T")


def time_cut_copy(model: nn.Module, edits: Edits, call: Call, run: Callable[[TimedModel], T]) -> T:
    """Run a function on a cut copy of the model in eval mode; the model is unchanged."""

    def in_sandbox(cut: CutSandbox) -> T:
        return run(TimedModel(cut.walked, cut.copies, call))

    return run_as_cut(model, edits, False, in_sandbox, own=ALL)


def compare_latency(
    model: nn.Module, before: Edits, after: Edits, call: Call, min_runs: int = MIN_ROUNDS, seconds: float = SECONDS
) -> LatencyComparison:
    """Time the model with one set of edits and with another, in turn."""

    def beside(uncut: TimedModel) -> LatencyComparison:
        with disable_current_modes():  # of that sandbox, for which the model itself is out of bounds
            return time_cut_copy(model, after, call, lambda cut: _interleaved_runs(uncut, cut, min_runs, seconds))

    if before.tensors or before.attributes or before.removal:
        return time_cut_copy(model, before, call, beside)
    return timed_on_copy(model, walk(model), call, beside)


def _interleaved_runs(uncut: TimedModel, cut: TimedModel, min_runs: int, seconds: float) -> LatencyComparison:
    before, after = interleaved_times([uncut, cut], min_runs, seconds)
    return LatencyComparison(tuple(before), tuple(after))


# -------------------- The measured time of each recorded operator, from the times of modules


def operator_times(flow: Dataflow, exclusive: Mapping[str, float]) -> dict[int, float]:
    """Milliseconds by operator number, from the exclusive times of modules by path.

    A module's time is shared among its operators by their FLOPs. One that was not called in the measured pass, as
    inside of torch's fused attention, belongs to the module around it.
    """
    by_module: dict[str, list[tuple[OperatorNode, int]]] = defaultdict(list)
    for operator in flow.operators:
        if flops := operator_flops(operator):
            by_module[_measured_module(operator.module, exclusive)].append((operator, flops))
    times: dict[int, float] = {}
    for path, own in by_module.items():
        each = exclusive.get(path, 0.0) / sum(flops for _, flops in own)
        times |= {operator.index: each * flops for operator, flops in own}
    return times


def _measured_module(path: str, exclusive: Mapping[str, float]) -> str:
    while path and path not in exclusive:
        path = path.rpartition(".")[0]
    return path


# -------------------- Operator times by the sizes they compute on, measured once for all models


# nanoseconds of operators, by where they ran and what they computed
_measured: dict[tuple[Hashable, Hashable], float] = {}


def times_by_size(flow: Dataflow, device: Hashable, measure: Callable[[], Mapping[int, float]]) -> dict[int, float]:
    """Times by operator number; `measure` is called if a size is not yet known on the device.

    Operators of one size take the same: the mean of those that were measured together. `device`: the device, and all
    else that times depend on.
    """
    sizes = {operator.index: (device, _size_key(operator)) for operator in flow.operators if operator_flops(operator)}
    if any(size not in _measured for size in sizes.values()):
        times = defaultdict(list)
        for index, taken in measure().items():
            times[sizes[index]].append(taken)
        for size, taken in times.items():
            _measured.setdefault(size, statistics.fmean(taken))
    return {index: _measured[size] for index, size in sizes.items()}


def _size_key(operator: OperatorNode) -> Hashable:
    """The key of an operator: its name, the shapes and dtypes of its tensors, and its other arguments."""
    return str(operator.overload), _hashable(operator.args), _hashable(operator.kwargs)


def _hashable(value: object) -> Hashable:
    if isinstance(value, DataNode):
        return tuple(value.shape), str(value.dtype)
    if isinstance(value, list | tuple):
        return tuple(map(_hashable, value))
    if isinstance(value, Mapping):
        return tuple((key, _hashable(each)) for key, each in value.items())
    return str(value)


# -------------------- Measured times of a traced model and of its cuts, cached for each device


QUICK_SECONDS, THOROUGH_SECONDS = 0.4, 1.0  # seconds of passes of each model
NANOSECONDS_PER_MILLISECOND = 1e6  # of a millisecond: the unit of estimates, so that small models have no fractions

# what was measured on a device, by traced model: the times of modules, and cuts by the sizes that they leave
_measurements: weakref.WeakKeyDictionary[Dataflow, dict[Hashable, Any]] = weakref.WeakKeyDictionary()


class Stopwatch:
    """Measures a traced model and its cuts; results are cached."""

    def __init__(self, graph: DataflowGraph) -> None:
        self.graph = graph
        self.walked = walk(graph.model)
        check_has_data(self.walked, graph.call)
        self._base_edits = Edits((), {}, graph.removal or NOTHING_REMOVED)
        own = [tensor for state in self.walked.states for tensor in registered_tensors(state).values()]
        # where and how it computes, which may have changed since the trace
        self._place = (torch.get_num_threads(), *dict.fromkeys((str(t.device), str(t.dtype)) for t in own))

    def model_time(self) -> float:
        """Milliseconds of the uncut model."""
        return self._measured_once(
            ("whole",), lambda: self._time_uncut(lambda timed: statistics.median(interleaved_times([timed])[0]))
        )

    def times(self, counted: Dataflow) -> dict[int, float]:
        """Nanoseconds of the operators of a trace over the uncut model, by number."""

        def measure() -> dict[int, float]:
            return operator_times(
                counted, {path: taken * NANOSECONDS_PER_MILLISECOND for path, taken in self._exclusive_times().items()}
            )

        return times_by_size(counted, self._place, measure)

    def slowest_modules(self) -> list[tuple[str, float]]:
        """The modules by exclusive time, the slowest first."""
        exclusive = self._exclusive_times()
        return sorted(exclusive.items(), key=lambda entry: -entry[1])

    def compare_cut(self, edits: Edits, thorough: bool) -> LatencyComparison:
        """The comparison of the cut model with the uncut one."""
        sizes = tuple((edit.names, edit.shape_after) for edit in edits.tensors)
        sizes += tuple((each.path,) for each in edits.removal.modules)
        seconds = THOROUGH_SECONDS if thorough else QUICK_SECONDS
        return self._measured_once(
            ("cut", thorough, sizes),
            lambda: compare_latency(self.graph.model, self._base_edits, edits, self.graph.call, seconds=seconds),
        )

    def _exclusive_times(self) -> dict[str, float]:
        """Exclusive milliseconds of each module, by path."""
        times = self._measured_once(
            ("modules",),
            lambda: self._time_uncut(lambda timed: module_times([timed], seconds=QUICK_SECONDS)[0].exclusive),
        )
        return {self.walked.path(index): taken for index, taken in times.items()}

    def _time_uncut(self, run: Callable[[TimedModel], T]) -> T:
        if self._base_edits.removal:
            return time_cut_copy(self.graph.model, self._base_edits, self.graph.call, run)
        return timed_on_copy(self.graph.model, self.walked, self.graph.call, run)

    def _measured_once(self, key: tuple[Hashable, ...], measure: Callable[[], T]) -> T:
        known = _measurements.setdefault(self.graph, {})
        key = (*self._place, *key)
        if key not in known:
            known[key] = measure()
        return known[key]
