"""The graph of a file as the data flow that the page draws: calls of modules, the operators in them, values between.

js/src/core/files/tree/flow.ts makes the same of a file that is opened without a kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

from modulekg_widgets.engine.files.kinds import operator_name
from modulekg_widgets.engine.files.owners import owners
from modulekg_widgets.engine.files.records import (
    FileContents,
    OperatorGraph,
    OperatorRecord,
    TensorRecord,
    ValueRecord,
)
from modulekg_widgets.engine.identity.hierarchy import Hierarchy
from modulekg_widgets.engine.views.payload import Distinct, text

MOST_DRAWN = 50_000  # operators; with more, the page would stand still
OF_FILE = "file"  # in the place of the kind of tensors that a model was traced on
DEEPEST_CALL = 64  # operators of deeper modules are drawn in the one around them at this depth
OUTSIDE = -1
# operators that look at their input otherwise
VIEWS = frozenset({
    "reshape", "view", "transpose", "permute", "t", "expand", "flatten", "squeeze", "unsqueeze", "identity", "alias",
    "detach", "slice", "select", "split", "chunk", "unbind", "_unsafe_view", "numpy_t", "movedim",
})  # fmt: skip


def file_flow(contents: FileContents, hierarchy: Hierarchy) -> dict[str, Any] | None:
    """The flow of a file's graph; None where it has none, or one that is too large to be drawn."""
    graph = contents.graph
    if graph is None or not 0 < len(graph.operators) <= MOST_DRAWN:
        return None
    return _FlowTables(contents, graph, hierarchy).payload()


def owned_tensors(contents: FileContents, hierarchy: Hierarchy) -> list[tuple[int, TensorRecord]]:
    """The tensors with the modules that they are of, in the order of these; constants come last in each."""
    return [(node, record) for node, _, record in _by_module(contents, hierarchy)]


def _by_module(contents: FileContents, hierarchy: Hierarchy) -> list[tuple[int, str, TensorRecord]]:
    """With their names in the modules."""
    owned = [(hierarchy.find(path) or 0, name, record) for path, name, record in owners(contents)]
    return sorted(owned, key=itemgetter(0))


