"""Payload of a traced forward: calls, operator steps and values, as columns that the page draws.

For `ModelGraph(model, args)`. `add_trace` runs `mk.trace` and writes "flow" (calls, steps, values, tensors), "edges"
between modules, "axes", FLOPs and output bytes by module, and marks into the payload of the hierarchy. A failed
forward is a result, too: "error" says why, and the flow ends there. Operators and values refer to each other by index;
names, shapes and dtypes that repeat are sent once (`DistinctKeys`). `schema.py` states all parts, and
`js/src/core/shared/payload/payload.ts` reads them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from modulekg_widgets.engine.axes.terms.algebra import Term, atoms
from modulekg_widgets.engine.axes.terms.term_positions import format_term
from modulekg_widgets.engine.errors import ModuleKGError, UnknownNameError, closest_match_hint
from modulekg_widgets.engine.identity.hierarchy import Hierarchy
from modulekg_widgets.engine.residuals.blocks import candidate_blocks
from modulekg_widgets.engine.torch_runtime.pytree import leaves
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode, OperatorNode, output_names, split_name
from modulekg_widgets.engine.views.flow_tables import CallNode, CallTree, FlowTables, is_state, module_edges
from modulekg_widgets.engine.views.payload import DistinctKeys, number, text
from modulekg_widgets.engine.views.schema import Columns, Payload

if TYPE_CHECKING:
    import pandas as pd

    from modulekg_widgets.engine.axes.axis import Axes
    from modulekg_widgets.engine.axes.graph import DataflowGraph


# --------------------
# Payload of axes: names, sizes, reasons for frozen ones, and the axes along each tensor dimension.


_AXIS = re.compile(r"\{(\d+)=\d+")
_INDEX = re.compile(r"\[\d+\]\.")


class AxisTables:
    """Axes by number, which is their index in `Axes`."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes

    def along(self, node: DataNode) -> list[int]:
        """Returns the numbers of the axes along a value."""
        terms = self._terms(node)
        found = (self.axes.rank(atom) for term in terms for atom in atoms(term) if atom in self.axes.tensor_dims)
        return list(dict.fromkeys(found))

    def payload(self, tensors: Iterable[DataNode]) -> Payload:
        """Returns the tables; `dims` refers to `written`, where an axis is its number in braces."""
        reasons: dict[str, int] = {}
        expressions: dict[str, int] = {}
        every = list(self.axes)
        return {
            "name": [text(axis.name) for axis in every],
            "label": [text(self.axes.label(axis.term)) for axis in every],
            "size": [axis.size for axis in every],
            "role": [axis.role for axis in every],
            "frozen": [-1 if axis.frozen is None else reasons.setdefault(axis.frozen, len(reasons)) for axis in every],
            "reasons": [text(reason) for reason in reasons],
            "dims": [
                [expressions.setdefault(self._written(term), len(expressions)) for term in self._terms(node)]
                for node in tensors
            ],
            "written": list(expressions),
        }

    def _terms(self, node: DataNode) -> list[Term]:
        return self.axes.inference.dims(node)

    def _written(self, term: Term) -> str:
        def marked(atom: Term) -> str:
            return f"{{{self.axes.rank(atom)}" if atom in self.axes.tensor_dims else "axis"

        return _AXIS.sub(r"{\1}", format_term(term, marked))


# ----------------------------------------


COLUMN_INFO = {
    "flops": {"label": "FLOPs", "aggregate": "sum"},
    "output_bytes": {"label": "bytes of outputs", "aggregate": "own"},
}
TIME_INFO = {  # columns of a profile: name in the payload, what it is called
    "time_ms": ("time", {"label": "time", "aggregate": "sum"}),
    "time_ms_after": ("time_after", {"label": "time after the plan", "aggregate": "sum"}),
}
STOPPED = "the forward pass stopped here"
USED_BY_OTHER_CODE = "not called: other code uses its tensors"
NOT_CALLED = "not called in this forward pass"


