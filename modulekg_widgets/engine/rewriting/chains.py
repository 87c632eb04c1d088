"""Chains along the data flow: modules and functions, each the only consumer of the one before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import nn

from modulekg_widgets.engine.errors import RewritingError, TraceError, a_type
from modulekg_widgets.engine.keywords import explain_keywords
from modulekg_widgets.engine.rewriting.function_modules.function_module import (
    CallSite,
    FunctionModule,
    ModuleTest,
    has_functions,
    module_matcher,
)
from modulekg_widgets.engine.rewriting.function_modules.interception import interceptor_of
from modulekg_widgets.engine.rewriting.function_modules.recording import (
    CallSites,
    container_name,
    record_functions,
    record_functions_of_graph,
)
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode
from modulekg_widgets.engine.tracing.trace import trace_dataflow


@explain_keywords("mk.rewrite.find_chains")
def find_chains(graph: Dataflow, pattern: Sequence[object], include_super_class: bool = True) -> list[list[str]]:
    """Every run of modules of these classes, and functions, in which each one's output is the next one's only input.

    By data flow, through containers. Weights, and what is made of them alone, are not inputs. The entry of a function
    is the name of its function module, whether `function_modules` is active or not. A shared module is named by its
    first name.

    Parameters
    ----------
    graph : DataflowGraph
        As `mk.trace` gives it.
    pattern : sequence
        Classes of modules and functions, as `[nn.Conv2d, nn.BatchNorm2d, F.relu]`; an entry may be a tuple of
        alternatives.
    include_super_class : bool
        Whether subclasses match.

    Returns
    -------
    list of list of str
        The dotted names of each chain.

    Raises
    ------
    RewritingError
        For what is not a graph or a pattern.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> import torch
    >>> from torch import nn
    >>> graph = mk.trace(nn.Sequential(nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 2)), torch.ones(1, 4))
    >>> mk.rewrite.find_chains(graph, [nn.Linear, nn.ReLU])
    [['0', '1']]
    """
    if not isinstance(graph, Dataflow):
        raise RewritingError(f"got {a_type(graph)}: chains are found in what mk.trace(model, args) gives")
    if isinstance(pattern, str) or not isinstance(pattern, Sequence) or not pattern:
        raise RewritingError("a chain is looked for by a list of classes and functions, as [nn.Conv2d, F.relu]")
    tests = [module_matcher(one, include_super_class) for one in pattern]
    steps = list(_steps(graph, has_functions(pattern)))
    found = {tuple(step.name for step in chain): None for chain in _ChainSearch(steps, tests).chains()}
    return [list(names) for names in found]


@dataclass(frozen=True, eq=False, slots=True)
class _Step:
    """A call of a module or function in the forward pass."""

    name: str
    module: nn.Module
    start: int
    end: int
    inputs: frozenset[DataNode]
    outputs: list[DataNode]


class _ChainSearch:
    def __init__(self, steps: list[_Step], tests: list[ModuleTest]) -> None:
        self.tests = tests
        self.steps = steps
        self.readers: dict[DataNode, list[_Step]] = defaultdict(list)  # that have this as their only input
        for step in steps:
            if len(step.inputs) == 1:
                self.readers[next(iter(step.inputs))].append(step)

    def chains(self) -> Iterator[list[_Step]]:
        waiting = [[step] for step in reversed(self.steps) if self.tests[0](step.module)]
        while waiting:
            chain = waiting.pop()
            if len(chain) == len(self.tests):
                yield chain
            else:
                waiting += [[*chain, step] for step in reversed(self._next(chain[-1], self.tests[len(chain)]))]

    def _next(self, last: _Step, test: ModuleTest) -> list[_Step]:
        readers = [step for value in dict.fromkeys(last.outputs) for step in self.readers.get(value, ())]
        return [step for step in readers if step is not last and step.start >= last.end and test(step.module)]


def _steps(graph: Dataflow, with_functions: bool) -> Iterator[_Step]:
    """All calls in the order in which they began."""
    functions: list[tuple[str, CallSite, int, int]] = []
    if with_functions and interceptor_of(graph.model) is not None:
        graph = trace_dataflow(
            graph.model, *graph.call, training=graph.training
        )  # with its function modules as modules
    elif with_functions:
        graph, functions = _functions(graph)
    depending = _input_dependent(graph)
    steps = []
    for node in dict.fromkeys(graph.modules.values()):
        for call in node.calls:
            inputs = frozenset(value for value in call.inputs if value in depending)
            end = len(graph.operators) if call.end is None else call.end
            steps.append(_Step(node.path, node.module, call.start, end, inputs, call.outputs))
    for name, site, start, end in functions:
        inputs, outputs = _range_inputs_and_outputs(graph, start, end)
        steps.append(_Step(name, FunctionModule(site), start, end, frozenset(inputs & depending), outputs))
    return iter(sorted(steps, key=lambda step: step.start))


def _functions(graph: Dataflow) -> tuple[Dataflow, list[tuple[str, CallSite, int, int]]]:
    """The graph of a new trace, and the functions in it: name, site and range of operators."""
    recorded = record_functions_of_graph(graph)
    assert recorded.graph is not None
    try:
        every = record_functions(graph.model, *graph.call)
    except TraceError:  # a model that can be traced alone, as one that is too large to run: the names are of this way
        every = recorded.runs
    nodes = list(dict.fromkeys(recorded.graph.modules.values()))
    found = []
    for index, runs in recorded.runs.items():
        sites = CallSites(every.get(index, []))
        above = [nodes[index].path] * bool(index) + [container_name(nodes[index].module)]
        for calls in runs:
            for call, site in zip(calls, sites.of(calls), strict=True):
                if site is not None:
                    found.append((".".join([*above, site.name]), site, call.start, call.end))
    return recorded.graph, found


def _input_dependent(graph: Dataflow) -> set[DataNode]:
    """The values that come from the inputs of the model, through whichever operators."""
    depending = set(graph.inputs)
    for operator in graph.operators:
        if any(node in depending for node in operator.inputs):
            depending.update(operator.outputs)
    return depending


def _range_inputs_and_outputs(graph: Dataflow, start: int, end: int) -> tuple[set[DataNode], list[DataNode]]:
    """The values that go into a range of operators and those that come out of it."""
    inside = graph.operators[start:end]
    made = [node for operator in inside for node in operator.outputs]
    within = set(made)
    inputs = {node for operator in inside for node in operator.inputs if node not in within}
    outputs = [n for n in made if n.is_output or any(user.index >= end for user in n.consumers)]
    return inputs, outputs
