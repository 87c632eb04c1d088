"""Tables of a forward: operator steps in order, and the values between them by index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from modulekg_widgets.engine.identity.walk import Paths
from modulekg_widgets.engine.operators.traits import traits_of
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode, ModuleCall, OperatorNode
from modulekg_widgets.engine.tracing.unregistered_tensors import ATTRIBUTE, BUFFER, PARAMETER
from modulekg_widgets.engine.views.payload import DistinctKeys

# -------------------- Call tree of a forward: module calls, nested, with the operators that each ran itself


@dataclass(slots=True)
class CallNode:
    """One call of a module; operators `start` to `end` - 1 ran in it or in nested calls."""

    node: int  # of the hierarchy
    start: int
    end: int
    inputs: Sequence[DataNode]
    outputs: Sequence[DataNode]
    finished: bool = True  # its forward returned
    record: ModuleCall | None = None  # None: the model's, where it recorded none
    parent: int = -1
    children: list[int] = field(default_factory=list)


class CallTree:
    """Calls in preorder; 0 is the call of the model."""

    def __init__(self, graph: Dataflow, paths: Paths) -> None:
        self.paths = paths
        self.calls = _in_order(_nested(_recorded(graph, paths), paths))
        self.ends = list(range(1, len(self.calls) + 1))  # of each call's subtree in the list
        for at in range(len(self.calls) - 1, 0, -1):
            parent = self.calls[at].parent
            self.ends[parent] = max(self.ends[parent], self.ends[at])

    def is_leaf(self, call: int) -> bool:
        """True if no other module ran in this call."""
        return not self.calls[call].children

    def is_within(self, call: int, around: int) -> bool:
        """True if a call is `around` or nested in it."""
        return around <= call < self.ends[around]

    def events(self) -> Iterator[tuple[str, int, int]]:
        """Yields events in order: ("enter", call, -1), ("operator", call, index) and ("leave", call, -1)."""
        yield "enter", 0, -1
        stack = [(0, iter(self._inside(0)))]
        while stack:
            call, inside = stack[-1]
            for kind, at in inside:
                if kind == "operator":
                    yield "operator", call, at
                    continue
                yield "enter", at, -1
                stack.append((at, iter(self._inside(at))))
                break
            else:
                stack.pop()
                yield "leave", call, -1

    def _inside(self, call: int) -> Iterator[tuple[str, int]]:
        at = self.calls[call].start
        for child in self.calls[call].children:
            for operator in range(at, self.calls[child].start):
                yield "operator", operator
            yield "call", child
            at = max(at, self.calls[child].end)
        for operator in range(at, self.calls[call].end):
            yield "operator", operator


def _recorded(graph: Dataflow, paths: Paths) -> list[CallNode]:
    """The calls of the trace, the root first."""
    count = len(graph.operators)
    calls: list[CallNode] = []
    for module in dict.fromkeys(graph.modules.values()):
        node = paths.find(module.path)
        for record in module.calls if node is not None else ():
            end = count if record.end is None else record.end
            finished = record.end is not None and (bool(record.outputs) or end < count or graph.error is None)
            calls.append(CallNode(node or 0, record.start, end, record.inputs, record.outputs, finished, record))
    whole = next((call for call in calls if call.node == 0), None)
    if whole is None:
        return [CallNode(0, 0, count, graph.inputs, graph.outputs, graph.error is None), *calls]
    whole.start, whole.end = 0, count
    return [whole, *(call for call in calls if call.node != 0)]


def _nested(calls: list[CallNode], paths: Paths) -> list[CallNode]:
    """Sets the parent of each call to the innermost one around it; a module within itself is merged into one call."""
    root, others = calls[0], calls[1:]
    order = {id(call): at for at, call in enumerate(calls)}
    busy = sorted(
        (call for call in others if call.end > call.start),
        key=lambda call: (call.start, -call.end, paths.depths[call.node], order[id(call)]),
    )
    parents: dict[int, CallNode] = {}
    stack = [root]
    for call in busy:
        while stack[-1] is not root and not (stack[-1].start <= call.start and call.end <= stack[-1].end):
            stack.pop()
        parents[id(call)] = stack[-1]
        if call.node != stack[-1].node:
            stack.append(call)
    covering = _Covering([root, *(call for call in busy if parents[id(call)].node != call.node)])
    idle = [call for call in others if call.end == call.start]
    for call in sorted(idle, key=lambda call: (call.start, paths.depths[call.node], order[id(call)])):
        parents[id(call)] = covering.innermost(call, paths)
        covering.add(call)
    kept = [call for call in others if parents[id(call)].node != call.node]
    place = {id(call): at for at, call in enumerate([root, *kept])}
    for call in kept:
        call.parent = place[id(parents[id(call)])]
    return [root, *kept]


class _Covering:
    """Finds the parent of a call without operators."""

    def __init__(self, calls: Sequence[CallNode]) -> None:
        self.of: dict[int, list[CallNode]] = {}
        for call in calls:
            self.add(call)

    def add(self, call: CallNode) -> None:
        self.of.setdefault(call.node, []).append(call)

    def innermost(self, call: CallNode, paths: Paths) -> CallNode:
        """Returns the call of the nearest ancestor module that covers this position."""
        above = paths.parents[call.node]
        while above >= 0:
            around = [c for c in self.of.get(above, ()) if c.start <= call.start <= c.end]
            if around:
                return around[-1]
            above = paths.parents[above]
        return self.of[0][0]


def _in_order(calls: list[CallNode]) -> list[CallNode]:
    """The calls in preorder, children by start, with `parent` and `children` as indices of the result."""
    inside: dict[int, list[int]] = {}
    for at, call in enumerate(calls):
        inside.setdefault(call.parent, []).append(at)
    for siblings in inside.values():
        siblings.sort(key=lambda at: (calls[at].start, calls[at].end, calls[at].node))
    out: list[CallNode] = []
    waiting = [(0, -1)]
    while waiting:
        at, parent = waiting.pop()
        call = calls[at]
        call.parent = parent
        if parent >= 0:
            out[parent].children.append(len(out))
        out.append(call)
        waiting.extend((child, len(out) - 1) for child in reversed(inside.get(at, ())))
    return out


# ----------------------------------------


PASS_THROUGH = -1  # in place of an operator's name: a module that hands on what it got


@dataclass(slots=True)
class FlowStep:
    """An operator, or a module call without any; `inputs` are indices of values."""

    name: int
    call: int
    inputs: list[int]
    operator: OperatorNode | None = None


class FlowTables:
    """Steps in order and values by index; bookkeeping operators of torch are left out."""

    def __init__(self, graph: Dataflow, tree: CallTree) -> None:
        self.graph = graph
        self.tree = tree
        self.names = DistinctKeys[str]()
        self.flops = [operator.flops() for operator in graph.operators]
        self.steps: list[FlowStep] = []
        self.nodes: list[DataNode] = []  # of each value
        self.made_by: list[int] = []  # of each value: its step, or -1
        self.inputs: list[list[int]] = [[] for _ in tree.calls]  # of each call
        self.outputs: list[list[int]] = [[] for _ in tree.calls]
        self._present: dict[int, int] = {}  # a tensor's index in the graph -> the value that holds it now
        # before anything ran: a module that hands an input on holds it from then on
        self.model_inputs = [self._value(node) for node in graph.inputs]
        first_steps: dict[int, int] = {}  # of the calls that have not ended
        for kind, call, at in tree.events():
            if kind == "operator":
                self._operator(call, graph.operators[at])
            elif kind == "enter":
                self.inputs[call] = [self._value(node) for node in tree.calls[call].inputs]
                first_steps[call] = len(self.steps)
            else:
                self._leave(call, first_steps.pop(call))
        self.model_outputs = [self._value(node) for node in graph.outputs]

    def _value(self, node: DataNode) -> int:
        place = self._present.get(node.index)
        return self._new(node, -1) if place is None else place

    def _new(self, node: DataNode, step: int) -> int:
        self._present[node.index] = len(self.nodes)
        self.nodes.append(node)
        self.made_by.append(step)
        return len(self.nodes) - 1

    def _operator(self, call: int, operator: OperatorNode) -> None:
        if traits_of(operator.overload).is_bookkeeping and self._is_passed_on(operator):
            return
        flowing = [node for node in operator.inputs if not is_state(node)]
        inputs = [self._value(node) for node in dict.fromkeys(flowing)]
        self.steps.append(FlowStep(self.names.index_of(operator.name), call, inputs, operator))
        for node in operator.outputs:
            self._new(node, len(self.steps) - 1)

    def _is_passed_on(self, operator: OperatorNode) -> bool:
        """True if a bookkeeping operator forwards its only input, which then stands for its output."""
        given = dict.fromkeys(operator.inputs)
        if len(given) != 1 or len(operator.outputs) != 1 or any(is_state(node) for node in given):
            return False
        self._present[operator.outputs[0].index] = self._value(next(iter(given)))
        return True

    def _leave(self, call: int, first_step: int) -> None:
        record = self.tree.calls[call]
        if self.tree.is_leaf(call) and len(self.steps) == first_step and record.finished:
            inputs = [place for place in self.inputs[call] if not is_state(self.nodes[place])]
            self.steps.append(FlowStep(PASS_THROUGH, call, list(dict.fromkeys(inputs))))
            for node in dict.fromkeys(record.outputs):
                self._new(node, len(self.steps) - 1)  # whoever reads it from now on has it from here
        self.outputs[call] = [self._value(node) for node in record.outputs]


def is_state(node: DataNode) -> bool:
    """True if a value is a parameter, buffer or attribute of a module."""
    return node.kind in (PARAMETER, BUFFER, ATTRIBUTE)


# -------------------- Data edges between modules, through the code of the containers between them


OUTSIDE = -1  # the model's input as a source, its output as a target
MAX_SOURCES = 64  # of one value; a model that adds up all that it ever computed has as many as modules

Key = TypeVar("Key")
Sources = dict[tuple[int, int], None]  # (node of the hierarchy, value that it gave), in order


def module_edges(tables: FlowTables) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yields the distinct (source, target, shape of the value) between nodes of the hierarchy.

    Modules in which others ran are not ends themselves: their own code leads on to what it reads. Only what such code
    makes of the outside alone comes from the container, and only what leaves it unread by its modules goes to it.
    """
    flow = _ModuleFlow(tables)
    seen: set[tuple[int, int, tuple[int, ...]]] = set()
    for value, target in flow.uses():
        for source, given in flow.sources(*value):
            edge = (source, target, tables.nodes[given].shape)
            if source != target and edge not in seen:
                seen.add(edge)
                yield edge


