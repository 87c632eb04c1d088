"""Data flow of a model file, as the page draws it: calls of modules, operators and values.

js/src/core/files/tree/payload.ts makes the same of a file that is opened without a kernel.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

import torch

from modulekg_widgets.engine.errors import ModelFileError, printable
from modulekg_widgets.engine.files.model_file import ModelFile, open_file
from modulekg_widgets.engine.files.records import (
    FileContents,
    OperatorGraph,
    OperatorRecord,
    PlainValue,
    TensorRecord,
    ValueRecord,
)
from modulekg_widgets.engine.files.skeleton import FileModule
from modulekg_widgets.engine.files.tensor_owners import operator_name, tensor_owners
from modulekg_widgets.engine.identity.hierarchy import Hierarchy
from modulekg_widgets.engine.views.payload import DistinctKeys, number, text
from modulekg_widgets.engine.views.schema import Payload

MAX_OPERATORS = 50_000  # operators; with more, the page would stand still
TRACED_ON_FILE = "file"  # in the place of the kind of tensors that a model was traced on
MAX_CALL_DEPTH = 64  # operators of deeper modules are drawn in the one around them at this depth
OUTSIDE = -1
# operators that look at their input otherwise
VIEWS = frozenset({
    "reshape", "view", "transpose", "permute", "t", "expand", "flatten", "squeeze", "unsqueeze", "identity", "alias",
    "detach", "slice", "select", "split", "chunk", "unbind", "_unsafe_view", "numpy_t", "movedim",
})  # fmt: skip


def file_flow(contents: FileContents, hierarchy: Hierarchy) -> Payload | None:
    """Returns the flow of the graph in a file; None without a graph, or with too many operators to draw."""
    graph = contents.graph
    if graph is None or not 0 < len(graph.operators) <= MAX_OPERATORS:
        return None
    return _FileFlow(contents, graph, hierarchy).payload()


def owned_tensors(contents: FileContents, hierarchy: Hierarchy) -> list[tuple[int, TensorRecord]]:
    """Returns the tensors with the indices of their modules, in module order; constants come last."""
    return [(node, record) for node, _, record in _by_module(contents, hierarchy)]


def _by_module(contents: FileContents, hierarchy: Hierarchy) -> list[tuple[int, str, TensorRecord]]:
    """The same with the names in the modules."""
    owned = [(hierarchy.find(path) or 0, name, record) for path, name, record in tensor_owners(contents)]
    return sorted(owned, key=itemgetter(0))


class _FileFlow:
    """Tables of calls, steps and values, with values by index."""

    def __init__(self, contents: FileContents, graph: OperatorGraph, hierarchy: Hierarchy) -> None:
        self.contents, self.graph, self.hierarchy = contents, graph, hierarchy
        self.records = {each.name: each for each in contents.tensors}
        self.names, self.shapes, self.dtypes, self.sources = (
            DistinctKeys[str](),
            DistinctKeys[tuple[int | str, ...]](),
            DistinctKeys[str](),
            DistinctKeys[str](),
        )
        self.attributes = DistinctKeys[str]()
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
            self.attribute.append(self.attributes.index_of(text(name)))

    def _run(self, operator: OperatorRecord) -> None:
        step = len(self.steps)
        name = operator_name(operator.op)
        read = [each for each in dict.fromkeys(operator.inputs) if each]  # "" is an input that is left out
        call = self._call_in(operator.module)
        inputs = [self._value(each) for each in read if each not in self.tensor_places]
        tensors = [self.tensor_places[each] for each in read if each in self.tensor_places]
        source = self.sources.index_of(text(operator.source)) if operator.source else OUTSIDE
        self.steps.append((self.names.index_of(text(name)), call, inputs, tensors, source))
        if name.rpartition(":")[2].lower() in VIEWS:
            self.views.append(step)
        for output in operator.outputs:
            if output:
                self._make(output, step)

    def _call_in(self, module: str) -> int:
        """Returns the call for an operator of a module; open calls of its ancestors are continued."""
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
        return found[::-1][:MAX_CALL_DEPTH]

    def _value(self, name: str) -> int:
        place = self.present.get(name)
        return self._make(name, OUTSIDE) if place is None else place

    def _make(self, name: str, step: int) -> int:
        about: ValueRecord | TensorRecord = self.graph.values.get(name) or self.records.get(name) or ValueRecord()
        place = self.present[name] = len(self.made_by)
        self.made_by.append(step)
        shape = ("?",) if about.shape is None else about.shape
        self.shape.append(self.shapes.index_of(tuple(text(size) if isinstance(size, str) else size for size in shape)))
        self.dtype.append(self.dtypes.index_of(text(about.dtype)))
        return place

    def payload(self) -> Payload:
        into, out_of = self._traffic()
        columns = list(zip(*self.steps, strict=True))
        names, calls, inputs, tensors, sources = map(list, columns)
        return {
            "on": TRACED_ON_FILE,
            "calls": {"node": self.call_nodes, "parent": self.call_parents, "inputs": into, "outputs": out_of},
            "steps": {
                "name": names,
                "call": calls,
                "inputs": inputs,
                "tensors": tensors,
                "source": sources,
                "flops": [None] * len(self.steps),
                "view": self.views,
                "square": [],
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
        """Returns the values that enter and leave each call: produced on one side, read on the other."""
        ends = [call + 1 for call in range(len(self.call_nodes))]
        for call in range(len(ends) - 1, 0, -1):
            parent = self.call_parents[call]
            ends[parent] = max(ends[parent], ends[call])
        into: list[dict[int, None]] = [{} for _ in ends]
        out_of: list[dict[int, None]] = [{} for _ in ends]
        for value, reader in self._reads():
            maker = OUTSIDE if self.made_by[value] < 0 else self.steps[self.made_by[value]][1]
            _note_crossing(into, value, reader, maker, self.call_parents, ends)
            _note_crossing(out_of, value, maker, reader, self.call_parents, ends)
        return [list(found) for found in into], [list(found) for found in out_of]

    def _reads(self) -> Iterable[tuple[int, int]]:
        for _, call, inputs, _, _ in self.steps:
            yield from ((value, call) for value in inputs)
        yield from ((value, OUTSIDE) for value in self.outputs)


def _note_crossing(
    notes: list[dict[int, None]], value: int, inner: int, other: int, parents: Sequence[int], ends: Sequence[int]
) -> None:
    """Note a value at each call around `inner` that does not contain `other`."""
    while inner >= 0 and not inner <= other < ends[inner]:
        notes[inner][value] = None
        inner = parents[inner]


# -------------------- Payload of a model file: the hierarchy with metadata, warnings, tensors and graph of the file
# js/src/core/files/tree/payload.ts makes the same of a file that is opened without a kernel.


def add_file(payload: Payload, file: ModelFile, hierarchy: Hierarchy) -> None:
    """Add metadata, tensors and graph of a file to the payload of its hierarchy."""
    flow = file_flow(file.contents, hierarchy)
    payload["flow"], payload["traced"] = flow, flow is not None
    graph = file.contents.graph
    payload["value_names"] = None if flow is None or graph is None else _value_names(graph, flow)
    payload["classes"]["source"] = [None] * len(payload["classes"]["source"])  # what it is called, and not what it is
    payload["classes"]["qualified"] = _qualified(payload, hierarchy)
    payload["file"] = _about(file, hierarchy, flow is not None)


def _value_names(graph: OperatorGraph, flow: Payload) -> Payload:
    """Names of the model's outputs, as in the file; not those of operators nor numbers, which nobody has given."""
    operators = {operator.name for operator in graph.operators}
    unnamed = [0] * len(flow["calls"]["node"])
    return {
        "labels": [[]],
        "inputs": unnamed,
        "outputs": unnamed,
        "results": ["" if name in operators or name.isdigit() else text(name) for name in graph.outputs],
    }


