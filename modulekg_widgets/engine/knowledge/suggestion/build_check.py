"""Check that a builder builds the recorded model and that the model runs, and the task of a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from modulekg_widgets.engine.identity.hierarchy import hierarchy
from modulekg_widgets.engine.knowledge.exchange.property_graph import gc_paused
from modulekg_widgets.engine.knowledge.facts.records import ModelRecord, hexdigests
from modulekg_widgets.engine.knowledge.prediction.data.datasets import CLASSIFICATION, PICTURES, modality, task_in_text
from modulekg_widgets.engine.knowledge.prediction.data.features import features_of
from modulekg_widgets.engine.knowledge.suggestion.candidates import (
    Builder,
    ForwardPass,
    builder_calls,
    first_working_call,
    image_calls,
    meta_call,
    occurrences_in_levels,
    row_calls,
)
from modulekg_widgets.engine.knowledge.zoo.meta_weights import meta_weights
from modulekg_widgets.engine.torch_runtime.rng import preserved_rng

CLASSIFIER_PACKAGES = (
    ("torchvision", "models"),
    ("timm", "models"),
)  # where what names no other task is for classification


@dataclass(frozen=True, slots=True)
class CheckedBuild:
    """A checked builder with its model on the meta device and a forward of it."""

    builder: Builder
    model: nn.Module  # without weights
    run: ForwardPass


@gc_paused()  # what a trace leaves goes at once after it: kept for longer, it brings a search of the whole graph
def check_build(
    builder: Builder | None, record: ModelRecord, size: tuple[int, int] | None, scheme: str
) -> CheckedBuild | str:
    """Builds and runs a model on the meta device; returns the result, or the reason why it is unusable."""
    if builder is None:
        return "have no builder"
    try:
        with preserved_rng(), meta_weights():
            model = builder()
        if hexdigests(hierarchy(model), scheme)[0] != record.model.root:
            return "are built as something else than the graph knows by their names"
    except Exception as error:  # noqa: BLE001 - a builder is the caller's code and may raise anything
        return f"could not be built ({type(error).__name__})"
    kind = modality(features_of(record))
    pictures = image_calls(record, size) if kind in (None, PICTURES) else []
    seen = [meta_call(record.model.inputs)] if record.model.inputs else []
    rows = row_calls(record) if kind is None else []
    # a picture goes through a linear layer, too, where its side is what that takes
    asked = 1 if kind == PICTURES or size is not None else 0
    run = first_working_call(
        model, [*pictures[:asked], *builder_calls(builder, model), *seen, *rows, *pictures[asked:]]
    )
    return CheckedBuild(builder, model, run) if run is not None else "do not run on inputs of usual sizes"


def task_of_model(record: ModelRecord) -> str | None:
    """Returns the task of a model by its class or defining module; None if unknown."""
    *where, name = record.nodes[record.model.root].qualified_class.split(".")
    named = task_in_text(name) or task_in_text(" ".join(where[2:]))
    return named or (CLASSIFICATION if tuple(where[:2]) in CLASSIFIER_PACKAGES else None)


def largest_blocks(record: ModelRecord) -> Iterator[str]:
    """Yields the blocks of a model with several operations, those with most parameters first."""
    shares = {
        key: record.model.occurrences[key, level] * record.nodes[key].parameters
        for key, level in occurrences_in_levels(record, ("block",))
    }
    for fingerprint in sorted(shares, key=lambda key: -shares[key]):
        node = record.nodes[fingerprint]
        if len(node.slots) > 1 and node.parameters and not node.qualified_class.startswith("torch.nn."):
            yield fingerprint
