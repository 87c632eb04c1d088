"""The calls of a forward pass as a tree: which module's call ran within which, and what each did itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from modulekg_widgets.engine.identity.paths import Paths
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode


@dataclass(slots=True)
class CallNode:
    """One call of a module; operators `start` … `end` - 1 ran in it and below."""

    node: int  # of the hierarchy
    start: int
    end: int
    inputs: Sequence[DataNode]
    outputs: Sequence[DataNode]
    finished: bool = True  # its forward returned
    parent: int = -1
    children: list[int] = field(default_factory=list)


class CallTree:
    """The calls in the order in which they began; 0 is the call of the model itself."""

    def __init__(self, graph: Dataflow, paths: Paths) -> None:
        self.paths = paths
        self.calls = _in_order(_nested(_recorded(graph, paths), paths))
        self.ends = list(range(1, len(self.calls) + 1))  # of each call's subtree in the list
        for at in range(len(self.calls) - 1, 0, -1):
            parent = self.calls[at].parent
            self.ends[parent] = max(self.ends[parent], self.ends[at])

    def is_leaf(self, call: int) -> bool:
        """Whether no other module ran in this call."""
        return not self.calls[call].children

    def is_within(self, call: int, around: int) -> bool:
        """Whether a call is `around` or ran in it."""
        return around <= call < self.ends[around]

    def events(self) -> Iterator[tuple[str, int, int]]:
        """What happened, in order: ("enter", call, -1), ("operator", call, its index) and ("leave", call, -1)."""
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
    """The calls as the graph has them, the root's first."""
    count = len(graph.operators)
    calls: list[CallNode] = []
    for module in dict.fromkeys(graph.modules.values()):
        node = paths.find(module.path)
        for record in module.calls if node is not None else ():
            end = count if record.end is None else record.end
            finished = record.end is not None and (bool(record.outputs) or end < count or graph.error is None)
            calls.append(CallNode(node or 0, record.start, end, record.inputs, record.outputs, finished))
    whole = next((call for call in calls if call.node == 0), None)
    if whole is None:
        return [CallNode(0, 0, count, graph.inputs, graph.outputs, graph.error is None), *calls]
    whole.start, whole.end = 0, count
    return [whole, *(call for call in calls if call.node != 0)]


def _nested(calls: list[CallNode], paths: Paths) -> list[CallNode]:
    """Each call within the innermost one that it ran in; one of a module within itself is part of that one."""
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
    """Finds the call that another one, in which no operator ran, was made in."""

    def __init__(self, calls: Sequence[CallNode]) -> None:
        self.of: dict[int, list[CallNode]] = {}
        for call in calls:
            self.add(call)

    def add(self, call: CallNode) -> None:
        self.of.setdefault(call.node, []).append(call)

    def innermost(self, call: CallNode, paths: Paths) -> CallNode:
        """By the place of its module: without an operator, there is no other trace of what ran around it."""
        above = paths.parents[call.node]
        while above >= 0:
            around = [c for c in self.of.get(above, ()) if c.start <= call.start <= c.end]
            if around:
                return around[-1]
            above = paths.parents[above]
        return self.of[0][0]


def _in_order(calls: list[CallNode]) -> list[CallNode]:
    """The calls depth first, children by when they began, with `parent` and `children` as places in the result."""
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