def _qualified(payload: Payload, hierarchy: Hierarchy) -> list[str]:
    """Class names as the file has them, without the module of generated classes."""
    names, qualified = payload["classes"]["name"], list(payload["classes"]["qualified"])
    nodes, entities = payload["nodes"]["entity"], payload["entities"]["class"]
    for node, module in enumerate(hierarchy.walk.modules):
        if type(module).__module__ == FileModule.__module__:
            place = entities[nodes[node]]
            qualified[place] = names[place]
    return qualified


def _about(file: ModelFile, hierarchy: Hierarchy, is_drawn: bool) -> Payload:
    contents = file.contents
    places = owned_tensors(contents, hierarchy)
    dtypes = DistinctKeys[str]()
    dtype = [dtypes.index_of(text(each.dtype)) for _, each in places]
    count = 0 if contents.graph is None else len(contents.graph.operators)
    large = f"Its graph is not drawn: it has {count} operators, and at most {MAX_OPERATORS} are drawn."
    return {
        "name": text(os.path.basename(file.path)),
        "format": text(contents.format),
        "metadata": [[text(key), _plain(value)] for key, value in file.metadata.items()],
        "classes": [text(name) for name in contents.classes],
        "warnings": [*map(text, contents.warnings), *([large] if count and not is_drawn else [])],
        "dtypes": dtypes.keys,
        "operators": [_operator(each) for each in contents.graph.operators] if contents.graph and is_drawn else [],
        "tensors": {
            "node": [node for node, _ in places],
            "name": [text(each.name) for _, each in places],
            "dtype": dtype,
            "bytes": [number(each.nbytes) for _, each in places],
        },
    }


