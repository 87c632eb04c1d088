"""Known values of a target: results of jobs and of torchvision, grouped by condition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from modulekg_widgets.engine.errors import UnknownNameError, a_type, closest_match_hint, printable
from modulekg_widgets.engine.knowledge.facts.contents import Contents, DataSetNode, JobNode
from modulekg_widgets.engine.knowledge.facts.records import ModelRecord
from modulekg_widgets.engine.knowledge.facts.results import RESULTS, common_unit, normalized_result, results_of
from modulekg_widgets.engine.knowledge.facts.units import canonical_target, is_share
from modulekg_widgets.engine.knowledge.prediction.data.datasets import (
    CLEAR_DIFFERENCE,
    UNKNOWN_MODALITY,
    accepts,
    are_compatible,
    dataset_similarity,
    is_imagenet,
    is_modality_undecided,
    modality,
    modality_of,
    task_of,
)
from modulekg_widgets.engine.knowledge.prediction.data.design import Sample
from modulekg_widgets.engine.knowledge.prediction.data.features import Features, LabelCache, features_of, find_record
from modulekg_widgets.engine.knowledge.prediction.data.published import (
    IMAGENET,
    PUBLISHED_TARGETS,
    published_models,
    published_records,
)

MAX_IMAGE_SIZE = 100_000  # pixels
DEVICE, IMAGE_SIZE, TAG = "device", "image_size", "tag"
PUBLISHED_WORDS = frozenset({"tv", "in1k"})  # the words by which timm knows how torchvision trains


class Condition(NamedTuple):
    """Data set and device of a measurement; None if unknown."""

    dataset: str | None
    device: str | None = None

    def __str__(self) -> str:
        return ", ".join(printable(part) for part in self if part is not None) or "no data set"


class FeatureCache:
    """Cache of the features of the models of one graph."""

    def __init__(self) -> None:
        self._labels = LabelCache()
        self._found: dict[int, Features] = {}  # by the identity of a model's node

    def features_of(self, record: ModelRecord) -> Features:
        known = self._found.get(id(record.model))
        if known is None or known.record.model is not record.model:
            known = self._found[id(record.model)] = features_with_known_flops(record, self._labels)
        return known


@dataclass(frozen=True, slots=True)
class Observations:
    """Known values of one target in one unit, by condition."""

    target: str
    unit: str | None
    by_condition: dict[Condition, list[tuple[Sample, float]]] = field(repr=False)
    features: FeatureCache = field(default_factory=FeatureCache, repr=False)
    devices: frozenset[str] = frozenset()  # that the jobs name


def observations(contents: Contents, target: str, known: FeatureCache | None = None) -> Observations:
    """Returns all values of a target; raises `UnknownNameError` if there are none.

    It may be called by any of its names. Values count in one unit, fractions as percents; of units that cannot be made
    one the commonest is taken. What torchvision publishes of a model counts where no job of the graph is of that model
    on ImageNet-1K. `known` are the features of models that other targets have asked for.
    """
    if not isinstance(target, str):
        raise UnknownNameError(f"a target is named by a text, got {a_type(target)}")
    target = canonical_target(target)
    found: list[tuple[JobNode, float, str | None]] = []
    for job in contents.jobs.values():
        result = results_of(job).get(target) if job.model in contents.models else None
        own = None if result is None else normalized_result(target, result)
        if own is not None:
            found.append((job, own.value, own.unit))
    unit = common_unit(target, (unit for *_, unit in found))
    places: dict[Condition, list[tuple[Sample, float]]] = {}
    known = FeatureCache() if known is None else known
    features: dict[str, Features] = {}
    for job, value, own in found:
        if own != unit or job.model is None:
            continue
        if job.model not in features:
            features[job.model] = known.features_of(find_record(contents, job.model))
        sample = Sample(features[job.model], training_words(job.properties), training_image_size(job.properties))
        places.setdefault(_condition(job, target), []).append((sample, value))
    if target in PUBLISHED_TARGETS:
        _add_published(places, contents, target, known)
    if not places:
        every = sorted({each for job in contents.jobs.values() for each in results_of(job)} | set(PUBLISHED_TARGETS))
        raise UnknownNameError(
            f"no values are known of {printable(str(target))!r}: {closest_match_hint(str(target), every)}; "
            "kg.add_results brings some"
        )
    devices = frozenset(device for job, *_ in found if (device := _device(job)) is not None)
    return Observations(target, unit, places, known, devices)


def _condition(job: JobNode, target: str) -> Condition:
    """Returns the condition of a job; shares do not depend on the device."""
    dataset = IMAGENET if job.dataset is not None and is_imagenet(job.dataset) else job.dataset
    return Condition(dataset, None if is_share(target) else _device(job))


def _device(job: JobNode) -> str | None:
    device = job.properties.get(DEVICE)
    return device if isinstance(device, str) else None


def _add_published(
    places: dict[Condition, list[tuple[Sample, float]]], contents: Contents, target: str, known: FeatureCache
) -> None:
    own = places.setdefault(Condition(IMAGENET), [])
    measured = {sample.features.name for sample, _ in own}
    names = [name for name, each in published_models().items() if target in each.values and name not in measured]
    records = published_records(names, {name: find_record(contents, name) for name in names if name in contents.models})
    own += [
        (Sample(known.features_of(records[name]), PUBLISHED_WORDS), published_models()[name].values[target])
        for name in names
    ]


def features_with_known_flops(record: ModelRecord, labels: LabelCache | None = None) -> Features:
    """Returns the features of a record, with the published cost of a published model that was not called.

    `labels`: those that are known of its modules.
    """
    features = features_of(record, labels=labels)
    known = published_models().get(record.model.name)
    if features.flops is None and known is not None and known.matches(features.family, features.parameters):
        return features.with_cost(known.flops, known.inputs)
    return features


def training_words(training: Mapping[str, object]) -> frozenset[str]:
    """Returns the words that describe a training: those of its tag, and other properties with their names."""
    words: set[str] = set()
    for key, value in training.items():
        if key == TAG and isinstance(value, str):
            words |= set(value.replace(".", "_").split("_"))
        elif key not in (RESULTS, DEVICE, IMAGE_SIZE) and isinstance(value, str | bool):
            words.add(f"{key} {value}")
    return frozenset(words - {""})


def training_image_size(training: Mapping[str, object]) -> float | None:
    value = training.get(IMAGE_SIZE)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_IMAGE_SIZE:
        return None
    return float(value)


# -------------------- Relations between conditions: the same modality, the most similar data set, reasons of mismatch


@dataclass(frozen=True)
class KnownConditions:
    """The conditions with known values, and the modalities and tasks of their data sets."""

    known: Mapping[Condition, Sequence[tuple[Sample, float]]]
    datasets: Mapping[str, DataSetNode]
    _kinds: dict[Condition, frozenset[str]] = field(default_factory=dict, repr=False)
    _others: dict[tuple[Condition, str | None], str] = field(default_factory=dict, repr=False)

    def modalities(self, place: Condition) -> frozenset[str]:
        """Returns the possible modalities of a data set: as stated, else those of the models measured on it."""
        where = Condition(place.dataset) if place.dataset is not None else place
        if where not in self._kinds:
            stated = self._stated(place)
            tried = {modality(sample.features) or UNKNOWN_MODALITY for sample in self._samples_on(where)}
            self._kinds[where] = frozenset(tried if stated is None else [stated])
        return self._kinds[where]

    def _samples_on(self, where: Condition) -> Iterator[Sample]:
        """Yields the samples measured on a data set, on any device."""
        for place, pairs in self.known.items():
            if place == where or place.dataset == where.dataset is not None:
                yield from (sample for sample, _ in pairs)

    def may_accept(self, place: Condition, features: Features) -> bool:
        """True if a model may take the data of a condition."""
        kinds, taken = self.modalities(place), modality(features)
        return not kinds or is_modality_undecided(features, kinds) or any(accepts(taken, kind) for kind in kinds)

    def same_modality(self, place: Condition, taken: str | None = None) -> list[Condition]:
        """Returns the conditions of a possibly equal modality; all if there are none."""
        kinds = self.modalities(place) or {taken}
        return [
            other
            for other in self.known
            if any(are_compatible(kind, held) for kind in kinds for held in self.modalities(other) or {None})
        ] or list(self.known)

    def most_similar(self, place: Condition, others: Sequence[Condition]) -> Condition:
        """Returns the condition with most models, unless the data set of another is clearly more similar."""
        alike = {other: self._similarity(place, other) for other in others}
        nearly = [other for other in others if alike[other] >= max(alike.values()) - CLEAR_DIFFERENCE]
        return max(nearly, key=lambda other: (self._models(other), other.dataset == IMAGENET, alike[other]))

    def mismatch_reason(self, place: Condition, features: Features) -> str:
        """Returns why a model or the known values do not fit a data set; empty if they may."""
        held, taken = self._stated(place), modality(features)
        if not accepts(taken, held):
            return f"{printable(str(place.dataset))} holds {held}, the model takes {taken}"
        if (place, taken) not in self._others:
            self._others[place, taken] = self._task_mismatch(place, taken)
        return self._others[place, taken]

    def _task_mismatch(self, place: Condition, taken: str | None) -> str:
        task = None if place in self.known else self._task(place)
        others = {each for other in self.same_modality(place, taken) if (each := self._task(other)) is not None}
        if task is None or not others or task in others:
            return ""
        known = " and ".join(sorted(others))
        return f"{printable(str(place.dataset))} is for {printable(task)}, and values are known of {printable(known)}"

    def _stated(self, place: Condition) -> str | None:
        node = self.datasets.get(place.dataset or "")
        return None if node is None else modality_of(node)

    def _task(self, place: Condition) -> str | None:
        node = self.datasets.get(place.dataset or "")
        return None if node is None else task_of(node)

    def _models(self, place: Condition) -> int:
        return len({sample.features.record.model.root for sample, _ in self.known[place]})

    def _similarity(self, one: Condition, other: Condition) -> float:
        nodes = [self.datasets.get(place.dataset or "") for place in (one, other)]
        return dataset_similarity(nodes[0], nodes[1]) if nodes[0] is not None and nodes[1] is not None else 0.0