def add_trace(payload: Payload, hierarchy: Hierarchy, model: Any, args: object, kwargs: object) -> None:
    """Trace the model and add the result to its payload; `payload["error"]` is the reason of an incomplete trace.

    An error of the forward pass is news to show, and not an error of the widget.
    """
    from modulekg_widgets.engine.axes.graph import trace_with_wrappers

    try:
        graph: DataflowGraph | None = trace_with_wrappers(model, args, kwargs)
    except ModuleKGError as error:
        payload["error"] = text(str(error))
        graph = getattr(error, "graph", None)
    if graph is not None and (graph.operators or not payload["error"]):
        try:
            add_dataflow(payload, hierarchy, graph)
        except ModuleKGError as error:  # what a user said of an operator of their own
            payload["error"] = text(str(error))


def add_dataflow(payload: Payload, hierarchy: Hierarchy, graph: DataflowGraph) -> None:
    """Add a traced graph to the payload of its model; axes only if the forward completed."""
    tree = CallTree(graph, hierarchy.walk)
    tables = FlowTables(graph, tree)
    tensors = _Tensors(graph, hierarchy)
    axes = AxisTables(graph.axes) if graph.error is None else None
    columns = _columns(tables, hierarchy)
    payload["traced"] = bool(tables.steps)
    payload["edges"] = [[a, b, _shape_text(shape)] for a, b, shape in module_edges(tables)]
    payload["flow"] = _flow(tables, tensors, axes)
    payload["value_names"] = _ValueNames(hierarchy).payload(tables)
    payload["axes"] = None if axes is None else axes.payload(tensors.nodes)
    payload["columns"].update(columns)
    payload["blocks"] = _blocks(graph, hierarchy)
    payload["column_info"] = {**payload["column_info"], **COLUMN_INFO}
    for node, mark in _marks(hierarchy, tree, tensors):
        payload["marks"].setdefault(str(node), []).append(mark)


def add_time_columns(payload: Payload, rows: Sequence[int], profile: pd.DataFrame) -> Payload:
    """Returns the payload with the times of a profile as columns, in ms; `rows` are the nodes of its rows.

    Raises `UnknownNameError` for a table that has none.
    """
    known = getattr(profile, "columns", ())
    if "time_ms" not in known:
        listed = closest_match_hint("time_ms", [str(name) for name in known])
        raise UnknownNameError(f"profile has no column 'time_ms': pass the result of graph.profile(); {listed}")
    columns, info = dict(payload["columns"]), dict(payload["column_info"])
    for name, (column, described) in TIME_INFO.items():
        columns.pop(column, None)  # of a profile from before
        if name in known:
            values: list[float | None] = [None] * len(payload["nodes"]["name"])
            for row, taken in zip(rows, profile[name], strict=True):
                values[row] = None if taken != taken else float(taken)
            columns[column], info[column] = values, described
    return {**payload, "columns": columns, "column_info": info}


def _shape_text(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) if shape else "scalar"


