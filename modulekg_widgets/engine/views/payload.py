"""Payload of a model hierarchy: one JSON object that the page draws, searches and colors without the kernel.

For all widgets that show modules. Data are columns, lists in parallel with an entry per module; modules with one
fingerprint share an "entity" with class, hyperparameters and tensors, so that resnet152 is below 400 KB. `text` and
`number` make values safe for JSON and JavaScript: lone surrogates become escapes; NaN, infinities and integers above
2^53 become strings. Runs of alike siblings are folded here, so that the page and the static pictures agree.
`schema.py` states the parts; `js/src/core/shared/payload/payload.ts` is the reader.

    payload = model_payload(hierarchy(model))
    payload["nodes"]["name"], payload["columns"]["params"]
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Generic, TypeVar

from modulekg_widgets.engine.identity.classes import class_names, source_location
from modulekg_widgets.engine.identity.diff import HierarchyDiff
from modulekg_widgets.engine.identity.fingerprint import display_name
from modulekg_widgets.engine.identity.folding import (
    FAMILY,
    SiblingRun,
    class_tree_digests,
    hyperparameters,
    sibling_runs,
)
from modulekg_widgets.engine.identity.hierarchy import Hierarchy
from modulekg_widgets.engine.identity.tensors import DirectTensor, direct_tensors, is_uninitialised, shape_of
from modulekg_widgets.engine.identity.walk import class_name, nominal_class
from modulekg_widgets.engine.views.schema import MODEL, Columns, Payload

_MAX_EXACT_INTEGER = 2**53  # beyond it a JavaScript number loses digits

MAX_STAGES = 8  # children of the root that stay apart when only their sizes differ: a reader looks for layer4

COLUMN_INFO = {
    "params": {"label": "parameters", "aggregate": "sum"},
    "own_params": {"label": "own parameters", "aggregate": "own"},
    "bytes": {"label": "bytes", "aggregate": "sum"},
}

Key = TypeVar("Key", bound=Hashable)


def text(value: str) -> str:
    """Returns text that is valid UTF-8: lone surrogates become escapes."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return value


