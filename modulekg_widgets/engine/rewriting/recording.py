"""Which functions the forwards of a model call, in which order: found by a trace, which leaves the model as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from modulekg_widgets.engine.identity.hierarchy import Walk, is_script, nominal_class
from modulekg_widgets.engine.rewriting.fitting import held_by
from modulekg_widgets.engine.rewriting.function_module import CallSite, FunctionModule, Layout
from modulekg_widgets.engine.rewriting.functions import Function, function_name
from modulekg_widgets.engine.rewriting.listening import Listener, Run
from modulekg_widgets.engine.tracing.dataflow import Dataflow
from modulekg_widgets.engine.tracing.source import Source
from modulekg_widgets.engine.tracing.structure import tensors, with_tensors
from modulekg_widgets.engine.tracing.trace import trace_dataflow


@dataclass(eq=False)
class Call:
    """One call of a function, and the operators that ran in it."""

    function: Function
    source: Source
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    start: int
    end: int = 0
    result: Any = None


@dataclass(eq=False)
class Recorded:
    """The runs of every forward that was listened to, by the module's index in the walk, and the graph of the trace."""

    graph: Dataflow
    runs: dict[int, list[list[Call]]] = field(default_factory=dict)


def record(
    model: nn.Module, args: Any, kwargs: Mapping[str, Any] | None, *, training: bool | None, passes: int = 1
) -> Recorded:
    """Trace a model and list the functions that each forward calls; `passes` forward passes, one after the other.

    What a first pass keeps for later ones, as tables do that are made once, shows in the second. Raises `TraceError`.
    """
    made: list[Recorded] = []

    def make(root: nn.Module) -> Dataflow:
        made[:] = [Recorded(Dataflow(root))]
        return made[0].graph

    def listen(places: Walk) -> None:
        for index in owners(places):
            recorder = _Recorder(places, index, made[0])
            recorder.passes = 1 if index else passes
            recorder.install()

    trace_dataflow(model, args, kwargs, training=training, make=make, prepare=listen)
    return made[0]


def owners(places: Walk) -> list[int]:
    """The modules whose forwards are listened to: the model, and all but torch's own that are a function's module."""
    return [at for at, module in enumerate(places.modules) if not at or not _is_function_already(places, at, module)]


def _is_function_already(places: Walk, index: int, module: nn.Module) -> bool:
    if is_script(module) or isinstance(module, FunctionModule):
        return True
    forward = getattr(nominal_class(module), "forward", None)
    inside = {name for name, _ in places.slots(index)} - {"parametrizations"}
    return getattr(forward, "__module__", "").startswith("torch.nn.modules.") and not inside


class _Recorder(Listener):
    def __init__(self, places: Walk, index: int, recorded: Recorded) -> None:
        super().__init__(places.modules[index], places.path(index))
        self.runs = recorded.runs.setdefault(index, [])
        self.graph = recorded.graph
        self.passes = 1

    def begin(self) -> Run:
        run = _Recording(self.graph, held_by(self.owner))
        self.runs.append(run.calls)
        return run

    def original(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = super().original(args, kwargs)
        if self.passes > 1:
            self.passes -= 1
            return self.run(args, kwargs)
        return result


class _Recording(Run):
    def __init__(self, graph: Dataflow, held: Callable[[Any], bool]) -> None:
        self.graph = graph
        self.held = held
        self.calls: list[Call] = []

    def called(self, function: Any, source: Source, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # the layouts of before, as the function may write into its arguments
        given, named = layouts(args, self.held), layouts(kwargs, self.held)
        call = Call(function, source, given, named, len(self.graph.operators))
        result = function(*args, **kwargs)
        if is_operation(function, result):
            call.end, call.result = len(self.graph.operators), layouts(result, self.held)
            self.calls.append(call)
        return result


def is_operation(function: Any, result: Any) -> bool:
    """Whether a function made or wrote tensors; the others ask questions, as `x.size()` does."""
    return getattr(function, "__name__", "") == "__setitem__" or next(tensors(result), None) is not None


def layouts(value: Any, held: Callable[[Any], bool]) -> Any:
    """A value with layouts in the place of its tensors."""
    return with_tensors(value, lambda tensor: Layout(tuple(tensor.shape), tensor.dtype, held(tensor)))


# ----------------------------------------------------------------------- sites


Key = tuple[Source, Any, int]


class Keys:
    """Tells the calls of one run apart: by line, function, and how often that line has called it before."""

    def __init__(self) -> None:
        self._counts: dict[tuple[Source, Any], int] = {}

    def of(self, function: Any, source: Source) -> Key:
        count = self._counts.get((source, function), 0)
        self._counts[source, function] = count + 1
        return source, function, count


def sites_of(runs: list[list[Call]]) -> list[list[CallSite]]:
    """The call sites that each run of a forward passed, in its order; a site has one name in all of them."""
    sites: dict[Key, CallSite] = {}
    counts: dict[str, int] = {}
    ways: list[list[CallSite]] = []
    for calls in runs:
        keys = Keys()
        way = []
        for call in calls:
            key = keys.of(call.function, call.source)
            if key not in sites:
                plain = _identifier(function_name(call.function))
                at = counts[plain] = counts.get(plain, -1) + 1
                sites[key] = CallSite(
                    f"{plain}_{at}", call.function, call.source, key[2], call.args, call.kwargs, call.result
                )
            way.append(sites[key])
        ways.append(way)
    return ways


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)