def _flow(tables: FlowTables, tensors: _Tensors, axes: AxisTables | None) -> Payload:
    shapes, dtypes, sources = DistinctKeys[tuple[int, ...]](), DistinctKeys[str](), DistinctKeys[str]()
    operators = [step.operator for step in tables.steps]
    labels = [node.label for node in tables.graph.inputs]
    return {
        "on": tables.graph.traced_on,
        "calls": {
            "node": [call.node for call in tables.tree.calls],
            "parent": [call.parent for call in tables.tree.calls],
            "inputs": tables.inputs,
            "outputs": tables.outputs,
        },
        "steps": {
            "name": [step.name for step in tables.steps],
            "call": [step.call for step in tables.steps],
            "inputs": [step.inputs for step in tables.steps],
            "tensors": [[] if o is None else tensors.read_by(o) for o in operators],
            "source": [-1 if o is None or o.source is None else sources.index_of(str(o.source)) for o in operators],
            "flops": [0 if o is None else number(tables.flops[o.index]) for o in operators],
            "view": [at for at, o in enumerate(operators) if o is not None and _is_view(o)],
            "square": [at for at, o in enumerate(operators) if o is not None and _is_square(o)],
        },
        "values": {
            "step": tables.made_by,
            "shape": [shapes.index_of(node.shape) for node in tables.nodes],
            "dtype": [dtypes.index_of(str(node.dtype).removeprefix("torch.")) for node in tables.nodes],
            "axes": [[] if axes is None else axes.along(node) for node in tables.nodes],
        },
        "tensors": tensors.payload(),
        "names": [text(name) for name in tables.names.keys],
        "shapes": [list(shape) for shape in shapes.keys],
        "dtypes": dtypes.keys,
        "sources": [text(source) for source in sources.keys],
        "inputs": [[text(label), place] for label, place in zip(labels, tables.model_inputs, strict=True)],
        "outputs": tables.model_outputs,
    }


class _ValueNames:
    """Names of what modules take and give: the parameters of forward, and the places in what it returned."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._modules = hierarchy.walk.modules
        self._labels = DistinctKeys[tuple[str, ...]]()
        self._parameters: dict[int, tuple[object, list[str]]] = {}

    def payload(self, tables: FlowTables) -> Payload:
        calls = tables.tree.calls
        return {
            "inputs": [self._labels.index_of(self._of_inputs(call)) for call in calls],
            "outputs": [self._labels.index_of(self._of_outputs(call)) for call in calls],
            "labels": [[text(label) for label in labels] for labels in self._labels.keys],
            "results": [text(name) for name in result_names(tables.graph)],
        }

    def _of_inputs(self, call: CallNode) -> tuple[str, ...]:
        if call.record is None or len(call.record.places) != len(call.inputs):
            return ()
        places, steps = call.record.places, call.record.steps
        known = self._parameters_of(self._modules[call.node])
        names = [place if isinstance(place, str) else known[place] if place < len(known) else "" for place in places]
        alone = {name for name in names if names.count(name) == 1}  # of a list of one tensor the list
        return tuple(
            name if not name or (name in alone and step == "[0]") else name + step
            for name, step in zip(names, steps, strict=True)
        )

    def _of_outputs(self, call: CallNode) -> tuple[str, ...]:
        result = None if call.record is None else call.record.result
        names = output_names(result)
        return tuple(names) if len(names) == len(call.outputs) else ()

    def _parameters_of(self, module: object) -> list[str]:
        """Returns the names of forward's positional parameters; none of those behind *args."""
        forward = getattr(module, "forward", None)
        key = id(getattr(forward, "__func__", forward))  # a callable need not have a hash
        if key not in self._parameters:
            self._parameters[key] = forward, _positional(forward)
        return self._parameters[key][1]


def _positional(function: object) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):  # compiled
        return []
    return [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]


def result_names(graph: Dataflow) -> list[str]:
    """Returns a name for each output of the model, as `logits`; what all of them begin with is left out."""
    names: dict[DataNode, str] = {}
    for name, node in leaves(graph.result, DataNode):
        names.setdefault(node, name.removeprefix("."))
    found = [names.get(node, "") for node in graph.outputs]
    first = _INDEX.match(found[0]) if found else None
    if first and len(set(found)) == len(found) and all(name.startswith(first[0]) for name in found):
        return [name.removeprefix(first[0]) for name in found]
    return found


def _blocks(graph: Dataflow, hierarchy: Hierarchy) -> dict[str, str]:
    """Returns a text for each module that is a residual block, by node."""
    found: dict[str, str] = {}
    for block in candidate_blocks(graph) if graph.error is None else ():
        node = hierarchy.walk.find(block.path)
        if node is not None:
            what = "Residual branch" if block.is_branch else "Residual block"
            found[str(node)] = f"{what}: can be removed as a whole"
    return found


