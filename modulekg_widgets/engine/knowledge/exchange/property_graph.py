"""The whole knowledge graph as a property graph: nodes and edges of every type, with plain values as attributes.

`to_networkx(contents)` is public and returns a copy; `property_graph(contents)` is what the export formats read, and
shares values with the contents. Node types are Module, Model, DataSet, User, Job, Operator and ModuleType; edges are
contains, feeds, calls, runs, uses, trains, isA and subclassOf.

The key of a module is its fingerprint, of any other node `<type>:<name>`. The attributes of a node suffice to restore
its record (graph_reader.py); `name` and `count` of a module are for people. Two nodes have one edge: a second
relation is an attribute of that name.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

import networkx as nx

from modulekg_widgets.engine.errors import UnknownNameError, closest_match_hint, printable
from modulekg_widgets.engine.knowledge.facts.contents import Contents, copy_values, slot_positions
from modulekg_widgets.engine.knowledge.facts.property_values import Properties, PropertyValue
from modulekg_widgets.engine.knowledge.facts.records import ModelNode

if TYPE_CHECKING:
    from modulekg_widgets.engine.knowledge.analysis.module_types import ModuleType


# -------------------- Context manager that pauses Python's garbage collector while large results are built


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pauses the garbage collector, and restores its state afterwards.

    Else it goes through all that is kept again and again while that grows: two thirds of the time of a large graph.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


# ----------------------------------------


STORED_TYPES = ("Module", "Model", "DataSet", "User", "Job")
GRAPH_TYPES = (*STORED_TYPES, "Operator", "ModuleType")
TypeSelection = Iterable[str] | str | None
Attributes: TypeAlias = dict[str, PropertyValue]


@dataclass(frozen=True, slots=True)
class PropertyGraph:
    """A graph with the read interface of `networkx.DiGraph`, for exporters."""

    graph: Attributes
    nodes: dict[str, Attributes] = field(default_factory=dict)
    adj: dict[str, dict[str, Attributes]] = field(default_factory=dict)  # start -> end -> what is known of the edge


GraphLike: TypeAlias = PropertyGraph | nx.DiGraph


def property_graph(contents: Contents, types: TypeSelection = None) -> PropertyGraph:
    """Returns the graph of `to_networkx` for reading only; it shares values with `contents`."""
    return _Builder(contents, checked_types(contents, types), own=False).built()


def to_networkx(contents: Contents, types: TypeSelection = None) -> nx.DiGraph:
    """The nodes of these types and the edges between them; every edge has a `type`.

    `types` are some of Module, Model, DataSet, User, Job, Operator and ModuleType, or "all" of them. By default a
    graph that knows models alone gives its modules, and any other all but ModuleType. What traces tell, `feeds` and
    `calls`, comes with the models. Where two nodes have a second relation, the edge has an attribute of that name with
    what is known of it. It may be changed: nothing of it is shared with `contents`. Raises `UnknownNameError` for
    another type.
    """
    with gc_paused():
        return _as_networkx(_Builder(contents, checked_types(contents, types), own=True).built())


def _as_networkx(made: PropertyGraph) -> nx.DiGraph:
    """Returns the same as a networkx graph with copied attributes."""
    graph = nx.DiGraph(**made.graph)
    graph.add_nodes_from(made.nodes)
    for (_, attributes), known in zip(graph.nodes.data(), made.nodes.values(), strict=True):
        attributes.update(known)  # `add_nodes_from` takes them, too, and much longer
    graph.add_edges_from((start, end, data) for start, ends in made.adj.items() for end, data in ends.items())
    return graph


def node_key(kind: str, name: str) -> str:
    """The key of a node; modules have their fingerprint."""
    return name if kind == "Module" else f"{kind}:{name}"


def checked_types(contents: Contents, types: TypeSelection) -> frozenset[str]:
    """Returns the checked node types; raises `UnknownNameError`."""
    if types is None:
        alone = not (contents.datasets or contents.users or contents.jobs)
        return frozenset(("Module",) if alone else (*STORED_TYPES, "Operator"))
    if types == "all":
        return frozenset(GRAPH_TYPES)
    try:
        chosen = frozenset([types] if isinstance(types, str) else types)
    except TypeError:
        hint = closest_match_hint("", GRAPH_TYPES)
        raise UnknownNameError(f"types of nodes are texts, got {printable(repr(types))}: {hint}") from None
    for kind in chosen - set(GRAPH_TYPES):
        raise UnknownNameError(
            f"there is no type of nodes {printable(str(kind))!r}: {closest_match_hint(str(kind), GRAPH_TYPES)}"
        )
    return chosen


class _Builder:
    def __init__(self, contents: Contents, types: frozenset[str], own: bool) -> None:
        self.contents = contents
        self.types = types
        self.copies_values = own  # whether the graph shares nothing that can be changed
        self.graph = PropertyGraph({"scheme": contents.scheme})
        self.nodes, self.adj = self.graph.nodes, self.graph.adj

    def built(self) -> PropertyGraph:
        self.add_nodes()
        self.add_edges()
        return self.graph

    def _add(self, kind: str, name: str, /, **attributes: PropertyValue) -> None:
        if kind in self.types:
            self._put(node_key(kind, name), {"type": kind, **attributes})

    def _put(self, key: str, attributes: Attributes) -> None:
        known = self.nodes.setdefault(key, attributes)
        if known is attributes:
            self.adj[key] = {}
        else:
            known.update(attributes)

    def _relate(self, start: str, end: str, relation: str, /, **attributes: PropertyValue) -> None:
        if start not in self.nodes or end not in self.nodes:
            return
        ends = self.adj[start]
        edge = ends.get(end)
        ends[end] = {"type": relation, **attributes} if edge is None else {**edge, relation: attributes}

    def _values(self, values: Properties) -> Properties:
        return copy_values(values) if self.copies_values else values

    # -------------------------------------------------------------- nodes

    def add_nodes(self) -> None:
        contents = self.contents
        if "Module" in self.types:
            self._add_modules()
        for model in contents.models.values():
            self._add("Model", model.name, **_model_attributes(model))
        for dataset in contents.datasets.values():
            self._add("DataSet", dataset.name, name=dataset.name, properties=self._values(dataset.properties))
        for user in contents.users.values():
            self._add("User", user.name, name=user.name, properties=self._values(user.properties))
        for job in contents.jobs.values():
            self._add(
                "Job", job.name, name=job.name, user=job.user, dataset=job.dataset, model=job.model,
                accuracy=job.accuracy, convergence=job.convergence, started=job.started, ended=job.ended,
                history={metric: [list(point) for point in points] for metric, points in job.history.items()},
                properties=self._values(job.properties),
            )  # fmt: skip
        if "Operator" in self.types:
            for operator, count in _operators(contents).items():
                self._add("Operator", operator, name=operator, count=count)

    def _add_modules(self) -> None:
        names, uses, holders = self.contents.names, self.contents.uses, self.contents.holders
        for key, node in self.contents.modules.items():
            self._put(key, {
                "type": "Module", "name": names[key], "count": uses[key], "models": list(holders[key]),
                "class": node.class_name, "qualified_class": node.qualified_class, "bases": list(node.bases),
                "hyperparameters": self._values(node.hyperparameters), "slots": list(map(list, node.slots)),
                "tensors": {name: None if shape is None else list(shape) for name, shape in node.tensors.items()},
                "parameters": node.parameters, "bytes": node.bytes,
            })  # fmt: skip

    # -------------------------------------------------------------- edges

    def add_edges(self) -> None:
        contents = self.contents
        if "Module" in self.types:
            self._add_contains()
        for model in contents.models.values():
            self._relate(node_key("Model", model.name), model.root, "contains", count=1, order=(0,))
        for job in contents.jobs.values():
            self._add_run(node_key("Job", job.name), job.user, job.dataset, job.model)
        if "Model" in self.types:
            self._add_dataflow()
        if "ModuleType" in self.types:
            self._add_module_types()

    def _add_contains(self) -> None:
        """Adds containment edges first; edges with the same positions share their attributes."""
        nodes = self.nodes
        known: dict[tuple[int, ...], Attributes] = {}
        for key, node in self.contents.modules.items():
            ends = self.adj[key]
            for child, order in slot_positions(node).items():
                if child in nodes:
                    edge = known.get(order)
                    if edge is None:
                        edge = known[order] = {"type": "contains", "count": len(order), "order": order}
                    ends[child] = edge

    def _add_run(self, job: str, user: str | None, dataset: str | None, model: str | None) -> None:
        if user is not None:
            self._relate(node_key("User", user), job, "runs")
        if dataset is not None:
            self._relate(job, node_key("DataSet", dataset), "uses")
        if model is not None:
            self._relate(job, node_key("Model", model), "trains")

    def _add_dataflow(self) -> None:
        models = self.contents.models.values()
        feeds = _counts_per_model((model.name, model.feeds) for model in models)
        for (start, end), counts in feeds.items():
            self._relate(start, end, "feeds", count=sum(counts.values()), models=counts)
        calls = _counts_per_model((model.name, model.calls) for model in models)
        for (module, operator), counts in calls.items():
            self._relate(module, node_key("Operator", operator), "calls", count=sum(counts.values()), models=counts)

    # -------------------------------------------------------------- types of modules, which are derived

    def _add_module_types(self) -> None:
        """The types of both levels with their isA edges, and as types of level 0 the classes with their bases."""
        from modulekg_widgets.engine.knowledge.analysis.module_types import subclass_of, type_names, types_by_level

        bases = subclass_of(self.contents)[["class", "base", "distance"]].itertuples(index=False, name=None)
        classes = dict.fromkeys(node.qualified_class for node in self.contents.modules.values())
        for name in classes:
            self._add("ModuleType", _class_key(name), name=name, level=0)
        for name, base, distance in bases:
            self._add("ModuleType", _class_key(base), name=base, level=0)
            start, end = (node_key("ModuleType", _class_key(end)) for end in (name, base))
            self._relate(start, end, "subclassOf", distance=distance)
        every = types_by_level(self.contents)
        for types in every.values():
            names = type_names(self.contents, types)
            for kind in types:
                self._add("ModuleType", kind.key, name=names[kind.key], level=kind.level, count=len(kind.members))
                end = node_key("ModuleType", _class_key(kind.qualified_class))
                self._relate(node_key("ModuleType", kind.key), end, "subclassOf", distance=1)
        if "Module" in self.types:
            self._add_is_a(chain.from_iterable(every.values()))

    def _add_is_a(self, types: Iterable[ModuleType]) -> None:
        """Edges from modules to types, between which there is no other."""
        from modulekg_widgets.engine.knowledge.analysis.module_types import differences

        for kind, differing in differences(self.contents, types):
            end = node_key("ModuleType", kind.key)
            for member, values in zip(kind.members, differing, strict=True):
                self.adj[member][end] = {"type": "isA", "differs": copy_values(values)}


def _class_key(name: str) -> str:
    return f"class {name}"  # the other types are called by digits


def _model_attributes(model: ModelNode) -> Attributes:
    return {
        "name": model.name, "root": model.root, "cyclic": model.cyclic, "parameters": model.parameters,
        "bytes": model.bytes, "flops": model.flops, "module_flops": dict(model.module_flops),
        "launches": model.launches, "traffic": model.traffic,
        "inputs": None if model.inputs is None else [list(shape) for shape in model.inputs],
        "occurrences": _triples(model.occurrences), "dataflow": _triples(model.feeds),
        "operators": _triples(model.calls),
    }  # fmt: skip


def _triples(counter: Counter[tuple[str, str]]) -> list[list[object]]:
    return [[first, second, count] for (first, second), count in counter.items()]


def _counts_per_model(
    counters: Iterable[tuple[str, Counter[tuple[str, str]]]],
) -> dict[tuple[str, str], dict[str, int]]:
    found: dict[tuple[str, str], dict[str, int]] = {}
    for name, counter in counters:
        for pair, count in counter.items():
            found.setdefault(pair, {})[name] = count
    return found


def _operators(contents: Contents) -> Counter[str]:
    calls: Counter[str] = Counter()
    for model in contents.models.values():
        for (_, operator), count in model.calls.items():
            calls[operator] += count
    return calls


# -------------------- Numbers of nodes and edges of the exported graph, counted without building it


def node_count(contents: Contents) -> int:
    """The number of nodes of `to_networkx(contents)`."""
    groups = {
        "Module": contents.modules, "Model": contents.models, "DataSet": contents.datasets, "User": contents.users,
        "Job": contents.jobs, "Operator": {name for model in contents.models.values() for _, name in model.calls},
    }  # fmt: skip
    return sum(len(groups[kind]) for kind in checked_types(contents, None))


def edge_count(contents: Contents) -> int:
    """The number of edges of `to_networkx(contents)`: of pairs of nodes with one relation or several."""
    pairs = set(_containment_pairs(contents))
    if "Model" not in checked_types(contents, None):
        return len(pairs)
    modules, models = contents.modules, contents.models.values()
    pairs.update(pair for model in models for pair in model.feeds if pair[0] in modules and pair[1] in modules)
    calls = {pair for model in models for pair in model.calls if pair[0] in modules}
    return len(pairs) + len(calls) + sum(model.root in modules for model in models) + _count_job_edges(contents)


def _containment_pairs(contents: Contents) -> Iterator[tuple[str, str]]:
    modules = contents.modules
    for key, node in modules.items():
        for _, child in node.slots:
            if child in modules:
                yield key, child


def _count_job_edges(contents: Contents) -> int:
    """Edges from the user to a job, and from it to its data set and model."""
    return sum(
        (job.user in contents.users) + (job.dataset in contents.datasets) + (job.model in contents.models)
        for job in contents.jobs.values()
    )
