"""What is known of a target: the results of jobs, and what torchvision publishes, by where they were measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from modulekg_widgets.engine.errors import UnknownNameError, nearest, shown
from modulekg_widgets.engine.knowledge.contents import Contents, JobNode
from modulekg_widgets.engine.knowledge.prediction.datasets import is_imagenet
from modulekg_widgets.engine.knowledge.prediction.design import Sample
from modulekg_widgets.engine.knowledge.prediction.features import Features, KnownLabels, features_of, record_in
from modulekg_widgets.engine.knowledge.prediction.published import IMAGENET, TARGETS, published, published_records
from modulekg_widgets.engine.knowledge.records import ModelRecord
from modulekg_widgets.engine.knowledge.results import RESULTS, comparable, counted_unit, results_of
from modulekg_widgets.engine.knowledge.units import is_share, target_named

LARGEST = 100_000  # pixels
DEVICE, IMAGE_SIZE, TAG = "device", "image_size", "tag"
OF_PUBLISHED = frozenset({"tv", "in1k"})  # the words by which timm knows how torchvision trains


class Site(NamedTuple):
    """Where values were measured; None where nobody said."""

    dataset: str | None
    device: str | None = None

    def __str__(self) -> str:
        return ", ".join(shown(part) for part in self if part is not None) or "no data set"


class KnownFeatures:
    """The features of the models of one graph, computed once, of whatever target values are asked for."""

    def __init__(self) -> None:
        self._labels = KnownLabels()
        self._found: dict[int, Features] = {}  # by the identity of a model's node

    def of(self, record: ModelRecord) -> Features:
        known = self._found.get(id(record.model))
        if known is None or known.record.model is not record.model:
            known = self._found[id(record.model)] = with_known_flops(record, self._labels)
        return known


@dataclass(frozen=True, slots=True)
class Observed:
    """What is known of one target, in one unit."""

    target: str
    unit: str | None
    places: dict[Site, list[tuple[Sample, float]]] = field(repr=False)
    features: KnownFeatures = field(default_factory=KnownFeatures, repr=False)
    devices: frozenset[str] = frozenset()  # that the jobs name


def observations(contents: Contents, target: str, known: KnownFeatures | None = None) -> Observed:
    """All values of a target; raises `UnknownNameError` where there is none.

    It may be called by any of its names. Values count in one unit, fractions as percents; of units that cannot be made
    one the commonest is taken. What torchvision publishes of a model counts where no job of the graph is of that model
    on ImageNet-1K. `known` are the features of models that other targets have asked for.
    """
    if not isinstance(target, str):
        raise UnknownNameError(f"a target is named by a text, got a {shown(type(target).__name__)}")
    target = target_named(target)
    found: list[tuple[JobNode, float, str | None]] = []
    for job in contents.jobs.values():
        result = results_of(job).get(target) if job.model in contents.models else None
        own = None if result is None else comparable(target, result)
        if own is not None:
            found.append((job, own.value, own.unit))
    unit = counted_unit(target, (unit for *_, unit in found))
    places: dict[Site, list[tuple[Sample, float]]] = {}
    known = KnownFeatures() if known is None else known
    features: dict[str, Features] = {}
    for job, value, own in found:
        if own != unit or job.model is None:
            continue
        if job.model not in features:
            features[job.model] = known.of(record_in(contents, job.model))
        sample = Sample(features[job.model], words_of(job.properties), image_size_of(job.properties))
        places.setdefault(_place(job, target), []).append((sample, value))
    if target in TARGETS:
        _add_published(places, contents, target, known)
    if not places:
        every = sorted({each for job in contents.jobs.values() for each in results_of(job)} | set(TARGETS))
        raise UnknownNameError(
            f"no values are known of {shown(str(target))!r}: {nearest(str(target), every)}; kg.add_results brings some"
        )
    devices = frozenset(device for job, *_ in found if (device := _device(job)) is not None)
    return Observed(target, unit, places, known, devices)


def _place(job: JobNode, target: str) -> Site:
    """Where a job was measured; how much of the answers is right is so on any device."""
    dataset = IMAGENET if job.dataset is not None and is_imagenet(job.dataset) else job.dataset
    return Site(dataset, None if is_share(target) else _device(job))


def _device(job: JobNode) -> str | None:
    device = job.properties.get(DEVICE)
    return device if isinstance(device, str) else None


def _add_published(
    places: dict[Site, list[tuple[Sample, float]]], contents: Contents, target: str, known: KnownFeatures
) -> None:
    own = places.setdefault(Site(IMAGENET), [])
    measured = {sample.features.name for sample, _ in own}
    names = [name for name, each in published().items() if target in each.values and name not in measured]
    records = published_records(names, {name: record_in(contents, name) for name in names if name in contents.models})
    own += [(Sample(known.of(records[name]), OF_PUBLISHED), published()[name].values[target]) for name in names]


def with_known_flops(record: ModelRecord, labels: KnownLabels | None = None) -> Features:
    """The features of a record, with the published cost where it is a published model that was not called.

    `labels`: those that are known of its modules.
    """
    features = features_of(record, labels=labels)
    known = published().get(record.model.name)
    if features.flops is None and known is not None and known.describes(features.family, features.parameters):
        return features.with_cost(known.flops, known.inputs)
    return features


def words_of(training: Mapping[str, Any]) -> frozenset[str]:
    """The words that tell how a model was trained: those of its tag, and other properties with their names."""
    words: set[str] = set()
    for key, value in training.items():
        if key == TAG and isinstance(value, str):
            words |= set(value.replace(".", "_").split("_"))
        elif key not in (RESULTS, DEVICE, IMAGE_SIZE) and isinstance(value, str | bool):
            words.add(f"{key} {value}")
    return frozenset(words - {""})


def image_size_of(training: Mapping[str, Any]) -> float | None:
    value = training.get(IMAGE_SIZE)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LARGEST:
        return None
    return float(value)