def _is_view(operator: OperatorNode) -> bool:
    """True if all outputs of an operator share memory with its inputs."""
    given = {id(node.storage) for node in operator.inputs}
    return bool(operator.outputs) and all(id(o.storage) in given and o.previous is None for o in operator.outputs)


def _is_square(operator: OperatorNode) -> bool:
    """True if an operator squares its input: x², or x · x."""
    name = operator.name.removeprefix("aten::").rstrip("_")
    if name == "square":
        return True
    given = list(operator.args[:2])
    if name == "mul":
        return len(given) == 2 and isinstance(given[0], DataNode) and given[0] is given[1]
    return name == "pow" and len(given) == 2 and isinstance(given[0], DataNode) and given[1] == 2


class _Tensors:
    """Parameters, buffers and tensor attributes under each of their names, with their modules."""

    def __init__(self, graph: Dataflow, hierarchy: Hierarchy) -> None:
        self.nodes: list[DataNode] = []
        self.owner: list[int] = []
        self.attributes = DistinctKeys[str]()
        self.attribute: list[int] = []
        self._place: dict[int, int] = {}  # a tensor's index in the graph -> its first name
        known = set()
        for name, node in graph.state.items():
            path, attribute = split_name(graph, name)
            owner = hierarchy.walk.find(path)
            if owner is None or (owner, attribute) in known:
                continue  # the same slot by another path to a shared module
            known.add((owner, attribute))
            self._place.setdefault(node.index, len(self.nodes))
            self.nodes.append(node)
            self.owner.append(owner)
            self.attribute.append(self.attributes.index_of(attribute))

    def read_by(self, operator: OperatorNode) -> list[int]:
        """Returns the indices of the model tensors that an operator reads."""
        found = [self._place.get(node.index) for node in dict.fromkeys(operator.inputs) if is_state(node)]
        return [place for place in found if place is not None]

    def payload(self) -> Payload:
        again = [[place, self._place[node.index]] for place, node in enumerate(self.nodes)]
        return {
            "node": self.owner,
            "name": self.attribute,
            "attributes": [text(name) for name in self.attributes.keys],
            "tied": [[place, first] for place, first in again if place != first],
        }


def _columns(tables: FlowTables, hierarchy: Hierarchy) -> Columns:
    """FLOPs and output bytes by module; None for modules without a call or a FLOP formula."""
    counted = tables.graph.flops().by_module
    unknown = list(accumulate((flops is None for flops in tables.flops), initial=0))
    outputs: dict[int, int] = {}
    uncounted: set[int] = set()
    for call in tables.tree.calls:
        outputs[call.node] = outputs.get(call.node, 0) + sum(node.nbytes for node in dict.fromkeys(call.outputs))
        if unknown[call.end] > unknown[call.start]:
            uncounted.add(call.node)
    flops = []
    for node in range(len(hierarchy.walk)):
        known = counted.get(hierarchy.walk.path(node), 0)
        flops.append(number(known) if node in outputs and (known or node not in uncounted) else None)
    return {"flops": flops, "output_bytes": [number(outputs.get(node)) for node in range(len(flops))]}


def _marks(hierarchy: Hierarchy, tree: CallTree, tensors: _Tensors) -> Iterable[tuple[int, str]]:
    """Yields the module in which the forward stopped, or the topmost modules that were not called."""
    broken = [call for call in tree.calls if not call.finished]
    if broken:
        yield broken[-1].node, STOPPED
        return
    called = {call.node for call in tree.calls}
    read = {owner for owner, node in zip(tensors.owner, tensors.nodes, strict=True) if node.consumers}
    for node, parent in enumerate(hierarchy.walk.parents):
        if node not in called and parent in called:
            below = range(node, hierarchy.walk.subtree_ends[node])
            if not any(inner in called for inner in below):
                yield node, USED_BY_OTHER_CODE if any(inner in read for inner in below) else NOT_CALLED
