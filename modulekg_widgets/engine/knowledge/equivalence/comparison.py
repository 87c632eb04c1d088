"""Comparison of two models by their data flow: equivalence, corresponding modules and weights, and the first
difference.

Both models are traced in eval mode on the same inputs, without computing. Each trace becomes a function of inputs and
weights (flow_reader.py); equal digests mean equal functions up to rounding, on inputs of these shapes. Modules
correspond if they have the same place in the data flow, or compute the same function of their own inputs.

The comparison is sound, not complete: models found equivalent are; equivalent models that use operators without a
known normal form may not be found. A model whose control flow depends on data is never called equivalent.

    >>> import torch, modulekg_widgets as mk
    >>> a, b = torch.nn.Linear(4, 2), torch.nn.Sequential(torch.nn.Linear(4, 2))
    >>> mk.KnowledgeGraph().equivalent(a, b, torch.ones(3, 4)).same
    True
"""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

import pandas as pd
from torch import nn

from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.identity.walk import nominal_class
from modulekg_widgets.engine.knowledge.equivalence.data_movement import DataMovement
from modulekg_widgets.engine.knowledge.equivalence.divergence import first_divergence
from modulekg_widgets.engine.knowledge.equivalence.flow_reader import FlowReader, call_flow, model_flow
from modulekg_widgets.engine.knowledge.equivalence.value_numbering import FlowFunction, FlowValue
from modulekg_widgets.engine.knowledge.facts.records import qualified_name
from modulekg_widgets.engine.knowledge.facts.tables import data_frame
from modulekg_widgets.engine.tracing.dataflow import Dataflow, ModuleNode
from modulekg_widgets.engine.tracing.trace import trace_dataflow

FunctionKey = tuple[object, ...]


@dataclass(frozen=True)
class Equivalence:
    """Result of the comparison of two models as functions of inputs and weights, in eval mode.

    Iterating over it gives the pairs of paths of the modules that compute the same, those of `modules`.

    Attributes
    ----------
    same : bool
        Whether they do, as wholes, up to rounding.
    modules : pandas.DataFrame
        The modules that do: `a` and `b` (paths), `class_a` and `class_b`. Where the models are the same these stand at
        the same place of the data flow; else they compute the same of their own inputs, in the same order.
    parameters : pandas.DataFrame
        Where the models are the same: the weights and statistics that take each other's place, `a`, `b` and `shape`.
    differs : str
        Where the models part, in words; empty where they are the same.
    """

    same: bool
    modules: pd.DataFrame
    parameters: pd.DataFrame
    differs: str
    names: tuple[str, str] = field(default=("a", "b"))

    def __bool__(self) -> bool:
        return self.same

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return zip(self.modules["a"], self.modules["b"], strict=True)

    def __len__(self) -> int:
        return len(self.modules)

    def __repr__(self) -> str:
        a, b = map(printable, self.names)
        others = int((self.modules["class_a"] != self.modules["class_b"]).sum())
        pairs = f"{len(self.modules)} pairs of modules that are, {others} of them of different classes"
        if self.same:
            return f"<{a} and {b} are the same function; {pairs}>"
        return f"<{a} and {b} are not found to be the same function: {self.differs}; {pairs}>"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self)[1:-1])}</p>{self.modules.to_html(index=False, escape=True)}"


def compare_models(
    a: nn.Module,
    b: nn.Module,
    args: object = (),
    kwargs: Mapping[str, object] | None = None,
    names: tuple[str, str] = ("a", "b"),
) -> Equivalence:
    """Traces both models in eval mode on the same inputs and compares them; raises `TraceError`."""
    one, other = (trace_dataflow(model, args, kwargs, training=False) for model in (a, b))
    return compare_graphs(one, other, names)


