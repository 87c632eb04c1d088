"""Features of a model for predictors: counts of operations, structural labels, size and cost."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from modulekg_widgets.engine.errors import UnknownNameError, closest_match_hint, printable
from modulekg_widgets.engine.knowledge.facts.contents import Contents, count_uses
from modulekg_widgets.engine.knowledge.facts.records import ModelRecord, StructureNode

Array = NDArray[np.float64]
ROUNDS = 2  # of relabelling after Weisfeiler and Leman
CONTAINER = "container"
IMAGE_DIMS = 4  # sample, channel, height, width


@dataclass(frozen=True, slots=True)
class Features:
    """One model for the predictors; `flops` is None where the cost is not known."""

    name: str
    family: str
    parameters: int
    flops: int | None
    ops: Counter[str]  # class of a module without children -> how often
    label_rounds: tuple[Counter[str], ...]  # after each round of relabelling: label -> how often
    record: ModelRecord = field(repr=False)
    layers: int = 0  # linear layers and convolutions
    inputs: tuple[tuple[int, ...], ...] = ()  # the shapes of its inputs, where it was called
    weights: dict[str, float] = field(default_factory=dict, repr=False)  # of labels, each round of them of length 1

    @property
    def has_cost(self) -> bool:
        return self.flops is not None and bool(self.inputs)

    def with_cost(self, flops: int, inputs: tuple[tuple[int, ...], ...]) -> Features:
        return replace(self, flops=flops, inputs=inputs)

    def without_cost(self) -> Features:
        return replace(self, flops=None, inputs=())

    @property
    def input_elements(self) -> int | None:
        """Number of elements of its first input, of one sample; None if it was not called."""
        return math.prod(self.inputs[0][1:]) if self.inputs else None

    @property
    def image_side(self) -> float | None:
        """Side of its first input in pixels, if that is an image."""
        shape = self.inputs[0] if self.inputs else ()
        return math.sqrt(shape[-2] * shape[-1]) if len(shape) == IMAGE_DIMS else None


class LabelCache:
    """Cache of the structural labels of modules by round and fingerprint, shared by the records of one graph.

    Plain dicts of strings: with a tuple for each module the garbage collector would go through the whole graph.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, StructureNode] = {}
        self.rounds: tuple[dict[str, str], ...] = tuple({} for _ in range(ROUNDS + 1))
        self.leaves: set[str] = set()  # modules without children

    def add(self, record: ModelRecord, uses: Iterable[str]) -> None:
        """Adds the modules of a record: own labels, then labels combined with those of the children."""
        nodes = record.nodes
        unknown = [key for key in uses if self.nodes.get(key) is not nodes[key]]
        below = {key: child_keys(nodes[key]) for key in unknown}
        self.nodes.update({key: nodes[key] for key in unknown})
        self.rounds[0].update({key: operation_label(nodes[key]) for key in unknown})
        for before, found in pairwise(self.rounds):
            found.update(
                {key: _combined_label(before[key], {before[child] for child in below[key]}) for key in unknown}
            )
        self.leaves.difference_update(unknown)
        self.leaves.update(key for key in unknown if not below[key])


def features_of(
    record: ModelRecord, flops: int | None = None, family: str | None = None, labels: LabelCache | None = None
) -> Features:
    """The features of a record; `flops` where it does not know them.

    `labels` holds those of modules that other records of one graph share with it, and takes those of this one.
    """
    uses = count_uses([record.model])
    known_labels = LabelCache() if labels is None else labels
    known_labels.add(record, uses)
    ops: Counter[str] = Counter()
    for fingerprint, count in uses.items():
        if fingerprint in known_labels.leaves:
            ops[record.nodes[fingerprint].class_name] += count
    known = record.model.flops if record.model.flops is not None else flops
    size = record.model.parameters
    layers = sum(count for name, count in ops.items() if name.startswith(("Conv", "Linear")))
    rounds = _relabelled(uses, known_labels)
    return Features(
        record.model.name,
        family or family_of(record),
        size,
        known,
        ops,
        rounds,
        record,
        layers,
        tuple(record.model.inputs or ()),
        _weights(rounds),
    )


