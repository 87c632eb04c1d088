"""Evolutionary search for new models: depth, width, blocks and activations varied for an objective within a budget."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial

from torch import nn
from tqdm.auto import tqdm

from modulekg_widgets.engine.errors import PredictionError, UnknownNameError, closest_match_hint, printable
from modulekg_widgets.engine.knowledge.facts.contents import Contents
from modulekg_widgets.engine.knowledge.facts.records import ModelRecord, model_record
from modulekg_widgets.engine.knowledge.prediction.data.features import family_of, with_flops
from modulekg_widgets.engine.knowledge.prediction.data.observations import features_with_known_flops
from modulekg_widgets.engine.knowledge.prediction.data.published import IMAGENET
from modulekg_widgets.engine.knowledge.prediction.predictor import Predictor, fitted_predictor
from modulekg_widgets.engine.knowledge.suggestion.candidates import (
    Builder,
    ForwardPass,
    Ranking,
    Shape,
    build_model,
    count_text,
    first_working_call,
)
from modulekg_widgets.engine.knowledge.suggestion.costs import (
    CostFunction,
    cost_function,
    domination_counts,
    pareto_front,
)
from modulekg_widgets.engine.knowledge.suggestion.known_models import ModelSearch, Requirements
from modulekg_widgets.engine.knowledge.suggestion.mutations import (
    BlockSwap,
    DepthChange,
    DonorBlock,
    Mutation,
    WidthChange,
    block_swaps,
    depth_changes,
    donor_blocks,
    head_count_changes,
    kernel_changes,
    layer_swaps,
)
from modulekg_widgets.engine.knowledge.suggestion.resizing import resize_model, runs_forward
from modulekg_widgets.engine.knowledge.zoo.meta_weights import meta_weights
from modulekg_widgets.engine.knowledge.zoo.torchvision_models import torchvision_builders
from modulekg_widgets.engine.torch_runtime.rng import preserved_rng

Objective = str | Callable[[ModelRecord], float]
BUDGET_KEYS = ("max_params", "max_flops")
WIDTH_FACTORS = (0.5, 0.625, 0.75, 0.875, 1.25, 1.5)
MAX_BASES, MAX_FAMILY_BASES, BUDGET_SLACK = (
    6,
    2,
    4.0,
)  # known models to begin with, of one family, and how far beyond the budget
MAX_MUTATIONS = 6  # mutations of one recipe
MAX_TRIES = 4  # to find a mutation that runs, for one child


@dataclass(frozen=True, slots=True)
class Generated:
    """A new model: a known one, `base`, changed by `recipe`; it ran on tensors of shape `inputs`.

    `value` is the objective, of a predicted property in percent with its deviation; `flops` count a multiply-add as 2.
    """

    name: str
    base: str
    recipe: tuple[Mutation, ...]
    value: float
    std: float
    parameters: int
    flops: int
    fingerprint: str
    inputs: tuple[Shape, ...]
    builders: Mapping[str, Builder] = field(repr=False)
    cost: float | None = None  # what the value was set against

    def build(self) -> nn.Module:
        """A new module of this structure, with weights as each layer initialises them.

        Raises `PredictionError` if a builder makes something else than it did during the search.
        """
        model = self.builders[self.base]()
        for mutation in self.recipe:
            mutation.apply(model, self.builders)
        if model_record(model).model.root != self.fingerprint:
            raise PredictionError(
                f"the builder of {printable(self.base)!r} no longer makes the model that it made before"
            )
        return model

    def row(self) -> dict[str, object]:
        return {
            "name": self.name, "base": self.base, "recipe": " · ".join(map(str, self.recipe)), "value": self.value,
            "std": self.std, "parameters": self.parameters, "flops": self.flops,
            **({} if self.cost is None else {"cost": self.cost}),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Individual:
    base: str
    recipe: tuple[Mutation, ...]
    model: nn.Module = field(repr=False)  # without weights
    run: ForwardPass = field(repr=False)
    record: ModelRecord = field(repr=False)
    usual: float = 1.0  # the FLOPs that published ones are like, for one of its own
    value: float = math.nan
    std: float = 0.0
    cost: float = 0.0  # what the value is set against


def generate(
    contents: Contents,
    objective: Objective = "acc@1",
    budget: float | Mapping[str, float] | None = None,
    n: int = 5,
    seed: int = 0,
    dataset: str | None = None,
    models: Sequence[str] | None = None,
    builders: Mapping[str, Builder] | None = None,
    generations: int = 6,
    population: int = 12,
    predictor: Predictor | None = None,
    against: str | None = None,
    device: str | None = None,
    costs: Predictor | None = None,
) -> Ranking[Generated]:
    """Generates new models for a data set in the order of the objective.

    With `against`, as "params", "flops" or a target that `costs` predicts on a `device`, the result is the front of
    those that none is better than in both, the cheapest first.

    `objective` is a target to predict, of which the value less its deviation counts, or a function of a record with
    its FLOPs. `budget` is a number of parameters or a dict with `max_params` and `max_flops`. The search begins with
    the best known models near the budget, or those named by `models`; each candidate that it returns ran on meta
    tensors, keeps within the budget, gives what its base gives and is a structure that the graph does not have. Where
    there is none, or no known value tells of such models, `.reason` says why.
    Raises `UnknownNameError`, and `PredictionError` when no known model can be built or the objective gives no number.
    """
    limits = _limits(budget)
    target = objective if isinstance(objective, str) else "acc@1"
    known = predictor or fitted_predictor(contents, target)
    place = known.dataset(IMAGENET if dataset is None else dataset)
    required = Requirements(place, limits.get("max_params"), limits.get("max_flops"))
    with preserved_rng():
        search = ModelSearch(contents, known, required, {**torchvision_builders(), **(builders or {})})
        set_against = None if against is None else cost_function(against, costs, device)
        evolution = _Evolution(search, required, objective, random.Random(seed), set(contents.modules), set_against)
        evolution.add_bases(models)
        if unknown := evolution.unknown_reason():
            return Ranking([], f"Generated {required.title}", unknown)
        evolution.run(generations, population)
        return Ranking(evolution.best(n), f"Generated {required.title}", evolution.empty_reason())


class _Evolution:
    """Population of one search."""

    def __init__(
        self,
        search: ModelSearch,
        required: Requirements,
        objective: Objective,
        rng: random.Random,
        known: set[str],
        costs: CostFunction | None = None,
    ) -> None:
        self.search, self.required, self.objective, self.rng, self.costs = search, required, objective, rng, costs
        self.known = known  # the fingerprints of the graph
        self.seen: set[str] = set()
        self.alive: list[_Individual] = []
        self.every: list[_Individual] = []
        self.builders: dict[str, Builder] = {}
        self.donors: dict[str, Builder] = {}  # the same, without weights
        self.trainable: dict[str, bool] = {}  # whether it runs in training mode, which its children must then do, too
        self.library: list[DonorBlock] = []

    def add_bases(self, models: Sequence[str] | None) -> None:
        """Adds the known models that the search begins with."""
        families: dict[str, int] = {}
        found: list[_Individual] = []
        for record in self._bases(models):
            family = family_of(record)
            full = models is None and (len(found) >= MAX_BASES or families.get(family, 0) >= MAX_FAMILY_BASES)
            individual = None if full else self._base(record)
            if individual is not None:
                found.append(individual)
                families[family] = families.get(family, 0) + 1
        if not found:
            raise PredictionError(self.search.no_build_reason())
        self._admit(found)
        if not self.alive:
            names = ", ".join(printable(each.base) for each in found)
            raise PredictionError(f"the objective gives no number for {names}, which the search begins with")

    def unknown_reason(self) -> str:
        """Returns why no prediction exists for the first models; empty if one does."""
        if callable(self.objective):
            return ""
        records = [each.record for each in self.alive]
        reasons = self.search.predictor.mismatch_reasons(records, self.required.dataset.name)
        if len(reasons) < len({record.model.name for record in records}):
            return ""
        told = "; ".join(dict.fromkeys(reasons.values()))
        return f"{told}: add values with kg.add_results, or pass a function as the objective"

    def _bases(self, models: Sequence[str] | None) -> list[ModelRecord]:
        if models is not None:  # whoever names them knows what they are for
            every = self.search.records
            for name in models:
                if name not in every:
                    known = closest_match_hint(str(name), every)
                    raise UnknownNameError(f"no known model is called {printable(str(name))!r}: {known}")
            return [every[name] for name in dict.fromkeys(models)]
        records = {record.model.name: record for record, _ in self.search.ranked}
        wide = replace(
            self.required,
            max_params=None if self.required.max_params is None else BUDGET_SLACK * self.required.max_params,
            max_flops=None if self.required.max_flops is None else BUDGET_SLACK * self.required.max_flops,
        )
        near = self.search.allowed_by(wide)
        return near or sorted(records.values(), key=lambda record: record.model.parameters)[:MAX_BASES]

    def _base(self, record: ModelRecord) -> _Individual | None:
        ready, name = self.search.checked_build(record), record.model.name
        if ready is None:
            return None
        builder = partial(build_model, ready.builder, self.required.classes, ready.run.call)
        try:
            with meta_weights():
                model = builder()
        except Exception as error:  # noqa: BLE001 - a builder is the caller's code and may raise anything
            self.search.mark_unusable(name, f"could not be built for these classes ({type(error).__name__})")
            return None
        run = first_working_call(model, [ready.run.call])
        if run is None or "" not in run.output_shapes:
            self.search.mark_unusable(name, "do not run for these classes")
            return None
        self.builders[name], self.donors[name] = builder, partial(deepcopy, model)
        self.trainable[name] = runs_forward(model, run.call, training=True)
        self.library += donor_blocks(name, model, run)
        usual = (features_with_known_flops(record).flops or ready.run.flops_at_default_size) / max(ready.run.flops, 1)
        return _Individual(name, (), model, run, _record(model, name, run), usual)

    def run(self, generations: int, population: int) -> None:
        steps = tqdm(range(generations), "generating", unit="generation", delay=2, leave=False)
        for _ in steps:
            children = [child for _ in range(population) if (child := self._child()) is not None]
            self._admit(children)
            self.alive = _diverse(self._ranked(self.alive), population)

    def _child(self) -> _Individual | None:
        """Returns a mutated copy of the better of two individuals; None if no mutation runs."""
        parent = min(self.rng.choices(self.alive, k=2), key=self._rank)
        for _ in range(MAX_TRIES if len(parent.recipe) < MAX_MUTATIONS else 0):
            child = self._changed(parent)
            if child is not None and child.record.model.root not in self.seen:
                self.seen.add(child.record.model.root)
                return child
        return None

    def _changed(self, parent: _Individual) -> _Individual | None:
        model = deepcopy(parent.model)
        mutation = self._mutation(parent, model)
        if mutation is None:
            return None
        if not isinstance(mutation, WidthChange):  # which has been applied to find out what it is
            mutation.apply(model, self.donors)
        run = first_working_call(model, [parent.run.call])
        if run is None or run.output_shapes.get("") != parent.run.output_shapes[""]:
            return None
        checked = isinstance(mutation, DepthChange | BlockSwap) and self.trainable[parent.base]
        if checked and not runs_forward(model, parent.run.call, training=True):
            return None
        recipe, record = (*parent.recipe, mutation), _record(model, parent.base, run)
        return _Individual(parent.base, recipe, model, run, record, parent.usual)

    def _mutation(self, parent: _Individual, model: nn.Module) -> Mutation | None:
        kind = self.rng.choice(("depth", "width", "swap", "exchange", "kernel", "heads"))
        if kind == "width":
            factor = self.rng.choice(WIDTH_FACTORS)
            changes = resize_model(model, parent.run.call, factor)
            return None if not changes else WidthChange(factor, tuple(changes))
        options: Sequence[Mutation]
        if kind == "depth":
            options = depth_changes(model, parent.run)
        elif kind == "swap":
            options = block_swaps(parent.base, model, parent.run, self.library)
        elif kind == "kernel":
            options = kernel_changes(model)
        elif kind == "heads":
            options = head_count_changes(model)
        else:
            options = layer_swaps(model)
        return self.rng.choice(options) if options else None

    def _admit(self, individuals: list[_Individual]) -> None:
        """Evaluates individuals and adds them to the population."""
        self.seen.update(individual.record.model.root for individual in individuals)
        records = [with_flops(each.record, round(each.run.flops * each.usual), each.run.inputs) for each in individuals]
        costs = self.costs(records) if self.costs is not None else [0.0] * len(records)
        if callable(self.objective):
            values = [(float(self.objective(individual.record)), 0.0) for individual in individuals]
        else:
            predictions = self.search.predictor.predict(records, self.required.dataset.name, extrapolate=True)
            values = [prediction.numbers for prediction in predictions]
        admitted = [
            replace(individual, value=value, std=std, cost=cost)
            for individual, (value, std), cost in zip(individuals, values, costs, strict=True)
            if not math.isnan(value)
        ]
        self.alive += admitted
        self.every += admitted

    def _rank(self, individual: _Individual) -> tuple[float, float]:
        """Returns the sort key: models within the budget by value, then others by their excess."""
        model = individual.record.model
        limits = ((model.parameters, self.required.max_params), (model.flops or 0, self.required.max_flops))
        excess = max([size / max(limit, 1) for size, limit in limits if limit is not None], default=0.0)
        return (0.0, individual.std - individual.value) if excess <= 1 else (excess, individual.std - individual.value)

    def _ranked(self, individuals: Sequence[_Individual]) -> list[_Individual]:
        """Sorts by rank; with costs, by the number of dominating individuals first."""
        if self.costs is None:
            return sorted(individuals, key=self._rank)
        worse = dict(zip(map(id, individuals), domination_counts(_points(individuals)), strict=True))
        return sorted(individuals, key=lambda each: (self._rank(each)[0], worse[id(each)], self._rank(each)[1]))

    def best(self, n: int) -> list[Generated]:
        within = [each for each in sorted(self._new(), key=self._rank) if self._rank(each)[0] == 0]
        if self.costs is not None:
            chosen = pareto_front(within, _points(within), n)
        else:
            chosen = sorted(_diverse(within, n), key=self._rank)
        return [self._generated(each, index + 1) for index, each in enumerate(chosen)]

    def empty_reason(self) -> str:
        """Returns why no candidate is returned."""
        new = self._new()
        if not new and any(each.recipe for each in self.every):
            return f"the graph has all {sum(bool(each.recipe) for each in self.every)} structures that were found"
        if not new:
            names = ", ".join(map(printable, self.builders))
            return f"no change of {names} runs: pass other models= to begin with, or more generations="
        least = min(new, key=lambda each: self._rank(each)[0]).record.model
        limits = {
            "max_params": (self.required.max_params, least.parameters),
            "max_flops": (self.required.max_flops, least.flops),
        }
        beyond = [
            f"{name}={count_text(limit)} (the nearest has {count_text(size or 0)})"
            for name, (limit, size) in limits.items()
            if limit is not None and (size or 0) > limit
        ]
        if not beyond:
            return "n is 0"
        kept = " and ".join(beyond)
        return f"none of {len(new)} new structures is within {kept}: allow more, or begin with smaller models="

    def _new(self) -> list[_Individual]:
        return [each for each in self.every if each.recipe and each.record.model.root not in self.known]

    def _generated(self, individual: _Individual, number: int) -> Generated:
        model = individual.record.model
        return Generated(
            f"{individual.base}-{number}", individual.base, individual.recipe, individual.value, individual.std,
            model.parameters, model.flops or 0, model.root, individual.run.inputs, self.builders,
            None if self.costs is None else individual.cost,
        )  # fmt: skip


def _points(individuals: Sequence[_Individual]) -> list[tuple[float, float]]:
    """Values less their deviations, and costs."""
    return [(each.value - each.std, each.cost) for each in individuals]


def _diverse(ranked: list[_Individual], count: int) -> list[_Individual]:
    """Returns the best individuals, at most half of them from one base if there are others."""
    uses: Counter[str] = Counter()
    first: list[_Individual] = []
    rest: list[_Individual] = []
    for each in ranked:
        uses[each.base] += 1
        (first if uses[each.base] <= (count + 1) // 2 else rest).append(each)
    return [*first[:count], *rest[: max(0, count - len(first))]]


def _record(model: nn.Module, base: str, run: ForwardPass) -> ModelRecord:
    return with_flops(model_record(model, f"{base} (changed)"), run.flops, run.inputs)


def _limits(budget: float | Mapping[str, float] | None) -> dict[str, float]:
    if budget is None:
        return {}
    given: dict[str, float] = dict(budget) if isinstance(budget, Mapping) else {"max_params": budget}
    for name in given:
        if name not in BUDGET_KEYS:
            raise UnknownNameError(
                f"a budget has no {printable(str(name))!r}: {closest_match_hint(str(name), BUDGET_KEYS)}"
            )
    return given
