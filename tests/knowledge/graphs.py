"""Contents of knowledge graphs for tests: of live modules, of torchvision's models, or made up edge by edge."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from typing import Any

from torch import nn

from models.zoo import zoo_model
from modulekg_widgets.engine.knowledge.facts.contents import Contents
from modulekg_widgets.engine.knowledge.facts.records import ModelNode, ModelRecord, StructureNode, model_record

FEW = (
    "densenet121", "densenet161", "efficientnet_b0", "efficientnet_b1", "resnet18", "resnet34", "resnet50",
    "squeezenet1_1",
)  # fmt: skip


def contents_of(**models: nn.Module) -> Contents:
    """What a graph holds of live models, by their names."""
    return merged(model_record(model, name) for name, model in models.items())


def merged(records: Iterable[ModelRecord]) -> Contents:
    records = list(records)
    return Contents(
        modules={key: node for record in records for key, node in record.nodes.items()},
        models={record.model.name: record.model for record in records},
    )


@cache
def zoo_contents(names: Sequence[str] = FEW) -> Contents:
    return merged(model_record(zoo_model(name), name) for name in names)


def key(name: str) -> str:
    """The fingerprint that `made_up` gives to a structure of this name."""
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def made_up(
    slots: Mapping[str, Sequence[str | None]],
    models: Mapping[str, Mapping[str, int]] | None = None,
    classes: Mapping[str, str] | None = None,
    values: Mapping[str, dict[str, Any]] | None = None,
) -> Contents:
    """Structures by name with the names of what is in their slots, and models with the occurrences of each.

    A structure's class is its name unless `classes` says otherwise; a model's root is the first that occurs in it.
    """
    classes, values = classes or {}, values or {}
    nodes = [
        StructureNode(
            key(name), classes.get(name, name), f"made.up.{classes.get(name, name)}", ("torch.nn.Module",),
            values.get(name, {}), {}, tuple((str(i), child and key(child)) for i, child in enumerate(inside)), 0, 0,
        )
        for name, inside in slots.items()
    ]  # fmt: skip
    made = [
        ModelNode(name, key(next(iter(uses))), Counter({(key(part), "op"): count for part, count in uses.items()}))
        for name, uses in (models or {}).items()
    ]
    return Contents(modules={node.fingerprint: node for node in nodes}, models={model.name: model for model in made})


def class_name(contents: Contents, display: str) -> str:
    """The class of a structure with this display name."""
    found = {name: fingerprint for fingerprint, name in contents.names.items()}
    return contents.modules[found[display]].class_name