class _ModuleFlow:
    def __init__(self, tables: FlowTables) -> None:
        self.tables = tables
        self.tree = tables.tree
        self.model_inputs = set(tables.model_inputs)
        # of what a container's own code made: the modules in it, and the values from around it, that it comes from
        self.container_values: dict[int, tuple[Sources, dict[int, None]]] = {}
        made: dict[int, list[int]] = {}
        for value, step in enumerate(tables.made_by):
            made.setdefault(step, []).append(value)
        for at, step in enumerate(tables.steps):
            if not self.tree.is_leaf(step.call):
                mixture = self._container_sources(step.inputs, step.call)
                self.container_values.update((value, mixture) for value in made.get(at, ()))

    def uses(self) -> Iterator[tuple[tuple[int, int], int]]:
        """Yields ((value, reading call), target node) for every read of a value that the target did not make."""
        tables, tree = self.tables, self.tree
        readers: dict[int, list[int]] = {}
        for step in tables.steps:
            if tree.is_leaf(step.call):
                for value in step.inputs:
                    for origin in (value, *(self.container_values[value][1] if value in self.container_values else ())):
                        readers.setdefault(origin, []).append(step.call)
                    yield (value, step.call), tree.calls[step.call].node
        for call in range(1, len(tree.calls)):
            for value in dict.fromkeys(tables.outputs[call]):
                if value in self.container_values and self._maker(value) == call:
                    for outer in self.container_values[value][1]:
                        if not any(tree.is_within(reader, call) for reader in readers.get(outer, ())):
                            yield (outer, tree.calls[call].parent), tree.calls[call].node
        for value in dict.fromkeys(tables.model_outputs):
            yield (value, 0), OUTSIDE

    def sources(self, value: int, reader: int) -> Sources:
        """Returns the modules that a value comes from, seen from the call that reads it."""
        maker = self._maker(value)
        if maker is None:
            return {(OUTSIDE, value): None} if value in self.model_inputs else {}
        own: Sources = {(self.tree.calls[maker].node, value): None}
        if value not in self.container_values:
            return own
        inner, outer = self.container_values[value]
        if not self.tree.is_within(reader, maker):
            return inner or own
        return _union([inner, *(self.sources(other, maker) for other in outer)])

    def _container_sources(self, inputs: Iterable[int], call: int) -> tuple[Sources, dict[int, None]]:
        inner: list[Sources] = []
        outer: list[dict[int, None]] = []
        for value in inputs:
            maker = self._maker(value)
            if maker is None or not self.tree.is_within(maker, call):
                outer.append({value: None})
            elif maker == call and value in self.container_values:
                inner.append(self.container_values[value][0])
                outer.append(self.container_values[value][1])
            else:
                inner.append(self.sources(value, call))
        return _union(inner), _union(outer)

    def _maker(self, value: int) -> int | None:
        step = self.tables.made_by[value]
        return None if step < 0 else self.tables.steps[step].call


def _union(several: Iterable[dict[Key, None]]) -> dict[Key, None]:
    """Union in order; of very many entries the last ones."""
    joined: dict[Key, None] = {}
    for sources in several:
        joined.update(sources)
    return dict(list(joined.items())[-MAX_SOURCES:]) if len(joined) > MAX_SOURCES else joined