class _FlowTables:
    """Everything that runs, in order, with the values by place."""

    def __init__(self, contents: FileContents, graph: OperatorGraph, hierarchy: Hierarchy) -> None:
        self.contents, self.graph, self.hierarchy = contents, graph, hierarchy
        self.records = {each.name: each for each in contents.tensors}
        self.names, self.shapes, self.dtypes, self.sources = Distinct(), Distinct(), Distinct(), Distinct()
        self.attributes = Distinct()
        self.owner: list[int] = []
        self.attribute: list[int] = []
        self.tensor_places: dict[str, int] = {}
        self.call_nodes, self.call_parents = [0], [OUTSIDE]
        self.open = [0]  # calls, the outermost first
        self.around: dict[str, list[int]] = {}  # of each module that operators run in: it and those around it
        self.steps: list[tuple[int, int, list[int], list[int], int]] = []  # name, call, inputs, tensors, source
        self.views: list[int] = []
        self.made_by: list[int] = []
        self.shape: list[int] = []
        self.dtype: list[int] = []
        self.present: dict[str, int] = {}  # the value that has a name now
        self._list_tensors()
        given = [name for name in graph.inputs if name not in self.tensor_places]
        self.inputs = [[text(name), self._value(name)] for name in given]
        for operator in graph.operators:
            self._run(operator)
        self.outputs = [self._value(name) for name in graph.outputs]

    def _list_tensors(self) -> None:
        for node, name, record in _by_module(self.contents, self.hierarchy):
            self.tensor_places[record.name] = len(self.owner)
            self.owner.append(node)
            self.attribute.append(self.attributes.place(text(name)))

    def _run(self, operator: OperatorRecord) -> None:
        step = len(self.steps)
        name = operator_name(operator.op)
        read = [each for each in dict.fromkeys(operator.inputs) if each]  # "" is an input that is left out
        call = self._call_in(operator.module)
        inputs = [self._value(each) for each in read if each not in self.tensor_places]
        tensors = [self.tensor_places[each] for each in read if each in self.tensor_places]
        source = self.sources.place(text(operator.source)) if operator.source else OUTSIDE
        self.steps.append((self.names.place(text(name)), call, inputs, tensors, source))
        if name.rpartition(":")[2].lower() in VIEWS:
            self.views.append(step)
        for output in operator.outputs:
            if output:
                self._make(output, step)

    def _call_in(self, module: str) -> int:
        """The call in which an operator of a module runs: those around it that are open stay so."""
        if module not in self.around:  # a path may be long, and have many operators
            self.around[module] = self._around(self.hierarchy.find(module) or 0)
        wanted = self.around[module]
        same = 1
        while same < min(len(self.open), len(wanted)) and self.call_nodes[self.open[same]] == wanted[same]:
            same += 1
        del self.open[same:]
        for inner in wanted[same:]:
            self.call_parents.append(self.open[-1])
            self.open.append(len(self.call_nodes))
            self.call_nodes.append(inner)
        return self.open[-1]

    def _around(self, node: int) -> list[int]:
        found = []
        while node >= 0:
            found.append(node)
            node = self.hierarchy.walk.parents[node]
        return found[::-1][:DEEPEST_CALL]

    def _value(self, name: str) -> int:
        place = self.present.get(name)
        return self._make(name, OUTSIDE) if place is None else place

    def _make(self, name: str, step: int) -> int:
        about: Any = self.graph.values.get(name) or self.records.get(name) or ValueRecord()
        place = self.present[name] = len(self.made_by)
        self.made_by.append(step)
        shape = ("?",) if about.shape is None else about.shape
        self.shape.append(self.shapes.place(tuple(text(size) if isinstance(size, str) else size for size in shape)))
        self.dtype.append(self.dtypes.place(text(about.dtype)))
        return place

    def payload(self) -> dict[str, Any]:
        into, out_of = self._traffic()
        columns = list(zip(*self.steps, strict=True))
        names, calls, inputs, tensors, sources = map(list, columns)
        return {
            "on": OF_FILE,
            "calls": {"node": self.call_nodes, "parent": self.call_parents, "inputs": into, "outputs": out_of},
            "steps": {
                "name": names,
                "call": calls,
                "inputs": inputs,
                "tensors": tensors,
                "source": sources,
                "flops": [None] * len(self.steps),
                "view": self.views,
            },
            "values": {
                "step": self.made_by,
                "shape": self.shape,
                "dtype": self.dtype,
                "axes": [[] for _ in self.made_by],
            },
            "tensors": {
                "node": self.owner,
                "name": self.attribute,
                "attributes": self.attributes.keys,
                "tied": [],
            },
            "names": self.names.keys,
            "shapes": [list(shape) for shape in self.shapes.keys],
            "dtypes": self.dtypes.keys,
            "sources": self.sources.keys,
            "inputs": self.inputs,
            "outputs": self.outputs,
        }

    def _traffic(self) -> tuple[list[list[int]], list[list[int]]]:
        """What goes into each call and what comes out: values that are made on one side and read on the other."""
        ends = [call + 1 for call in range(len(self.call_nodes))]
        for call in range(len(ends) - 1, 0, -1):
            parent = self.call_parents[call]
            ends[parent] = max(ends[parent], ends[call])
        into: list[dict[int, None]] = [{} for _ in ends]
        out_of: list[dict[int, None]] = [{} for _ in ends]
        for value, reader in self._reads():
            maker = OUTSIDE if self.made_by[value] < 0 else self.steps[self.made_by[value]][1]
            _note(into, value, reader, maker, self.call_parents, ends)
            _note(out_of, value, maker, reader, self.call_parents, ends)
        return [list(found) for found in into], [list(found) for found in out_of]

    def _reads(self) -> Iterable[tuple[int, int]]:
        for _, call, inputs, _, _ in self.steps:
            yield from ((value, call) for value in inputs)
        yield from ((value, OUTSIDE) for value in self.outputs)


def _note(
    notes: list[dict[int, None]], value: int, inner: int, other: int, parents: Sequence[int], ends: Sequence[int]
) -> None:
    """Note a value at each call around `inner` that `other` is not in."""
    while inner >= 0 and not inner <= other < ends[inner]:
        notes[inner][value] = None
        inner = parents[inner]
