"""Suggestion of known models and blocks for a data set, by predicted accuracy within a budget.

`suggest` serves `KnowledgeGraph.suggest`. Known are the models of the graph and those that torchvision publishes. A
`ModelSearch` keeps those whose task and modality fit, sorts them by predicted value less its deviation, and tries
them in that order: a model must be built by a builder, have the recorded structure, run on meta tensors, and fit the
budget. Models without a builder follow at the end. Blocks are taken from models within the budget where there are
some.

Predictions, builds and latencies are computed only as far as candidates are needed. Where nothing is left, the
ranking says why.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from tqdm.auto import tqdm

from modulekg_widgets.engine.errors import UnknownNameError, closest_match_hint, printable
from modulekg_widgets.engine.knowledge.facts.contents import Contents, DataSetNode, JobNode
from modulekg_widgets.engine.knowledge.facts.records import ModelRecord
from modulekg_widgets.engine.knowledge.prediction.data.datasets import (
    CLASSIFICATION,
    dataset_similarity,
    is_imagenet,
    modality,
    task_of,
)
from modulekg_widgets.engine.knowledge.prediction.data.features import Features, find_record, with_flops
from modulekg_widgets.engine.knowledge.prediction.data.published import IMAGENET, published_models, published_records
from modulekg_widgets.engine.knowledge.prediction.predictor import Prediction, Predictor, fitted_predictor
from modulekg_widgets.engine.knowledge.suggestion.build_check import (
    CheckedBuild,
    check_build,
    largest_blocks,
    task_of_model,
)
from modulekg_widgets.engine.knowledge.suggestion.candidates import (
    Builder,
    Candidate,
    Ranking,
    Requirements,
    count_text,
    first_paths,
    first_working_call,
    meta_call,
)
from modulekg_widgets.engine.knowledge.suggestion.costs import CostEstimator, LatencyPredictor
from modulekg_widgets.engine.knowledge.zoo.torchvision_models import torchvision_builders

KINDS = ("model", "block")
MIN_SIMILARITY = 0.5  # likeness from which the runs on a data set are worth naming


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
    max_latency: float | None = None,
    device: str | None = None,
    latencies: Predictor | None = None,
) -> Ranking[Candidate]:
    """Returns the `n` known models and blocks with the best prediction on a data set, by default ImageNet-1K.

    Known are the models of the graph and torchvision's published ones; they stand in the order of predicted value less
    its deviation. A third are blocks, more where models are few: one of each class and model, from models within the
    budget where there are some; the value of a block is that of its model. What can be built was built and run on meta
    tensors; models of the graph that nobody can build stand last. `builders` builds models by name, before
    torchvision's; `predictor` saves fitting one, and `latencies` one of latencies.

    With `max_latency` (ms, on a `device` of which latencies are known) those are left out that are told to take longer,
    or of which that cannot be told, which `.reason` counts; blocks are among these.
    Where there is none, `.reason` says why. Raises `UnknownNameError` for an unknown data set, kind, target or device,
    and `PredictionError` for a limit that is no number above zero.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise UnknownNameError(f"there is no kind {printable(str(kind))!r}: {closest_match_hint(str(kind), KINDS)}")
    known = predictor or fitted_predictor(contents, target)
    place = known.dataset(IMAGENET if dataset is None else dataset)
    required = Requirements(place, max_params, max_flops, max_latency)
    timed = None
    if max_latency is not None or device is not None:
        timed = LatencyPredictor(latencies or fitted_predictor(contents, "latency"), device)
    kinds = [kind for kind in kinds if kind != "block" or max_latency is None]
    search = ModelSearch(contents, known, required, {**torchvision_builders(), **(builders or {})}, timed)
    models = search.models(n - n // 3 if "block" in kinds else n) if "model" in kinds else []
    blocks = search.blocks(n - len(models)) if "block" in kinds else []
    if "model" in kinds and len(models) + len(blocks) < n:
        models = search.models(n - len(blocks))
    rows = sorted([*models, *blocks], key=lambda row: (not row.buildable, math.isnan(row.value), row.std - row.value))
    title = f"Suggestions {required.title}" + (f" on {printable(timed.device)}" if timed and timed.device else "")
    return Ranking(rows[:n], title, "" if rows[:n] else search.empty_reason(n, kinds), search.latency_note)


RankedModel = tuple[ModelRecord, Prediction]


class ModelSearch:
    """One search over the known models; predictions are made as they are needed."""

    def __init__(
        self,
        contents: Contents,
        predictor: Predictor,
        required: Requirements,
        builders: Mapping[str, Builder],
        latencies: LatencyPredictor | None = None,
    ) -> None:
        self.contents, self.predictor, self.required, self.builders = contents, predictor, required, builders
        self.latencies = latencies
        self._without_latency: set[str] = set()  # the models of which no latency can be told
        self.costs = CostEstimator(predictor, required)
        mine = {name: find_record(contents, name) for name, model in contents.models.items() if not model.cyclic}
        self.records = {**published_records(records=mine), **mine}
        self._predictions_by_name: dict[str, Prediction] = {}
        self._checked_builds: dict[str, CheckedBuild | str] = {}

    @cached_property
    def ranked(self) -> list[RankedModel]:
        """The models that fit the task with their predictions, best first."""
        return self._ranked(self.records.values())

    def _ranked(self, records: Iterable[ModelRecord]) -> list[RankedModel]:
        fitting = self._within_latency(self._suitable(records))
        unknown = [record for record in fitting if record.model.name not in self._predictions_by_name]
        self._predictions_by_name |= {prediction.model: prediction for prediction in self._predictions(unknown)}
        return sorted(
            [(record, self._predictions_by_name[record.model.name]) for record in fitting],
            key=lambda pair: _rank_key(*pair),
        )

    def _suitable(self, records: Iterable[ModelRecord]) -> list[ModelRecord]:
        """Returns the models that fit the task and modality of the data set, as far as these are known."""
        return [
            record
            for record in records
            if task_of_model(record) in self._tasks and self._is_for_data(self.predictor.features(record))
        ]

    def _is_for_data(self, features: Features) -> bool:
        return self.predictor.is_suitable(self.required.dataset.name, features)

    @cached_property
    def _tasks(self) -> set[str | None]:
        """The task of the data set, and those of models that were tried on one of the same task.

        A model whose task nobody knows can be given another head, so it may be for classification.
        """
        task = task_of(self.required.dataset) or CLASSIFICATION
        alike = {name for name, each in self.contents.datasets.items() if (task_of(each) or CLASSIFICATION) == task}
        alike.add(self.required.dataset.name)
        tried_on = {job.model for job in self.contents.jobs.values() if job.dataset in alike}
        used = {task_of_model(self.records[name]) for name in tried_on if name in self.records}
        return {task, *used, *([None] if task == CLASSIFICATION else [])}

    def _within_latency(self, records: list[ModelRecord]) -> list[ModelRecord]:
        """Returns the models within the latency limit, and records those without a prediction of it."""
        if self.latencies is None or self.required.max_latency is None:
            return records
        told = self.latencies.predict(records)
        self._without_latency |= {record.model.name for record, each in zip(records, told, strict=True) if each is None}
        most = self.required.max_latency
        return [record for record, each in zip(records, told, strict=True) if each and each.value <= most]

    @property
    def latency_note(self) -> str:
        """Note on the number of models without a predicted latency; empty if there are none."""
        count = len(self._without_latency)
        return f"{count} left out, whose latency is unknown" if count else ""

    def _predictions(self, records: Sequence[ModelRecord]) -> list[Prediction]:
        """Returns predictions; models of another modality or task get none."""
        name = self.required.dataset.name
        another = self.predictor.mismatch_reasons(records, name)
        asked = self.predictor.predict(
            [record for record in records if record.model.name not in another], name, extrapolate=True
        )
        found = {prediction.model: prediction for prediction in asked}
        unknown = {each: _no_prediction(each, self.predictor.target, name, reason) for each, reason in another.items()}
        return [found.get(record.model.name) or unknown[record.model.name] for record in records]

    def models(self, count: int) -> list[Candidate]:
        """Returns the best models within the budget; behind those that were built the ones without a builder."""
        found: list[Candidate] = []
        bar = tqdm(self._ranked(self._by_budget(buildable=True)), "trying models", unit="model", delay=2, leave=False)
        for record, prediction in bar:
            if len(found) == count:
                bar.total = bar.n  # a notebook shows a bar that ends early in red, as after an error
                break
            ready = self.checked_build(record) if self.costs.may_fit(record) else None
            candidate = None if ready is None else self._built_model(record, prediction, ready)
            if candidate is not None:
                found.append(candidate)
        return found if len(found) == count else [*found, *self._unbuilt()][:count]

    def _built_model(self, record: ModelRecord, prediction: Prediction, ready: CheckedBuild) -> Candidate | None:
        flops = self.predictor.features(record).flops
        if flops is None:
            known = with_flops(record, ready.run.flops_at_default_size, ready.run.inputs)
            (prediction,) = self._predictions([known])
        flops = ready.run.flops if flops is None or self.required.size else flops
        within = self.required.allows(record.model.parameters, flops)
        return self._model(record, prediction, flops, ready) if within else None

    def _unbuilt(self) -> list[Candidate]:
        """Returns models within the budget that cannot be built."""
        found: list[Candidate] = []
        for record, prediction in self._ranked(self._by_budget(buildable=False)):
            flops = self.predictor.features(record).flops
            if self.required.allows(record.model.parameters, flops) and self.checked_build(record) is None:
                found.append(self._model(record, prediction, flops, None))
        return found

    def _by_budget(self, buildable: bool, within: bool = True) -> list[ModelRecord]:
        """Returns the known models that the budget allows, or those that it does not."""
        every = [record for name, record in self.records.items() if not buildable or name in self.builders]
        return [record for record in every if self._fits(record) == within]

    def checked_build(self, record: ModelRecord) -> CheckedBuild | None:
        """Returns the checked build of a model; None if it fails."""
        name = record.model.name
        if name not in self._checked_builds:
            found = check_build(self.builders.get(name), record, self.required.size, self.contents.scheme)
            if isinstance(found, CheckedBuild):
                features = self.predictor.features(record).with_cost(found.run.flops, found.run.inputs)
                found = found if self._is_for_data(features) else f"take {modality(features)}"
            self._checked_builds[name] = found
            self.costs.record_run(record, self._checked_builds[name])
        found = self._checked_builds[name]
        return None if isinstance(found, str) else found

    def empty_reason(self, count: int, kinds: Sequence[str]) -> str:
        """Returns why there is nothing to suggest."""
        fitting = self._suitable(self.records.values())
        if count < 1 or not kinds:
            return "n is 0" if count < 1 else "the latency of blocks is unknown"
        if not fitting:
            return self._task_reason()
        beyond = [
            f"{name}={limit if name == 'max_latency' else count_text(limit)} (the smallest has {least})"
            for name, limit in self.required.limits.items()
            if (least := self._least(name, fitting)) is not None
        ]
        if not beyond and not self.required.limits:
            return self.no_build_reason()
        kept = " and ".join(beyond) or " and ".join(self.required.limits)
        reason = f"none of {len(fitting)} known models is within {kept}"
        return "; ".join(filter(None, [reason, self.latency_note]))

    def _least(self, name: str, records: Sequence[ModelRecord]) -> str | None:
        """Returns the smallest size of the models, if that exceeds the limit."""
        if name == "max_latency":
            told = [] if self.latencies is None else self.latencies.predict(records)
            sizes = [each.value for each in told if each is not None]
        elif name == "max_params":
            sizes = [float(record.model.parameters) for record in records]
        else:
            sizes = [each for record in records if (each := self.costs.estimate(record)) is not None]
        least, limit = min(sizes, default=math.inf), self.required.limits[name]
        if not limit < least < math.inf:
            return None
        return f"{least:.3g} ms" if name == "max_latency" else count_text(least)

    def _task_reason(self) -> str:
        dataset = self.required.dataset
        kind = " and ".join(sorted(self.predictor.modalities(dataset.name)))
        task = task_of(dataset)
        said = [f"which holds {kind}"] if kind else []
        said += [f"which is for {printable(task)}"] if task else []
        return f"no known model is for {printable(dataset.name)}" + (f", {' and '.join(said)}" if said else "")

    def no_build_reason(self) -> str:
        """Returns why there is no model to begin with."""
        if not self._suitable(self.records.values()):
            return self._task_reason()
        reasons = Counter(each for each in self._checked_builds.values() if isinstance(each, str))
        told = "; ".join(f"{count} {reason}" for reason, count in reasons.most_common(4))
        return (
            f"no known model can be built and run: of {len(self._checked_builds)} that were tried "
            f"{told or 'none fits'}; "
            "builders={name: function} builds others"
        )

    def mark_unusable(self, name: str, reason: str) -> None:
        """Marks a model as unusable."""
        self._checked_builds[name] = reason

    def _model(
        self, record: ModelRecord, prediction: Prediction, flops: int | None, ready: CheckedBuild | None
    ) -> Candidate:
        name = record.model.name
        latency = None if self.latencies is None else self.latencies.predict([record])[0]
        return Candidate(
            name,
            "model",
            *prediction.numbers,
            record.model.parameters,
            flops,
            self._explanation(name, prediction),
            inputs=ready.run.inputs if ready else (),
            classes=self.required.classes,
            builder=ready.builder if ready else None,
            latency=latency and latency.value,
            latency_std=latency and latency.std,
        )

    def _explanation(self, name: str, prediction: Prediction) -> str:
        jobs = self._jobs
        runs = [
            f"Job reached {100 * job.accuracy:.1f} % on {dataset.name}"
            for job, dataset in jobs
            if job.model == name and job.accuracy is not None
        ]
        known = published_models().get(name)
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
        """Jobs on similar data sets, most similar first, then most accurate."""
        known = self.predictor.datasets
        close = {name: dataset_similarity(self.required.dataset, other) for name, other in known.items()}
        found = [job for job in self.contents.jobs.values()
                 if job.accuracy is not None and close.get(job.dataset or "", 0.0) >= MIN_SIMILARITY]  # fmt: skip
        found.sort(key=lambda job: (-close[job.dataset or ""], -(job.accuracy or 0.0)))
        return [(job, known[job.dataset or ""]) for job in found]

    def blocks(self, count: int) -> list[Candidate]:
        """The best blocks within the budget, one of each class and one of each model."""
        found: dict[str, Candidate] = {}
        for within in (True, False):
            # what is beyond the budget is told of only where that is needed
            for record, prediction in self._ranked(self._by_budget(True, within)) if len(found) < count else ():
                if len(found) == count:
                    break
                self._add_block(found, record, prediction)
        return list(found.values())

    def _add_block(self, found: dict[str, Candidate], record: ModelRecord, prediction: Prediction) -> None:
        """Adds the largest block of a model within the budget, of a class not found yet."""
        for block in largest_blocks(record):
            kind, ready = record.nodes[block].qualified_class, None
            if kind not in found and self.required.allows(record.nodes[block].parameters, None):
                ready = self.checked_build(record)
            candidate = self._block(record, block, prediction, ready) if ready is not None else None
            if candidate is not None:
                found[kind] = candidate
                break

    def allowed_by(self, required: Requirements) -> list[ModelRecord]:
        """Returns the known models that another budget allows, best first."""
        allowed = [(record, self.costs.estimate(record)) for record, _ in self.ranked]
        return [record for record, flops in allowed if required.allows(record.model.parameters, flops)]

    def _fits(self, record: ModelRecord) -> bool:
        """True if the budget may allow the model, as far as that is known before it is built."""
        return self.required.allows(record.model.parameters, None) and self.costs.may_fit(record)

    def _block(self, record: ModelRecord, block: str, prediction: Prediction, ready: CheckedBuild) -> Candidate | None:
        path, node = first_paths(record)[block], record.nodes[block]
        shapes = ready.run.input_shapes.get(path)
        run = first_working_call(ready.model.get_submodule(path), [meta_call(shapes)]) if shapes else None
        if shapes is None or run is None or not self.required.allows(node.parameters, run.flops):
            return None
        uses = sum(count for (key, _), count in record.model.occurrences.items() if key == block)
        why = f"{uses} × in {record.model.name}, whose value this is"
        return Candidate(
            f"{node.class_name} of {record.model.name}", "block", *prediction.numbers, node.parameters,
            run.flops, why, path, record.model.name, shapes, None, ready.builder,
        )  # fmt: skip


def _rank_key(record: ModelRecord, prediction: Prediction) -> tuple[bool, float]:
    """Returns the sort key: best first; without values the largest."""
    value, deviation = prediction.numbers
    return (True, -record.model.parameters) if math.isnan(value) else (False, deviation - value)


def _no_prediction(model: str, target: str, dataset: str, reason: str) -> Prediction:
    return Prediction(
        math.nan, math.nan, math.nan, math.nan, target, dataset, model, "nothing", 0, (), True, reason=reason
    )  # fmt: skip
