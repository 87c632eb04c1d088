"""`graph.profile`: time, memory and FLOPs of every module, before and after a plan."""

from __future__ import annotations

import statistics
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch
from torch import nn

from modulekg_widgets.engine.errors import CutError, TraceError, a_type
from modulekg_widgets.engine.identity.walk import Walk, walk
from modulekg_widgets.engine.profiling.timing import (
    MIN_ROUNDS,
    SECONDS,
    Call,
    Mark,
    TimedModel,
    check_has_data,
    lower_quartile,
    timed_rounds,
)
from modulekg_widgets.engine.torch_runtime.hooks import module_call_hooks
from modulekg_widgets.engine.torch_runtime.isolation.sandbox import Sandbox, run_isolated
from modulekg_widgets.engine.torch_runtime.isolation.shadow import ALL
from modulekg_widgets.engine.torch_runtime.modules import set_mode, unwrapped
from modulekg_widgets.engine.torch_runtime.parallel import unwrap_model
from modulekg_widgets.engine.torch_runtime.private import disable_current_modes
from modulekg_widgets.engine.torch_runtime.pytree import Args, call_arguments, input_tensors
from modulekg_widgets.engine.tracing.dataflow import Dataflow
from modulekg_widgets.engine.tracing.flops import sum_by_module
from modulekg_widgets.engine.tracing.trace import trace_dataflow

if TYPE_CHECKING:
    import pandas as pd


# -------------------- The time of each module in passes of a model, without the cost of measuring


ROOT = -1
EMPTY_MODULES, TRIALS = 32, 25  # modules that do nothing, and passes of them


@dataclass(slots=True)
class _Interval:
    """One call of one module."""

    module: int
    parent: int  # place of the call around it
    start: Mark
    end: Mark = None


@dataclass(frozen=True)
class ModuleTimes:
    """Milliseconds by the numbers of modules, for those that were called: with all that is called inside, and without.

    A container takes what the modules in it take and what is its own, so the table adds up.
    """

    inclusive: dict[int, float]
    exclusive: dict[int, float]


class _CallTimes:
    """Records when each call of a module begins and ends, in this thread."""

    def __init__(self, timed: TimedModel) -> None:
        self.calls: list[_Interval] = []
        self._mark = timed.clock.mark
        self._index_of = {id(module): index for index, module in enumerate(timed.walked.modules)}
        self._open: list[int] = []
        self._thread = threading.get_ident()

    def on_enter(self, module: nn.Module, args: Args) -> None:
        index = self._index_of.get(id(module))
        if threading.get_ident() != self._thread or index is None:
            return
        parent = self._open[-1] if self._open else ROOT
        self._open.append(len(self.calls))
        self.calls.append(_Interval(index, parent, self._mark()))

    def on_exit(self, module: nn.Module, *_: Any) -> None:
        if threading.get_ident() == self._thread and id(module) in self._index_of:
            self.calls[self._open.pop()].end = self._mark()


def module_times(
    models: Sequence[TimedModel], min_rounds: int = MIN_ROUNDS, seconds: float = SECONDS
) -> list[ModuleTimes]:
    """Measures the times of the modules of some models in interleaved passes."""
    heard: list[list[list[_Interval]]] = [[] for _ in models]
    with torch.inference_mode(False), torch.no_grad():
        for model in models:
            model.warm_up()
        with disable_current_modes():
            runs = [lambda at=at, model=model: _timed_with_hooks(model, heard[at]) for at, model in enumerate(models)]
            timed_rounds(runs, min_rounds, seconds * len(runs))
            overheads = [_hook_overhead(model) for model in models]
    return [_medians(*each) for each in zip(models, heard, overheads, strict=True)]


def _timed_with_hooks(timed: TimedModel, heard: list[list[_Interval]]) -> float:
    listener = _CallTimes(timed)
    with module_call_hooks(timed.copies, listener.on_enter, listener.on_exit):
        taken = timed.time()
    heard.append(listener.calls)
    return taken


def _hook_overhead(like: TimedModel) -> float:
    """Returns the cost of hooking one call in milliseconds, measured on empty modules."""
    if like.copies is None:
        return 0.0  # all modules of the process are heard, and these must not be taken for the model's
    walked = walk(nn.Sequential(*[nn.Identity() for _ in range(EMPTY_MODULES)]))
    nothing = TimedModel(walked, walked.modules, ((torch.zeros(()),), {}))
    heard: list[list[_Interval]] = []
    plain, loud = timed_rounds([nothing.time, lambda: _timed_with_hooks(nothing, heard)], TRIALS, 0.0)
    return max(lower_quartile(loud) - lower_quartile(plain), 0.0) / len(heard[0])