def find_record(contents: Contents, name: str) -> ModelRecord:
    """The record of a model of the graph; raises `UnknownNameError`."""
    if name not in contents.models:
        raise UnknownNameError(
            f"no model is called {printable(str(name))!r}: {closest_match_hint(str(name), contents.models)}"
        )
    model = contents.models[name]
    return ModelRecord(model, {key: contents.modules[key] for key, _ in model.occurrences})


def with_flops(record: ModelRecord, flops: int, inputs: tuple[tuple[int, ...], ...]) -> ModelRecord:
    """The record with what a forward pass on such inputs costs."""
    return replace(record, model=replace(record.model, flops=flops, inputs=inputs))


def family_of(record: ModelRecord) -> str:
    """Returns the family of a model: the last part of the module that defines the class of its root."""
    where, _, name = record.nodes[record.model.root].qualified_class.rpartition(".")
    shared = not where or where.startswith(("torch.nn.", "__main__")) or "<locals>" in where
    return f"{name} {record.model.name}" if shared else where.rpartition(".")[2]


def child_keys(node: StructureNode) -> list[str]:
    return [child for _, child in node.slots if child is not None]


def operation_label(node: StructureNode) -> str:
    """Returns the kind of an operation without its width: class, and kernel, stride and groups of a convolution."""
    if child_keys(node) and (not node.qualified_class.startswith("torch.nn.") or ".container." in node.qualified_class):
        return CONTAINER
    known, weight = node.hyperparameters, node.tensors.get("weight")
    if "kernel_size" not in known or "groups" not in known or weight is None:
        return node.class_name
    groups, inputs = known["groups"], known.get("in_channels")
    kind = "full" if groups == 1 else ("depthwise" if groups == inputs else "grouped")
    kernel = "x".join(str(size) for size in weight[2:])
    return f"{node.class_name}/{kernel}/s{_first_number(known.get('stride'))}/{kind}"


def _first_number(value: object) -> str:
    found = re.search(r"\d+", str(value))
    return found.group() if found else ""


def _relabelled(uses: Counter[str], known: LabelCache) -> tuple[Counter[str], ...]:
    """Returns label counts after each round of Weisfeiler-Leman relabelling."""
    first, *others = known.rounds
    found = [_counts(first, uses)]
    seen = Counter(found[0])
    containers = Counter({key: count for key, count in uses.items() if key not in known.leaves})
    for labels in others:
        seen += _counts(labels, containers)
        found.append(Counter(seen))
    return tuple(found)


def _counts(labels: dict[str, str], uses: Counter[str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for fingerprint, count in uses.items():
        counts[labels[fingerprint]] += count
    return counts


def _weights(rounds: tuple[Counter[str], ...]) -> dict[str, float]:
    """log(1 + count) of the labels, of unit length for each round, of which the number stands before a label."""
    found: dict[str, float] = {}
    for each, counts in enumerate(rounds):
        logs = np.log1p(np.fromiter(counts.values(), float, len(counts)))
        length = float(np.sqrt(logs @ logs)) or 1.0
        found.update(zip([f"{each} {key}" for key in counts], (logs / length).tolist(), strict=True))
    return found


def _combined_label(own: str, below: set[str]) -> str:
    if not below:
        return own
    return hashlib.blake2b("\n".join([own, *sorted(below)]).encode("utf-8", "replace"), digest_size=8).hexdigest()


# ------------------------------------------------------------------- numbers


def log_counts(counts: Sequence[Counter[str]]) -> Array:
    """A row of log(1 + count) for each model over all labels, shape (models, labels)."""
    column = {key: index for index, key in enumerate(sorted({key for each in counts for key in each}))}
    rows = np.zeros((len(counts), max(len(column), 1)))
    for row, each in zip(rows, counts, strict=True):
        for key, count in each.items():
            row[column[key]] = np.log1p(count)
    return rows


def log_sizes(features: Sequence[Features], with_flops: bool = True) -> Array:
    """Log10 of the parameters and, where known of all, of the FLOPs, from 10^7 and 10^9; shape (models, 1 or 2)."""
    columns = [[np.log10(max(each.parameters, 1)) - 7 for each in features]]
    if with_flops:
        columns.append([np.log10(max(each.flops or 1, 1)) - 9 for each in features])
    return np.array(columns).T
