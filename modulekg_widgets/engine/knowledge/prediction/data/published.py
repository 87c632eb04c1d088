"""Accuracies, sizes and costs of models that torchvision publishes.

It is shipped as a table, as importing torchvision takes a second; a test compares it with the metadata of the weights.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from tqdm.auto import tqdm

from modulekg_widgets.engine.errors import UnknownNameError, closest_match_hint, printable
from modulekg_widgets.engine.knowledge.facts.records import ModelRecord, model_record
from modulekg_widgets.engine.knowledge.prediction.data.features import family_of
from modulekg_widgets.engine.knowledge.zoo.meta_weights import meta_weights
from modulekg_widgets.engine.knowledge.zoo.torchvision_models import (
    image_sizes,
    torchvision_builders,
    torchvision_weights,
)
from modulekg_widgets.engine.torch_runtime.rng import preserved_rng

IMAGENET = "ImageNet-1K"
PUBLISHED_TARGETS = ("acc@1", "acc@5")


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """Published values of one model: `values` in percent, `flops` with a multiply-add as 2."""

    name: str
    family: str  # models that are defined together
    parameters: int
    flops: int
    inputs: tuple[tuple[int, ...], ...]
    values: dict[str, float]

    def matches(self, family: str, parameters: int) -> bool:
        """True if a user's model of that name may be the published one; auxiliary heads are not counted."""
        return family == self.family and 1 <= parameters / self.parameters < 2


@cache
def published_models() -> dict[str, PublishedModel]:
    """The float models with original weights (IMAGENET1K_V1) and known accuracies on ImageNet-1K, by name."""
    lines = files(__package__ or "").joinpath("torchvision_figures.csv").read_text("utf-8").splitlines()
    return {row["name"]: _from_row(row) for row in csv.DictReader(lines)}


def _from_row(row: dict[str, str]) -> PublishedModel:
    side = int(row["side"])
    values = {target: float(row[target]) for target in PUBLISHED_TARGETS}
    return PublishedModel(
        row["name"], row["family"], int(row["parameters"]), int(row["flops"]), ((1, 3, side, side),), values
    )


def published_by_torchvision() -> dict[str, PublishedModel]:
    """Returns the same from the installed torchvision."""
    found: dict[str, PublishedModel] = {}
    sides = image_sizes()
    for name, (module, meta) in torchvision_weights().items():
        values = meta.get("_metrics", {}).get(IMAGENET, {})
        known = {
            target: float(values[target]) for target in PUBLISHED_TARGETS if math.isfinite(values.get(target, math.nan))
        }
        if known and "backend" not in meta:
            flops = round(2e9 * meta["_ops"])
            inputs = ((1, 3, sides[name], sides[name]),)
            found[name] = PublishedModel(name, module.rpartition(".")[2], int(meta["num_params"]), flops, inputs, known)
    return found


def published_records(
    names: Iterable[str] | None = None, records: dict[str, ModelRecord] | None = None
) -> dict[str, ModelRecord]:
    """Returns records of published models: given ones of the published size, else built without weights.

    Raises `UnknownNameError` for a name of which nothing is published.
    """
    every = published_models()
    given = records or {}
    wanted = list(every if names is None else names)
    for name in wanted:
        if name not in every:
            raise UnknownNameError(
                f"nothing is published of {printable(str(name))!r}: {closest_match_hint(str(name), every)}"
            )
    found: dict[str, ModelRecord] = {}
    for name in tqdm(wanted, "building models", unit="model", delay=2, leave=False):
        record = given.get(name)
        same = record is not None and every[name].matches(family_of(record), record.model.parameters)
        found[name] = record if record is not None and same else _built(name)
    return found


@cache
def _built(name: str) -> ModelRecord:
    with preserved_rng(), meta_weights():
        return model_record(torchvision_builders()[name](), name)
