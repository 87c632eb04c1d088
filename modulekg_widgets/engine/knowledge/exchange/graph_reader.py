"""Validation of a networkx graph that was read from a file, and conversion to records."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar

import networkx as nx

from modulekg_widgets.engine.errors import GraphFileError, PropertyError, a_type, printable
from modulekg_widgets.engine.identity.levels import LEVELS
from modulekg_widgets.engine.knowledge.exchange.property_graph import (
    GRAPH_TYPES,
    STORED_TYPES,
    Attributes,
    node_key,
    property_graph,
)
from modulekg_widgets.engine.knowledge.facts.contents import Contents, DataSetNode, JobNode, UserNode
from modulekg_widgets.engine.knowledge.facts.jobs import checked_seconds
from modulekg_widgets.engine.knowledge.facts.property_values import PropertyValue
from modulekg_widgets.engine.knowledge.facts.records import FINGERPRINTS, SCHEMES, ModelNode, StructureNode

_MAX_INTEGER = 2**63 - 1
Node = TypeVar("Node")
Check: TypeAlias = Callable[[PropertyValue], bool]


def from_networkx(graph: nx.DiGraph) -> Contents:
    """Returns the records of a graph with all stored node types; raises `GraphFileError`."""
    scheme = graph.graph.get("scheme")
    if scheme not in SCHEMES:
        raise GraphFileError(f"the scheme is {_describe(scheme)}, not one of {', '.join(SCHEMES)}")
    groups: dict[str, list[_Fields]] = {kind: [] for kind in GRAPH_TYPES}
    for key, attributes in graph.nodes(data=True):
        kind = attributes.get("type")
        if not isinstance(kind, str) or kind not in groups:
            raise GraphFileError(
                f"the node {printable(str(key))!r} has the type {_describe(kind)}: know {', '.join(GRAPH_TYPES)}"
            )
        groups[kind].append(_Fields(str(key), attributes))
    modules = {fields.key: _module(fields, scheme) for fields in groups["Module"]}
    contents = Contents(
        scheme, modules, _by_name(groups["Model"], _model, "Model"), _by_name(groups["DataSet"], _dataset, "DataSet"),
        _by_name(groups["User"], _user, "User"), _by_name(groups["Job"], _job, "Job"),
    )  # fmt: skip
    _check_links(contents)
    _check_edges(graph, contents)
    return contents


class _Fields:
    """Attributes of a node with checks of their types."""

    def __init__(self, key: str, attributes: Attributes) -> None:
        self.key = key
        self.attributes = attributes

    def wrong(self, name: str, wanted: str) -> GraphFileError:
        found = _describe(self.attributes.get(name))
        return GraphFileError(f"{name!r} of the node {printable(self.key)!r} is {found}, not {wanted}")

    def get(self, name: str, wanted: str, check: Check) -> PropertyValue:
        value = self.attributes.get(name)
        if not check(value):
            raise self.wrong(name, wanted)
        return value

    def text(self, name: str) -> str:
        return self.get(name, "a text", _is_text)

    def text_or_none(self, name: str) -> str | None:
        return self.get(name, "a text", lambda value: value is None or _is_text(value))

    def natural(self, name: str) -> int:
        return self.get(name, "a whole number from 0 to 2^63 - 1", _is_natural)

    def truth(self, name: str) -> bool:
        return self.get(name, "true or false", lambda value: type(value) is bool)

    def real_or_none(self, name: str) -> float | None:
        return self.get(name, "a finite number", lambda value: value is None or _is_finite(value))

    def moment(self, name: str) -> float | None:
        seconds = self.real_or_none(name)
        try:
            return None if seconds is None else checked_seconds(seconds, name)
        except PropertyError as error:
            raise GraphFileError(f"the node {printable(self.key)!r} has no time: {error}") from None

    def mapping(self, name: str, check: Check = lambda value: True) -> Attributes:
        def fits(value: object) -> bool:
            return type(value) is dict and all(_is_text(k) and check(v) for k, v in value.items())

        return self.get(name, "a dictionary of what belongs there", fits)

    def rows(self, name: str, *checks: Check) -> list[PropertyValue]:
        """A list of lists, in which each element passes its check."""

        def fits(row: PropertyValue) -> bool:
            return _is_list(row) and len(row) == len(checks) and all(c(v) for c, v in zip(checks, row, strict=True))

        return self.get(name, "a list of what belongs there", lambda value: _is_list(value) and all(map(fits, value)))

    def counter(self, name: str, second: Check = lambda value: _is_text(value)) -> Counter[tuple[str, str]]:
        rows = self.rows(name, _is_text, second, lambda count: _is_natural(count) and count > 0)
        counter = Counter({(first, other): count for first, other, count in rows})
        if len(counter) < len(rows):
            raise self.wrong(name, "a count of different pairs")
        return counter


def _describe(value: object) -> str:
    if value is None:
        return "missing"
    return repr(printable(value, 60)) if isinstance(value, str) else a_type(value)


def _is_text(value: object) -> bool:
    return type(value) is str


def _is_list(value: object) -> bool:
    return type(value) is list


def _is_natural(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MAX_INTEGER


def _is_number(value: PropertyValue) -> bool:
    return type(value) is float or (type(value) is int and abs(value) <= _MAX_INTEGER)


def _is_finite(value: PropertyValue) -> bool:
    return _is_number(value) and math.isfinite(value)


def _is_shape(value: PropertyValue) -> bool:
    return _is_list(value) and all(map(_is_natural, value))


def _is_point(value: PropertyValue) -> bool:
    return _is_list(value) and len(value) == 2 and all(map(_is_number, value))


# ------------------------------------------------------------------ records


def _by_name(groups: list[_Fields], read: Callable[[_Fields], Node], kind: str) -> dict[str, Node]:
    found: dict[str, Node] = {}
    for fields in groups:
        name = fields.text("name")
        if fields.key != node_key(kind, name):
            raise fields.wrong("name", f"what the {kind} is called by its key")
        found[name] = read(fields)
    return found


def _module(fields: _Fields, scheme: str) -> StructureNode:
    if not FINGERPRINTS[scheme].fullmatch(fields.key):
        raise GraphFileError(f"the module {printable(fields.key)!r} has no fingerprint of the scheme {scheme!r}")
    bases = fields.get("bases", "a list of texts", lambda value: _is_list(value) and all(map(_is_text, value)))
    slots = fields.rows("slots", _is_text, lambda child: child is None or _is_text(child))
    if len({name for name, _ in slots}) < len(slots):
        raise fields.wrong("slots", "a list in which each name stands once")
    tensors = fields.mapping("tensors", lambda shape: shape is None or _is_shape(shape))
    return StructureNode(
        fields.key, fields.text("class"), fields.text("qualified_class"), tuple(bases),
        fields.mapping("hyperparameters"), {n: None if shape is None else tuple(shape) for n, shape in tensors.items()},
        tuple((name, child) for name, child in slots), fields.natural("parameters"), fields.natural("bytes"),
    )  # fmt: skip


def _model(fields: _Fields) -> ModelNode:
    flops, launches, traffic = (
        None if fields.attributes.get(key) is None else fields.natural(key) for key in ("flops", "launches", "traffic")
    )
    inputs = None
    if fields.attributes.get("inputs") is not None:
        shapes = fields.get("inputs", "a list of shapes", lambda value: _is_list(value) and all(map(_is_shape, value)))
        inputs = tuple(tuple(shape) for shape in shapes)
    return ModelNode(
        fields.text("name"), fields.text("root"), fields.counter("occurrences", lambda level: level in LEVELS),
        fields.truth("cyclic"), fields.natural("parameters"), fields.natural("bytes"), flops, inputs,
        fields.mapping("module_flops", _is_natural), fields.counter("dataflow"), fields.counter("operators"),
        launches, traffic,
    )  # fmt: skip


def _dataset(fields: _Fields) -> DataSetNode:
    return DataSetNode(fields.text("name"), fields.mapping("properties"))


def _user(fields: _Fields) -> UserNode:
    return UserNode(fields.text("name"), fields.mapping("properties"))


def _job(fields: _Fields) -> JobNode:
    accuracy, started, ended = fields.real_or_none("accuracy"), fields.moment("started"), fields.moment("ended")
    if started is None:
        raise fields.wrong("started", "seconds since 1970")
    if ended is not None and ended < started:
        raise fields.wrong("ended", "after its start")
    if accuracy is not None and not 0 <= accuracy <= 1:
        raise fields.wrong("accuracy", "a fraction from 0 to 1")
    history = fields.mapping("history", lambda points: _is_list(points) and all(map(_is_point, points)))
    return JobNode(
        fields.text("name"), fields.text_or_none("user"), fields.text_or_none("dataset"), fields.text_or_none("model"),
        accuracy, fields.real_or_none("convergence"),
        {metric: [(step, value) for step, value in points] for metric, points in history.items()},
        started, ended, fields.mapping("properties"),
    )  # fmt: skip


# ------------------------------------------------------------------ what leads where


def _check_links(contents: Contents) -> None:
    modules = contents.modules
    for node in modules.values():
        for slot, child in node.slots:
            if child is not None and child not in modules:
                raise GraphFileError(
                    f"the child {printable(slot)!r} of the module {printable(node.fingerprint)!r} is missing"
                )
    cyclic = _modules_leading_to_cycles(modules)
    for model in contents.models.values():
        _check_model(model, contents, cyclic)
    for job in contents.jobs.values():
        for kind, name, known in (
            ("user", job.user, contents.users),
            ("data set", job.dataset, contents.datasets),
            ("model", job.model, contents.models),
        ):
            if name is not None and name not in known:
                raise GraphFileError(f"the {kind} {printable(name)!r} of the job {printable(job.name)!r} is missing")


def _check_model(model: ModelNode, contents: Contents, cyclic: set[str]) -> None:
    modules = contents.modules
    title = f"the model {printable(model.name)!r}"
    if model.root not in modules:
        raise GraphFileError(f"the root {printable(model.root)!r} of {title} is missing")
    named = [key for key, _ in model.occurrences] + [key for key, _ in model.calls] + list(model.module_flops)
    for key in [*named, *(key for pair in model.feeds for key in pair)]:
        if key not in modules:
            raise GraphFileError(f"{title} knows the module {printable(key)!r}, which is missing")
    if model.root in cyclic and not model.cyclic:
        raise GraphFileError(f"a module of {title} contains itself, but the model is not marked as cyclic")
    if contents.scheme == "structure" and {key for key, _ in model.occurrences} != _contained_modules(
        model.root, modules
    ):
        raise GraphFileError(f"{title} does not consist of the modules that it counts")


def _contained_modules(root: str, modules: Mapping[str, StructureNode]) -> set[str]:
    found, waiting = {root}, [root]
    while waiting:
        for _, child in modules[waiting.pop()].slots:
            if child is not None and child not in found:
                found.add(child)
                waiting.append(child)
    return found


def _modules_leading_to_cycles(modules: Mapping[str, StructureNode]) -> set[str]:
    """Returns the modules from which a cycle can be reached, by repeated removal of leaves."""
    children = {key: {child for _, child in node.slots if child is not None} for key, node in modules.items()}
    parents: dict[str, list[str]] = {key: [] for key in modules}
    for key, below in children.items():
        for child in below:
            parents[child].append(key)
    left = {key: len(below) for key, below in children.items()}
    waiting = [key for key, count in left.items() if count == 0]
    while waiting:
        key = waiting.pop()
        del left[key]
        for parent in parents[key]:
            left[parent] -= 1
            if left[parent] == 0:
                waiting.append(parent)
    return set(left)


def _check_edges(graph: nx.DiGraph, contents: Contents) -> None:
    """Raises `GraphFileError` if the edges are not those that follow from the nodes."""
    nodes = property_graph(contents, STORED_TYPES)
    expected = {(start, end) for start, ends in nodes.adj.items() for end in ends}
    found = {(start, end) for start, end in graph.edges if start in nodes.adj and end in nodes.adj}
    missing, extra = expected - found, found - expected
    if missing or extra:
        start, end = min(missing or extra)
        reason = "is missing" if missing else "fits to nothing that its nodes say"
        raise GraphFileError(f"the edge from {printable(start)!r} to {printable(end)!r} {reason}")
