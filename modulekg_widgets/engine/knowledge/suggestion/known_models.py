"""Which known models and blocks suit a data set: by runs on data sets like it, predicted accuracy and a budget."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import nn
from tqdm.auto import tqdm

from modulekg_widgets.engine.errors import UnknownNameError, nearest, shown
from modulekg_widgets.engine.knowledge.contents import Contents, DataSetNode, JobNode
from modulekg_widgets.engine.knowledge.prediction.datasets import is_imagenet, likeness, whole_number
from modulekg_widgets.engine.knowledge.prediction.features import Features, features_of, record_in, with_flops
from modulekg_widgets.engine.knowledge.prediction.modality import PICTURES, modality, modality_of
from modulekg_widgets.engine.knowledge.prediction.predictor import Prediction, Predictor, fitted_predictor
from modulekg_widgets.engine.knowledge.prediction.published import IMAGENET, published, published_records
from modulekg_widgets.engine.knowledge.records import ModelRecord, model_record
from modulekg_widgets.engine.knowledge.suggestion.candidates import (
    Builder,
    Candidate,
    ForwardPass,
    Ranking,
    call_with,
    calls_of,
    image_calls,
    in_units,
    occurring,
    places_in,
    run_of,
)
from modulekg_widgets.engine.knowledge.zoo.meta_weights import meta_weights
from modulekg_widgets.engine.knowledge.zoo.torchvision_models import torchvision_builders
from modulekg_widgets.engine.torch_runtime.rng import process_rng_kept

KINDS = ("model", "block")
TASKS = ("detection", "segmentation", "video", "optical_flow")  # of torchvision, beside classification
ALIKE = 0.5  # likeness from which the runs on a data set are worth naming


@dataclass(frozen=True, slots=True)
class Requirements:
    """What the suggested models are for, and the budget that they must keep to."""

    dataset: DataSetNode
    max_params: float | None
    max_flops: float | None

    def allows(self, parameters: int, flops: int | None) -> bool:
        """Whether the budget does; an unknown cost is allowed until it is known."""
        within = self.max_params is None or parameters <= self.max_params
        return within and (self.max_flops is None or flops is None or flops <= self.max_flops)

    @property
    def classes(self) -> int | None:
        return whole_number(self.dataset, "classes")

    @property
    def side(self) -> int | None:
        """The size of its images, where costs are not those of ImageNet-1K."""
        return None if is_imagenet(self.dataset.name) else whole_number(self.dataset, "image_size")

    @property
    def title(self) -> str:
        limits = [
            f"at most {in_units(limit)} {unit}"
            for limit, unit in ((self.max_params, "parameters"), (self.max_flops, "FLOPs"))
            if limit is not None
        ]
        return ", ".join([f"for {shown(self.dataset.name)}", *limits])


def suggest(
    contents: Contents,
    dataset: str | None = None,
    max_params: float | None = None,
    max_flops: float | None = None,
    n: int = 10,
    kinds: Sequence[str] = KINDS,
    target: str = "acc@1",
    builders: Mapping[str, Builder] | None = None,
    predictor: Predictor | None = None,
) -> Ranking[Candidate]:
    """The `n` known models and blocks that promise most on a data set of the graph, by default ImageNet-1K.

    Known are the models of the graph and torchvision's published ones; they stand in the order of predicted value less
    its deviation. A third are blocks, more where models are few: one of each class and model, from models within the
    budget where there are some; the value of a block is that of its model. What can be built was built and run on meta
    tensors; models of the graph that nobody can build stand last. `builders` builds models by name, before
    torchvision's; `predictor` saves fitting one.
    Raises `UnknownNameError` for an unknown data set, kind or target.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise UnknownNameError(f"there is no kind {shown(str(kind))!r}: {nearest(str(kind), KINDS)}")
    known = predictor or fitted_predictor(contents, target)
    place = known.dataset(IMAGENET if dataset is None else dataset)
    required = Requirements(place, max_params, max_flops)
    search = KnownModels(contents, known, required, {**torchvision_builders(), **(builders or {})})
    models = search.models(n - n // 3 if "block" in kinds else n) if "model" in kinds else []
    blocks = search.blocks(n - len(models)) if "block" in kinds else []
    if "model" in kinds and len(models) + len(blocks) < n:
        models = search.models(n - len(blocks))
    rows = sorted([*models, *blocks], key=lambda row: (not row.buildable, math.isnan(row.value), row.std - row.value))
    return Ranking(rows[:n], f"Suggestions {required.title}")


Ranked = tuple[ModelRecord, Prediction]


class KnownModels:
    """One search: the known models, told of as far as they are asked for."""

    def __init__(
        self, contents: Contents, predictor: Predictor, required: Requirements, builders: Mapping[str, Builder]
    ) -> None:
        self.contents, self.predictor, self.required, self.builders = contents, predictor, required, builders
        mine = {name: record_in(contents, name) for name, model in contents.models.items() if not model.cyclic}
        self._records = {**published_records(records=mine), **mine}
        self._told: dict[str, Prediction] = {}
        self._ready: dict[str, Ready | str] = {}

    @cached_property
    def ranked(self) -> list[Ranked]:
        """Those that fit the task with their predictions, the best first."""
        return self._ranked(self._records.values())

    def _ranked(self, records: Iterable[ModelRecord]) -> list[Ranked]:
        dataset = self.required.dataset
        fitting = [record for record in records if task_fits(record, self.predictor.features(record), dataset)]
        unknown = [record for record in fitting if record.model.name not in self._told]
        self._told |= {prediction.model: prediction for prediction in self._predictions(unknown)}
        return sorted([(record, self._told[record.model.name]) for record in fitting], key=lambda pair: _order(*pair))

    def _predictions(self, records: Sequence[ModelRecord]) -> list[Prediction]:
        """Of models of another kind than those of which values are known there is no value."""
        name = self.required.dataset.name
        told = self.predictor.of_known_kind(records, name)
        asked = self.predictor.predict(
            [record for record in records if record.model.name in told], name, extrapolate=True
        )
        found = {prediction.model: prediction for prediction in asked}
        return [found.get(record.model.name) or _unknown(record, self.predictor.target, name) for record in records]

    def models(self, count: int) -> list[Candidate]:
        """The best within the budget; behind those that were built the ones that nobody can build."""
        found: list[Candidate] = []
        bar = tqdm(self._ranked(self._of_budget(buildable=True)), "trying models", unit="model", delay=2, leave=False)
        for record, prediction in bar:
            if len(found) == count:
                bar.total = bar.n  # a notebook shows a bar that ends early in red, as after an error
                break
            ready = self.ready(record)
            candidate = None if ready is None else self._built_model(record, prediction, ready)
            if candidate is not None:
                found.append(candidate)
        return found if len(found) == count else [*found, *self._unbuilt()][:count]

    def _built_model(self, record: ModelRecord, prediction: Prediction, ready: Ready) -> Candidate | None:
        flops = self.predictor.features(record).flops
        if flops is None:
            (prediction,) = self._predictions([with_flops(record, ready.run.usual_flops, ready.run.inputs)])
        flops = ready.run.flops if flops is None or self.required.side else flops
        within = self.required.allows(record.model.parameters, flops)
        return self._model(record, prediction, flops, ready) if within else None

    def _unbuilt(self) -> list[Candidate]:
        """Those within the budget that cannot be built, of which nobody asks where enough can."""
        found: list[Candidate] = []
        for record, prediction in self._ranked(self._of_budget(buildable=False)):
            flops = self.predictor.features(record).flops
            if self.required.allows(record.model.parameters, flops) and self.ready(record) is None:
                found.append(self._model(record, prediction, flops, None))
        return found

    def _of_budget(self, buildable: bool, within: bool = True) -> list[ModelRecord]:
        """The known models that the budget allows, or does not; with `buildable` those that have a builder."""
        every = [record for name, record in self._records.items() if not buildable or name in self.builders]
        return [record for record in every if self._fits(record) == within]

    def ready(self, record: ModelRecord) -> Ready | None:
        """How to build the model, if that was seen to give this very structure and to run."""
        name = record.model.name
        if name not in self._ready:
            self._ready[name] = tried(self.builders.get(name), record, self.required, self.contents.scheme)
        found = self._ready[name]
        return None if isinstance(found, str) else found

    def why_none_is_built(self) -> str:
        """Why there is no model to begin with."""
        if not self.ranked:
            kind = modality_of(self.required.dataset)
            return f"no known model is for {shown(self.required.dataset.name)}" + (
                f", which holds {kind}" if kind else ""
            )
        reasons = Counter(each for each in self._ready.values() if isinstance(each, str))
        told = "; ".join(f"{count} {reason}" for reason, count in reasons.most_common(4))
        return (
            f"no known model can be built and run: of {len(self._ready)} that were tried {told or 'none fits'}; "
            "builders={name: function} builds others"
        )

    def is_of_no_use(self, name: str, reason: str) -> None:
        """What was found out of a model since."""
        self._ready[name] = reason

    def _model(self, record: ModelRecord, prediction: Prediction, flops: int | None, ready: Ready | None) -> Candidate:
        name = record.model.name
        return Candidate(
            name, "model", *prediction.numbers, record.model.parameters, flops,
            self._why(name, prediction), inputs=ready.run.inputs if ready else (), classes=self.required.classes,
            builder=ready.builder if ready else None,
        )  # fmt: skip

    def _why(self, name: str, prediction: Prediction) -> str:
        jobs = self._jobs
        runs = [
            f"Job reached {100 * job.accuracy:.1f} % on {dataset.name}"
            for job, dataset in jobs
            if job.model == name and job.accuracy is not None
        ]
        known = published().get(name)
        if known is not None and is_imagenet(self.required.dataset.name) and self.predictor.target in known.values:
            runs.append(f"published with {known.values[self.predictor.target]:.1f} %")
        if not jobs and not is_imagenet(self.required.dataset.name):
            runs.append("no Job on data like it")
        if math.isnan(prediction.numbers[0]):
            runs.append(prediction.reason)
        others = [other for other in prediction.nearest if other != name]
        alike = ("far from all known models" if prediction.far else "like " + ", ".join(others[:2])) if others else ""
        return "; ".join([*runs[:2], *([alike] if alike else [])])

    @cached_property
    def _jobs(self) -> list[tuple[JobNode, DataSetNode]]:
        """The Jobs on data sets like this one, those on the most like first, then the most accurate."""
        known = self.predictor.datasets
        close = {name: likeness(self.required.dataset, other) for name, other in known.items()}
        found = [job for job in self.contents.jobs.values()
                 if job.accuracy is not None and close.get(job.dataset or "", 0.0) >= ALIKE]  # fmt: skip
        found.sort(key=lambda job: (-close[job.dataset or ""], -(job.accuracy or 0.0)))
        return [(job, known[job.dataset or ""]) for job in found]

    def blocks(self, count: int) -> list[Candidate]:
        """The best blocks within the budget, one of each class and one of each model."""
        found: dict[str, Candidate] = {}
        for within in (True, False):
            # what is beyond the budget is told of only where that is needed
            for record, prediction in self._ranked(self._of_budget(True, within)) if len(found) < count else ():
                if len(found) == count:
                    break
                self._add_block(found, record, prediction)
        return list(found.values())

    def _add_block(self, found: dict[str, Candidate], record: ModelRecord, prediction: Prediction) -> None:
        """The largest block of a model within the budget whose class is not among those found."""
        for block in _blocks(record):
            kind, ready = record.nodes[block].qualified_class, None
            if kind not in found and self.required.allows(record.nodes[block].parameters, None):
                ready = self.ready(record)
            candidate = self._block(record, block, prediction, ready) if ready is not None else None
            if candidate is not None:
                found[kind] = candidate
                break

    def within(self, required: Requirements) -> list[ModelRecord]:
        """The known models that another budget allows, the best first."""
        allowed = [(record, self.predictor.features(record).flops) for record, _ in self.ranked]
        return [record for record, flops in allowed if required.allows(record.model.parameters, flops)]

    def _fits(self, record: ModelRecord) -> bool:
        """Whether the budget allows the model; its cost, which takes a look at it all, counts where one is set."""
        costs = self.required.max_flops is not None and self.required.side is None
        return self.required.allows(record.model.parameters, self.predictor.features(record).flops if costs else None)

    def _block(self, record: ModelRecord, block: str, prediction: Prediction, ready: Ready) -> Candidate | None:
        path, node = places_in(record)[block], record.nodes[block]
        shapes = ready.run.places.get(path)
        run = run_of(ready.model.get_submodule(path), [call_with(shapes)]) if shapes else None
        if shapes is None or run is None or not self.required.allows(node.parameters, run.flops):
            return None
        uses = sum(count for (key, _), count in record.model.occurrences.items() if key == block)
        why = f"{uses} × in {record.model.name}, whose value this is"
        return Candidate(
            f"{node.class_name} of {record.model.name}", "block", *prediction.numbers, node.parameters,
            run.flops, why, path, record.model.name, shapes, None, ready.builder,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ready:
    """A builder that was tried, with what its model was seen to do on meta tensors."""

    builder: Builder
    model: nn.Module  # without weights
    run: ForwardPass


def task_fits(record: ModelRecord, features: Features, dataset: DataSetNode) -> bool:
    """Whether the model is for the task of the data set and takes what it holds, as far as anybody knows."""
    held, taken = modality_of(dataset), modality(features)
    return _task(record) in (None, _task_of(dataset)) and (None in (held, taken) or held == taken)


def tried(builder: Builder | None, record: ModelRecord, required: Requirements, scheme: str) -> Ready | str:
    """What a builder makes of a model, or why it is of no use."""
    if builder is None:
        return "have no builder"
    try:
        with process_rng_kept(), meta_weights():
            model = builder()
        if model_record(model, scheme=scheme).model.root != record.model.root:
            return "are built as something else than the graph knows by their names"
    except Exception as error:  # noqa: BLE001 - a builder is the caller's code and may raise anything
        return f"could not be built ({type(error).__name__})"
    pictures = image_calls(record, required.side) if modality(features_of(record)) in (None, PICTURES) else []
    run = run_of(model, [*pictures[:1], *calls_of(builder, model), *pictures[1:]])
    return "do not run on inputs of usual sizes" if run is None else Ready(builder, model, run)


def _order(record: ModelRecord, prediction: Prediction) -> tuple[bool, float]:
    """The best first; without values the largest."""
    value, deviation = prediction.numbers
    return (True, -record.model.parameters) if math.isnan(value) else (False, deviation - value)


def _unknown(record: ModelRecord, target: str, dataset: str) -> Prediction:
    kind = modality(features_of(record))
    return Prediction(
        math.nan, math.nan, math.nan, math.nan, target, dataset, record.model.name, "nothing", 0, (), True,
        reason=f"no value is known of models for {kind or 'such inputs'}",
    )  # fmt: skip


def _blocks(record: ModelRecord) -> Iterator[str]:
    """The blocks of a model that have more than one operation, those with most of its parameters first."""
    shares = {
        key: record.model.occurrences[key, level] * record.nodes[key].parameters
        for key, level in occurring(record, ("block",))
    }
    for fingerprint in sorted(shares, key=lambda key: -shares[key]):
        node = record.nodes[fingerprint]
        if len(node.slots) > 1 and node.parameters and not node.qualified_class.startswith("torch.nn."):
            yield fingerprint


def _task(record: ModelRecord) -> str | None:
    """The task of torchvision's models, by the module that defines them; None for others, whose task nobody knows."""
    parts = record.nodes[record.model.root].qualified_class.split(".")
    if parts[:2] != ["torchvision", "models"]:
        return None
    return parts[2] if parts[2] in TASKS else "classification"


def _task_of(dataset: DataSetNode) -> str:
    """The one of these tasks that the user's word for it names, else classification."""
    stated = str(dataset.properties.get("task", "")).casefold().replace(" ", "_")
    return next((task for task in TASKS if task in stated), "classification")
