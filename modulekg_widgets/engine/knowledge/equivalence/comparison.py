"""Two models side by side: whether they compute the same, which modules correspond, and where they part."""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

import pandas as pd
from torch import nn

from modulekg_widgets.engine.errors import shown
from modulekg_widgets.engine.identity.walk import nominal_class
from modulekg_widgets.engine.knowledge.equivalence.flow_values import FlowValue, Function
from modulekg_widgets.engine.knowledge.equivalence.moves import Moves
from modulekg_widgets.engine.knowledge.equivalence.partings import parting
from modulekg_widgets.engine.knowledge.equivalence.reading import FlowReader, of_call, of_model
from modulekg_widgets.engine.knowledge.facts.records import dotted
from modulekg_widgets.engine.knowledge.facts.tables import table
from modulekg_widgets.engine.tracing.dataflow import Dataflow, ModuleNode
from modulekg_widgets.engine.tracing.trace import trace_dataflow

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Equivalence:
    """Whether two models compute the same function of inputs and weights, in eval mode and on inputs of these shapes.

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
        a, b = map(shown, self.names)
        others = int((self.modules["class_a"] != self.modules["class_b"]).sum())
        pairs = f"{len(self.modules)} pairs of modules that are, {others} of them of different classes"
        if self.same:
            return f"<{a} and {b} are the same function; {pairs}>"
        return f"<{a} and {b} are not found to be the same function: {self.differs}; {pairs}>"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self)[1:-1])}</p>{self.modules.to_html(index=False, escape=True)}"


def compared(
    a: nn.Module,
    b: nn.Module,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    names: tuple[str, str] = ("a", "b"),
) -> Equivalence:
    """Both models, traced in eval mode on the same inputs; raises `TraceError` for one that does not run."""
    one, other = (trace_dataflow(model, args, kwargs, training=False) for model in (a, b))
    return of_graphs(one, other, names)


def of_graphs(a: Dataflow, b: Dataflow, names: tuple[str, str] = ("a", "b")) -> Equivalence:
    """Two traces of the same inputs compared."""
    moves = Moves()
    (read_a, whole_a), (read_b, whole_b) = of_model(a, moves), of_model(b, moves)
    differs = depends_on_data(a) or depends_on_data(b) or parting(whole_a, whole_b, names)
    if differs:
        pairs = _aligned(_own_functions(a, moves), _own_functions(b, moves))
    else:
        pairs = _at_the_same_place(_places(read_a, whole_a), _places(read_b, whole_b))
    rows = [(one.path, other.path, class_of(one), class_of(other)) for one, other in pairs]
    weights = [] if differs else [
        (one.node.name, other.node.name, one.shape)
        for one, other in zip(whole_a.state, whole_b.state, strict=True) if one.node and other.node
    ]  # fmt: skip
    return Equivalence(
        not differs, table(rows, ["a", "b", "class_a", "class_b"]), table(weights, ["a", "b", "shape"]), differs, names
    )


def depends_on_data(graph: Dataflow) -> str:
    """Why one pass does not tell what others do, in words."""
    if not graph.data_dependent:
        return ""
    first = graph.data_dependent[0]
    where = f"{first.operator} in {shown(first.module) or '(root)'!r}"
    return f"{shown(type(graph.model).__name__)} asks for numbers ({where}), and may go another way on others"


def class_of(node: ModuleNode) -> str:
    return dotted(nominal_class(node.module))


# ------------------------------------------------------------------- modules


def called(graph: Dataflow) -> list[ModuleNode]:
    """The modules that ran, each once, in the order of their first calls and containers first."""
    nodes = {id(node): node for node in graph.modules.values() if node.calls}.values()
    return sorted(nodes, key=lambda node: (node.calls[0].start, -(node.calls[0].end or 0), node.path.count(".")))


def own_function(graph: Dataflow, node: ModuleNode, moves: Moves) -> Key | None:
    """What a module computes of its own inputs over all of its calls; None for nothing, or what cannot be told."""
    functions = [of_call(graph, call, moves) for call in node.calls]
    if any(function.unknown or not _does_something(function) for function in functions):
        return None
    return tuple(function.digest for function in functions)


def _does_something(function: Function) -> bool:
    return any(value.inputs for value in function.outputs)


def _own_functions(graph: Dataflow, moves: Moves) -> list[tuple[ModuleNode, Key]]:
    found = ((node, own_function(graph, node, moves)) for node in called(graph))
    return [(node, key) for node, key in found if key is not None]


def _aligned(
    a: Sequence[tuple[ModuleNode, Key]], b: Sequence[tuple[ModuleNode, Key]]
) -> Iterator[tuple[ModuleNode, ModuleNode]]:
    """Modules of the same function in the order of both."""
    keys = [[key for _, key in side] for side in (a, b)]
    for block in SequenceMatcher(None, *keys, autojunk=False).get_matching_blocks():
        for at in range(block.size):
            yield a[block.a + at][0], b[block.b + at][0]


def _places(reader: FlowReader, whole: Function) -> dict[Key, list[ModuleNode]]:
    """The modules by what goes in and comes out in the data flow of the model, containers first."""
    found: dict[Key, list[ModuleNode]] = defaultdict(list)
    for node in called(reader.graph):
        spans = [([reader.of(each) for each in call.inputs], [reader.of(each) for each in call.outputs])
                 for call in node.calls]  # fmt: skip
        if any(_passes_on(*span) for span in spans):
            continue
        found[tuple((whole.digests(given), whole.digests(result)) for given, result in spans)].append(node)
    return found


def _passes_on(given: list[FlowValue], results: list[FlowValue]) -> bool:
    return {value.index for value in results} <= {value.index for value in given}


def _at_the_same_place(
    a: Mapping[Key, list[ModuleNode]], b: Mapping[Key, list[ModuleNode]]
) -> Iterator[tuple[ModuleNode, ModuleNode]]:
    """Modules of one span: those around each other in turn; where one side has fewer, the innermost of both."""
    for key, nodes in a.items():
        others = b.get(key, [])
        few = min(len(nodes), len(others))
        yield from zip(nodes[len(nodes) - few :], others[len(others) - few :], strict=True)