def number(value: float | int | None) -> float | int | str | None:
    """Returns a number that JSON and JavaScript can hold: NaN, infinities and integers above 2^53 as strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _MAX_EXACT_INTEGER:
        return str(value)
    return value


class DistinctKeys(Generic[Key]):
    """Distinct keys, each with its index in order of first occurrence, so that repeated ones are sent once."""

    def __init__(self) -> None:
        self._indices: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._indices)

    def index_of(self, key: Key) -> int:
        return self._indices.setdefault(key, len(self._indices))

    @property
    def keys(self) -> list[Key]:
        return list(self._indices)


def model_payload(
    hierarchy: Hierarchy,
    difference: HierarchyDiff | None = None,
    status: Sequence[str] | None = None,
    tensors: str | None = None,
) -> Payload:
    """The payload of one hierarchy; with a `difference` also of the model that it is compared with.

    `tensors` says in how many tensors the two differ, where these were compared. `status` has an entry per module; runs
    are folded only where it is the same.
    """
    if difference is not None:
        status = difference.left_status
    return MODEL.payload(
        {
            "title": text(hierarchy.root.class_name),
            **_structure(hierarchy),
            "columns": {
                "params": [number(v) for v in hierarchy.sizes.params],
                "own_params": [number(v) for v in hierarchy.sizes.direct_params],
                "bytes": [number(v) for v in hierarchy.sizes.bytes],
            },
            "column_info": COLUMN_INFO,
            "folds": [
                [run.members[0], len(run.members), run.kind, text(run.label)] for run in _folds(hierarchy, status)
            ],
            "links": [[link.parent, text(link.name), link.target, link.kind] for link in hierarchy.walk.links()],
            "tied": list(_tied(hierarchy)),
            "marks": _marks(hierarchy),
            # what a forward pass adds: see dataflow_payload.py
            "blocks": {},
            "edges": [],
            "traced": False,
            "error": None,
            "flow": None,
            "value_names": None,
            "axes": None,
            "file": None,
            "compare": None if difference is None else _comparison(difference, tensors),
        }
    )


def class_of(payload: Payload, node: int) -> str:
    """Returns the class name of a node."""
    return payload["classes"]["name"][payload["entities"]["class"][payload["nodes"]["entity"][node]]]


def label(payload: Payload, node: int, folds: dict[int, int]) -> str:
    """Returns slot name, class and fold count of a node: `1  Bottleneck ×35`."""
    count = f" ×{folds[node]}" if node in folds else ""
    return f"{payload['nodes']['name'][node][:60]}  {class_of(payload, node)}{count}"


def _structure(hierarchy: Hierarchy) -> Payload:
    walk = hierarchy.walk
    entities, classes = DistinctKeys[bytes](), DistinctKeys[tuple[type, str]]()
    fields: list[dict[str, int]] = []  # of each class: attribute -> column
    columns: Columns = {"class": [], "name": [], "digest": [], "hyper": [], "tensors": []}
    entity_of = []
    for index, digest in enumerate(hierarchy.identities.digests):
        known = len(entities)
        entity_of.append(entities.index_of(digest))
        if entity_of[-1] < known:
            continue
        module = walk.modules[index]
        shown_as = class_name(module)
        position = classes.index_of((nominal_class(module), shown_as))
        if position == len(fields):
            fields.append({})
        columns["class"].append(position)
        columns["name"].append(text(display_name(shown_as, digest.hex())))
        columns["digest"].append(digest.hex())
        columns["hyper"].append(_aligned(hyperparameters(module), fields[position]))
        columns["tensors"].append([_tensor(own) for own in direct_tensors(walk.states[index])])
    for position, row in zip(columns["class"], columns["hyper"], strict=True):
        row.extend([None] * (len(fields[position]) - len(row)))  # later instances may have brought more fields
    return {
        "nodes": {"name": [text(name) for name in walk.names], "parent": list(walk.parents), "entity": entity_of},
        "entities": columns,
        "classes": {
            "name": [text(name) for _, name in classes.keys],
            "qualified": [text(".".join(filter(None, class_names(cls)))) for cls, _ in classes.keys],
            "source": [_optional(source_location(cls)) for cls, _ in classes.keys],
            "fields": [[text(name) for name in columns] for columns in fields],
        },
    }


def _aligned(values: Mapping[str, str | float | int | None], columns: dict[str, int]) -> list[object]:
    row: list[object] = [None] * len(columns)
    for name, value in values.items():
        position = columns.setdefault(name, len(columns))
        row.extend([None] * (position + 1 - len(row)))
        # None stands for an attribute that this instance lacks, so its own None is text
        row[position] = "None" if value is None else text(value) if isinstance(value, str) else number(value)
    return row


def _tensor(own: DirectTensor) -> list[object]:
    shape = None if own.tensor is None or is_uninitialised(own.tensor) else list(shape_of(own.tensor))
    return [text(own.name), own.role, shape]


def _optional(value: str | None) -> str | None:
    return None if value is None else text(value)


def _folds(hierarchy: Hierarchy, status: Sequence[str] | None) -> Iterator[SiblingRun]:
    """Yields the runs to fold; in a comparison only members of one status, and never few different stages."""
    skeleton = class_tree_digests(hierarchy.walk)
    for parent in hierarchy.walk.children:
        for run in sibling_runs(hierarchy, parent, skeleton):
            if parent == 0 and run.kind == FAMILY and len(run.members) <= MAX_STAGES:
                continue
            for _, members in groupby(run.members, key=lambda m: "" if status is None else status[m]):
                part = list(members)
                if len(part) > 1:
                    yield SiblingRun(run.kind, part, run.label)


def _tied(hierarchy: Hierarchy) -> Iterable[list[object]]:
    for first, *others in hierarchy.tied:
        for other in others:
            yield [first.module, text(first.name), other.module, text(other.name)]


def _marks(hierarchy: Hierarchy) -> dict[str, list[str]]:
    marks: dict[str, list[str]] = {}
    for index in hierarchy.identities.opaque_indices:
        for attribute in hierarchy.identities.opaque_attributes(index):
            marks.setdefault(str(index), []).append(text(f"opaque: {attribute or 'TorchScript'}"))
    for index, name in hierarchy.identities.uninitialised:
        marks.setdefault(str(index), []).append(text(f"uninitialised: {name}"))
    return marks


def _comparison(difference: HierarchyDiff, tensors: str | None) -> Payload:
    pairs = [[p.left, p.right] for p in difference.pairs if p.left is not None and p.right is not None]
    return {
        "model": model_payload(difference.right, status=difference.right_status),
        "left": difference.left_status,
        "right": difference.right_status,
        "pairs": pairs,
        "tensors": tensors,
    }