def compare_graphs(a: Dataflow, b: Dataflow, names: tuple[str, str] = ("a", "b")) -> Equivalence:
    """Compares two traces of the same inputs."""
    moves = DataMovement()
    (read_a, whole_a), (read_b, whole_b) = model_flow(a, moves), model_flow(b, moves)
    differs = data_dependence(a) or data_dependence(b) or first_divergence(whole_a, whole_b, names)
    if differs:
        pairs = _align(_module_functions(a, moves), _module_functions(b, moves))
    else:
        pairs = _modules_of_same_span(_modules_by_span(read_a, whole_a), _modules_by_span(read_b, whole_b))
    rows = [(one.path, other.path, nominal_class_name(one), nominal_class_name(other)) for one, other in pairs]
    weights = [] if differs else [
        (one.node.name, other.node.name, one.shape)
        for one, other in zip(whole_a.state, whole_b.state, strict=True) if one.node and other.node
    ]  # fmt: skip
    return Equivalence(
        not differs,
        data_frame(rows, ["a", "b", "class_a", "class_b"]),
        data_frame(weights, ["a", "b", "shape"]),
        differs,
        names,
    )


def data_dependence(graph: Dataflow) -> str:
    """Returns why one forward does not determine others, in words; empty if it does."""
    if not graph.data_dependent:
        return ""
    first = graph.data_dependent[0]
    where = f"{first.operator} in {printable(first.module) or '(root)'!r}"
    return f"{printable(type(graph.model).__name__)} asks for numbers ({where}), and may go another way on others"


def nominal_class_name(node: ModuleNode) -> str:
    return qualified_name(nominal_class(node.module))


# ------------------------------------------------------------------- modules


def called_modules(graph: Dataflow) -> list[ModuleNode]:
    """Returns the modules that ran, each once, in the order of their first calls, containers first."""
    nodes = {id(node): node for node in graph.modules.values() if node.calls}.values()
    return sorted(nodes, key=lambda node: (node.calls[0].start, -(node.calls[0].end or 0), node.path.count(".")))


def module_function(graph: Dataflow, node: ModuleNode, moves: DataMovement) -> FunctionKey | None:
    """Returns the digests of a module's function over all of its calls; None if there are none or unknown values."""
    functions = [call_flow(graph, call, moves) for call in node.calls]
    if any(function.unknown or not _has_operators(function) for function in functions):
        return None
    return tuple(function.digest for function in functions)


def _has_operators(function: FlowFunction) -> bool:
    return any(value.inputs for value in function.outputs)


def _module_functions(graph: Dataflow, moves: DataMovement) -> list[tuple[ModuleNode, FunctionKey]]:
    found = ((node, module_function(graph, node, moves)) for node in called_modules(graph))
    return [(node, key) for node, key in found if key is not None]


def _align(
    a: Sequence[tuple[ModuleNode, FunctionKey]], b: Sequence[tuple[ModuleNode, FunctionKey]]
) -> Iterator[tuple[ModuleNode, ModuleNode]]:
    """Yields pairs of modules with the same function, in the order of both models."""
    keys = [[key for _, key in side] for side in (a, b)]
    for block in SequenceMatcher(None, *keys, autojunk=False).get_matching_blocks():
        for at in range(block.size):
            yield a[block.a + at][0], b[block.b + at][0]


def _modules_by_span(reader: FlowReader, whole: FlowFunction) -> dict[FunctionKey, list[ModuleNode]]:
    """Returns the modules by the digests of their inputs and outputs in the model, containers first."""
    found: dict[FunctionKey, list[ModuleNode]] = defaultdict(list)
    for node in called_modules(reader.graph):
        spans = [([reader.value_of(each) for each in call.inputs], [reader.value_of(each) for each in call.outputs])
                 for call in node.calls]  # fmt: skip
        if any(_is_identity(*span) for span in spans):
            continue
        found[tuple((whole.digests(given), whole.digests(result)) for given, result in spans)].append(node)
    return found


def _is_identity(inputs: list[FlowValue], results: list[FlowValue]) -> bool:
    return {value.index for value in results} <= {value.index for value in inputs}


def _modules_of_same_span(
    a: Mapping[FunctionKey, list[ModuleNode]], b: Mapping[FunctionKey, list[ModuleNode]]
) -> Iterator[tuple[ModuleNode, ModuleNode]]:
    """Yields pairs of modules with the same span, nested ones in turn, the innermost if one side has fewer."""
    for key, nodes in a.items():
        others = b.get(key, [])
        few = min(len(nodes), len(others))
        yield from zip(nodes[len(nodes) - few :], others[len(others) - few :], strict=True)