def _operator(operator: OperatorRecord) -> list[object]:
    """Name and settings of an operator."""
    return [text(operator.name), [[text(key), _plain(value)] for key, value in operator.attributes.items()]]


def _plain(value: PlainValue) -> PlainValue:
    return text(value) if isinstance(value, str) else number(value)


# --------------------
# Histogram of a tensor in a model file, which the file viewer of JupyterLab requests from a kernel.


BINS = 64
MAX_NUMBERS = 10_000_000  # of one tensor that are looked at
PIECE_NUMBERS = 1 << 18  # numbers in memory at once, and next to each other in a sample


def histogram_line(path: str, name: str) -> str:
    """Returns the histogram as one line of ASCII JSON."""
    return json.dumps(tensor_histogram(path, name), allow_nan=False)


def tensor_histogram(path: str, name: str) -> Payload:
    """Returns counts between edges, and minimum, maximum and mean of the finite numbers of one tensor.

    `zeros` and `nan` (with the infinities) are counts; of a large tensor `sampled` of its `elements` are looked at, in
    pieces that are evenly spaced.
    """
    flat = _flat(open_file(path).tensor(name), name)
    least, most, total, finite, zeros, sampled = math.inf, -math.inf, 0.0, 0, 0, 0
    for piece in _pieces(flat):
        values = _finite(piece)
        sampled += piece.numel()
        finite += values.numel()
        zeros += int((values == 0).sum())
        if values.numel():
            least, most = min(least, float(values.min())), max(most, float(values.max()))
            total += float(values.sum())
    edges = _edges(least, most) if finite else []
    return {
        "counts": _counts(flat, edges) if finite else [],
        "edges": edges,
        "min": number(least) if finite else None,
        "max": number(most) if finite else None,
        "mean": number(total / finite) if finite else None,
        "zeros": zeros,
        "nan": sampled - finite,
        "elements": number(flat.numel()),
        "sampled": sampled,
    }


def _flat(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """Returns all numbers in file order, without a copy."""
    if tensor.is_complex() or tensor.is_quantized:
        raise ModelFileError(f"tensor {printable(name)!r} is of {tensor.dtype}: histograms are of real numbers")
    for axis in range(tensor.ndim):
        if tensor.stride(axis) == 0 and tensor.shape[axis] > 1:
            tensor = tensor.narrow(axis, 0, 1)  # the same numbers over and over
    tensor = tensor.permute(sorted(range(tensor.ndim), key=lambda axis: -tensor.stride(axis)))
    if not tensor.is_contiguous() and tensor.numel() > MAX_NUMBERS:
        raise ModelFileError(f"tensor {printable(name)!r} does not lie in one piece in the file: read a part")
    return tensor.reshape(-1)


def _pieces(flat: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yields all pieces, or evenly spaced ones of a large tensor."""
    count = flat.numel()
    if count <= MAX_NUMBERS:
        yield from (flat[at : at + PIECE_NUMBERS] for at in range(0, count, PIECE_NUMBERS))
        return
    pieces = MAX_NUMBERS // PIECE_NUMBERS
    for at in range(pieces):
        start = at * (count - PIECE_NUMBERS) // (pieces - 1)
        yield flat[start : start + PIECE_NUMBERS]


def _finite(piece: torch.Tensor) -> torch.Tensor:
    values = piece.to(torch.float64)
    return values[values.isfinite()]


def _edges(least: float, most: float) -> list[float]:
    """Edges of equal bins; around a single value at least 1 wide."""
    if least == most:
        half = max(0.5, abs(least) * 1e-6)
        least, most = max(least - half, -1.79e308), min(most + half, 1.79e308)
    # their difference may be too large for a float
    return [least * (1 - at / BINS) + most * (at / BINS) for at in range(BINS)] + [most]


def _counts(flat: torch.Tensor, edges: list[float]) -> list[int]:
    inner = torch.tensor(edges[1:-1], dtype=torch.float64)
    counts = torch.zeros(BINS, dtype=torch.int64)
    for piece in _pieces(flat):
        counts += torch.bincount(torch.bucketize(_finite(piece), inner, right=True), minlength=BINS)
    return counts.tolist()
