"""Schemas of payloads: version and part names of each; js/src/core/**/payload.ts has the types.

Whoever adds or renames a part does it here, in the schema of the page, and in the golden files between the two
(tests/widgets/write_golden.py). A change that an older page cannot read gets a new version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

from modulekg_widgets.engine.errors import ModuleKGError

Parts: TypeAlias = Mapping[str, Any]  # by name: the parts of a table, or nothing
Payload: TypeAlias = dict[str, Any]  # JSON that a page gets: the parts below; js/src has their types
Columns: TypeAlias = dict[str, list[Any]]  # a table of it: parallel lists, an entry per row
Fold: TypeAlias = list[Any]  # a run of alike siblings: first node, count, kind and label


def _parts(*names: str, **tables: Parts) -> Parts:
    return MappingProxyType({**dict.fromkeys(names, ()), **tables})


@dataclass(frozen=True, slots=True)
class Schema:
    """Version and parts of one kind of payload."""

    kind: str
    version: int
    parts: Parts

    def payload(self, parts: Parts) -> Payload:
        """Returns a payload of these parts; raises `ModuleKGError` if they do not match the schema."""
        payload = {"schema_version": self.version, "kind": self.kind, **parts}
        self.check(payload)
        return payload

    def check(self, payload: Parts) -> None:
        """Raise `ModuleKGError` if a payload has other parts than the schema."""
        odd = sorted(_differing_names({"schema_version": (), "kind": (), **self.parts}, payload))
        if odd:
            raise ModuleKGError(f"a payload of the kind {self.kind} has other parts than its schema: {', '.join(odd)}")


def _differing_names(stated: Parts, found: Parts) -> set[str]:
    """Returns the names that only one of both has, also in nested tables; a table that is None is not compared."""
    tables = (name for name in stated.keys() & found.keys() if stated[name] and found[name] is not None)
    return {
        *(stated.keys() ^ found.keys()),
        *(odd for name in tables for odd in _differing_names(stated[name], found[name])),
    }


MODEL = Schema("model", 2, _parts(
    "title", "columns", "column_info", "folds", "links", "tied", "marks", "blocks", "edges", "traced", "error",
    nodes=_parts("name", "parent", "entity"),
    entities=_parts("class", "name", "digest", "hyper", "tensors"),
    classes=_parts("name", "qualified", "source", "fields"),
    flow=_parts(
        "on", "names", "shapes", "dtypes", "sources", "inputs", "outputs",
        calls=_parts("node", "parent", "inputs", "outputs"),
        steps=_parts("name", "call", "inputs", "tensors", "source", "flops", "view", "square"),
        values=_parts("step", "shape", "dtype", "axes"),
        tensors=_parts("node", "name", "attributes", "tied"),
    ),
    value_names=_parts("labels", "inputs", "outputs", "results"),
    axes=_parts("name", "label", "size", "role", "frozen", "reasons", "dims", "written"),
    compare=_parts("model", "left", "right", "pairs", "tensors"),
    # of a model that was read from a file
    file=_parts(
        "name", "format", "metadata", "classes", "warnings", "dtypes", "operators",
        tensors=_parts("node", "name", "dtype", "bytes"),
    ),
))  # fmt: skip
KNOWLEDGE = Schema("knowledge", 2, _parts(
    "title", "analysis", "size", "values", "families", "types", "results",
    entities=_parts(
        "class", "name", "digest", "params", "bytes", "hyper", "children", "community", "importance",
    ),
    classes=_parts("name", "qualified", "fields"),
    models=_parts(
        "name", "root", "params", "bytes", "flops", "family", "modules", "structures", "members", "module_flops",
        "nearest",
    ),
    superfamilies=_parts("name", "of", "links"),
    communities=_parts("modularity", "count", "names"),
    fit=_parts("alpha", "xmin", "verdict", "comparisons", "lines"),
    jobs=_parts(
        "name", "user", "dataset", "model", "accuracy", "convergence", "started", "ended", "metrics", "training",
    ),
    datasets=_parts("name", "properties"),
    users=_parts("name", "properties"),
))  # fmt: skip
MASKS = Schema("mask_editor", 2, _parts(
    "title", "modules", "terms", "tensors", "flops", "approximate", "importances", "generation",
    axes=_parts("name", "label", "size", "role", "frozen", "reasons", "members", "by_ratio", "weights", "least"),
    blocks=_parts(
        "path", "params", "flops", "score", "within", "approximate", "importance", "of_axes", "of_tensors", "of_flops",
    ),
))  # fmt: skip
FORWARD = Schema("forward_player", 1, _parts(
    "run", "title", "modules", "shapes", "raised", "error", "failed", "dropped",
    steps=_parts("module", "depth", "inputs", "outputs", "sources", "value", "batch_dim", "statistics", "top"),
))  # fmt: skip
# a trait of its own: notebooks that were saved without it show the steps as before
FORWARD_PICTURES = Schema("forward_pictures", 1, _parts("run", "sample", "each", "pixels"))
METRICS = Schema("metric_panel", 1, _parts("runs", "limit"))
SCHEMAS = {schema.kind: schema for schema in (MODEL, KNOWLEDGE, MASKS, FORWARD, FORWARD_PICTURES, METRICS)}