def _medians(timed: TimedModel, passes: list[list[_Interval]], overhead: float) -> ModuleTimes:
    """Returns the median times by module over the passes that took the most common path."""
    ways = [tuple(call.module for call in calls) for calls in passes]
    usual = Counter(ways).most_common(1)[0][0]
    alike = [calls for calls, way in zip(passes, ways, strict=True) if way == usual]
    calls, every = alike[0], [_exclusive_times(timed, calls) for calls in alike]
    below = Counter(call.parent for call in calls)
    sums = [max(statistics.median(own) - overhead * below[at], 0.0) for at, own in enumerate(zip(*every, strict=True))]
    inclusive: dict[int, float] = defaultdict(float)
    exclusive: dict[int, float] = defaultdict(float)
    for place, call in enumerate(calls):
        exclusive[call.module] += sums[place]
    for place, call in reversed(list(enumerate(calls))):  # what is called inside comes later
        if call.parent != ROOT:
            sums[call.parent] += sums[place]
        if not _is_recursive(calls, place):
            inclusive[call.module] += sums[place]
    return ModuleTimes(dict(inclusive), dict(exclusive))


def _exclusive_times(timed: TimedModel, calls: Sequence[_Interval]) -> list[float]:
    """Returns the exclusive time of each call of a pass in milliseconds."""
    taken = [timed.clock.between(call.start, call.end) for call in calls]
    own = list(taken)
    for call, whole in zip(calls, taken, strict=True):
        if call.parent != ROOT:
            own[call.parent] -= whole
    return own


def _is_recursive(calls: Sequence[_Interval], place: int) -> bool:
    """True if the call is inside another call of the same module."""
    module, parent = calls[place].module, calls[place].parent
    while parent != ROOT:
        if calls[parent].module == module:
            return True
        parent = calls[parent].parent
    return False


# ----------------------------------------


T = TypeVar("T")
COLUMNS = ("time_ms", "memory", "flops", "flops_per_s")


class CutPlan(Protocol):
    """A plan, which can be run without cutting anything."""

    def timed(self, model: nn.Module, call: Call, run: Callable[[TimedModel], T]) -> T:
        """Runs `run` on a copy of the model that is cut by the plan."""
        ...

    def flow(self, graph: Dataflow) -> Dataflow:
        """Returns the data flow of the cut model."""
        ...


def profile(graph: Dataflow, args: Args, kwargs: Mapping[str, Any] | None, plan: CutPlan | None) -> pd.DataFrame:
    """Returns the profile as a table; raises `TraceError` without data to run on."""
    if graph.error is not None:
        raise TraceError(
            "the graph ends where its forward pass stopped: trace with inputs that the model accepts", graph
        )
    if plan is not None and not hasattr(plan, "timed"):
        raise CutError(f"plan= is {a_type(plan)}: pass what mk.plan gave")
    walked = walk(graph.model)
    call = graph.call if args is None and kwargs is None else call_arguments(args, kwargs)
    input_tensors(unwrap_model(unwrapped(graph.model)), *call)  # do they fit the signature
    check_has_data(walked, call)
    if args is not None or kwargs is not None:
        graph = trace_dataflow(graph.model, args, kwargs, training=graph.training)
    sides = timed_on_copy(graph.model, walked, call, lambda uncut: _measured(uncut, plan, graph.model, call))
    flows = [graph] if plan is None else [graph, plan.flow(graph)]
    return _table(walked, sides, flows)


def timed_on_copy(model: nn.Module, walked: Walk, call: Call, run: Callable[[TimedModel], T]) -> T:
    """Runs `run` on a copy of the model in eval mode; the model is not changed."""

    def in_sandbox(sandbox: Sandbox) -> T:
        copied = walked.with_modules(sandbox.modules)
        set_mode(copied.states, False)
        return run(TimedModel(copied, sandbox.copies, call))

    return run_isolated(walked.modules, (), in_sandbox, ALL, 0)


def _measured(uncut: TimedModel, plan: CutPlan | None, model: nn.Module, call: Call) -> list[ModuleTimes]:
    if plan is None:
        return module_times([uncut])
    with disable_current_modes():  # of this look, for which the model itself is out of bounds
        return plan.timed(model, call, lambda cut: module_times([uncut, cut]))


def _table(walked: Walk, sides: list[ModuleTimes], flows: list[Dataflow]) -> pd.DataFrame:
    import numpy as np
    import pandas as pd

    paths = [walked.path(index) for index in range(len(walked.modules))]
    columns: dict[str, Any] = {"module": pd.Series(paths, dtype=object)}  # a name may have what text columns refuse
    for side, flow, suffix in zip(sides, flows, ("", "_after"), strict=False):
        memory, flops = memory_by_module(flow), flow.flops().by_module
        times = np.array([side.inclusive.get(index, np.nan) for index in range(len(paths))])
        counted = np.array([flops.get(path, 0) for path in paths], dtype=np.int64)
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = np.where((times > 0) & (counted > 0), counted / times * 1e3, np.nan)
        made = np.array([memory.get(path, 0) for path in paths], dtype=np.int64)
        columns |= {f"{name}{suffix}": own for name, own in zip(COLUMNS, (times, made, counted, rate), strict=True)}
    return pd.DataFrame(columns)


def memory_by_module(flow: Dataflow) -> dict[str, int]:
    """Bytes of the tensors that the operators of each module and below make; views and what is written in place not."""
    known = {node.storage for node in flow.values if node.producer is None}
    own: dict[str, int] = {}
    for operator in flow.operators:
        for node in operator.outputs:
            if node.storage not in known:
                known.add(node.storage)
                own[operator.module] = own.get(operator.module, 0) + node.nbytes
    return sum_by_module(own)
