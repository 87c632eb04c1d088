"""`graph.profile`: time, memory and FLOPs of every module, before and after a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from modulekg_widgets.engine.errors import CutError, TraceError, shown
from modulekg_widgets.engine.identity.walk import Walk, walk
from modulekg_widgets.engine.profiling.module_times import ModuleTimes, module_times
from modulekg_widgets.engine.profiling.timing import Call, TimedModel, check_real
from modulekg_widgets.engine.torch_runtime.inputs import call_arguments, input_tensors
from modulekg_widgets.engine.torch_runtime.look import Stage, look
from modulekg_widgets.engine.torch_runtime.parallel import inside
from modulekg_widgets.engine.torch_runtime.private import disable_current_modes
from modulekg_widgets.engine.torch_runtime.shadow import ALL
from modulekg_widgets.engine.torch_runtime.state import set_mode, unwrapped
from modulekg_widgets.engine.tracing.dataflow import Dataflow
from modulekg_widgets.engine.tracing.flops import with_containers
from modulekg_widgets.engine.tracing.trace import trace_dataflow

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

T = TypeVar("T")
COLUMNS = ("time_ms", "memory", "flops", "flops_per_s")


class Cutting(Protocol):
    """A plan, which can be run without cutting anything."""

    def timed(self, model: nn.Module, call: Call, run: Callable[[TimedModel], T]) -> T:
        """What `run` makes of the model as it would be cut."""
        ...

    def flow(self, graph: Dataflow) -> Dataflow:
        """The traced pass as it would go through the cut model."""
        ...


def profile(graph: Dataflow, args: Any, kwargs: Mapping[str, Any] | None, plan: Cutting | None) -> pd.DataFrame:
    """The table; raises `TraceError` where there is nothing to measure."""
    if graph.error is not None:
        raise TraceError("the graph ends where its forward pass stopped: trace with inputs that go through", graph)
    if plan is not None and not hasattr(plan, "timed"):
        raise CutError(f"plan= is a {shown(type(plan).__name__)}: pass what mk.plan gave")
    walked = walk(graph.model)
    call = graph.call if args is None and kwargs is None else call_arguments(args, kwargs)
    input_tensors(inside(unwrapped(graph.model)), *call)  # do they fit the signature
    check_real(walked, call)
    if args is not None or kwargs is not None:
        graph = trace_dataflow(graph.model, args, kwargs, training=graph.training)
    sides = timed_on_copy(graph.model, walked, call, lambda uncut: _measured(uncut, plan, graph.model, call))
    flows = [graph] if plan is None else [graph, plan.flow(graph)]
    return _table(walked, sides, flows)


def timed_on_copy(model: nn.Module, walked: Walk, call: Call, run: Callable[[TimedModel], T]) -> T:
    """What `run` makes of a copy of the model in eval mode; the model stays as it is."""

    def staged(stage: Stage) -> T:
        copied = walked.with_modules(stage.modules)
        set_mode(copied.states, False)
        return run(TimedModel(copied, stage.copies, call))

    return look(walked.modules, (), staged, ALL, 0)


def _measured(uncut: TimedModel, plan: Cutting | None, model: nn.Module, call: Call) -> list[ModuleTimes]:
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
    return with_containers(own)
