"""Payload of a KnowledgeExplorer: models, structures, jobs and analyses as one object of columns."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from modulekg_widgets.engine.errors import MissingPackageError
from modulekg_widgets.engine.identity.levels import LEVELS
from modulekg_widgets.engine.knowledge.analysis.centrality import importance
from modulekg_widgets.engine.knowledge.analysis.communities import communities
from modulekg_widgets.engine.knowledge.analysis.module_types import is_a
from modulekg_widgets.engine.knowledge.analysis.rank_frequency import RankFrequency, rank_frequency
from modulekg_widgets.engine.knowledge.analysis.similarity import SimilarityIndex, Superfamilies
from modulekg_widgets.engine.knowledge.facts.contents import Contents, DataSetNode, JobNode, UserNode
from modulekg_widgets.engine.knowledge.facts.records import StructureNode
from modulekg_widgets.engine.knowledge.facts.results import RESULTS, normalized_result, results_of
from modulekg_widgets.engine.knowledge.facts.units import is_cost, safe_repr
from modulekg_widgets.engine.knowledge.prediction.data.observations import DEVICE, IMAGE_SIZE
from modulekg_widgets.engine.views.payload import DistinctKeys, number, text
from modulekg_widgets.engine.views.schema import KNOWLEDGE, Columns, Parts, Payload

if TYPE_CHECKING:
    import pandas as pd


# -------------------- Results of models for the explorer: one column per target, data set and device


_MAX_TEXT = 120  # characters of what is said of a training
ColumnKey: TypeAlias = tuple[str, str | None, str | None, str | None]  # target, unit, data set and device


def result_columns(contents: Contents) -> list[Payload]:
    """Returns one entry per target, unit, data set and device, those with most models first.

    Fractions are percents there, and latencies ms. The values of one are parallel lists: place of the model, value,
    image size or None, and place of the job.
    """
    places = {name: place for place, name in enumerate(contents.models)}
    found: dict[ColumnKey, Payload] = {}
    for job_place, job in enumerate(contents.jobs.values()):
        if job.model not in places:
            continue
        for target, result in results_of(job).items():
            own = normalized_result(target, result)
            if own is None:
                continue
            key = (target, own.unit, job.dataset, _device(job))
            column = found.setdefault(key, _column(*key))
            column["model"].append(places[job.model])
            column["value"].append(number(float(f"{own.value:.6g}")))
            column["size"].append(_image_size(job))
            column["job"].append(job_place)
    return sorted(found.values(), key=lambda column: -len(set(column["model"])))


def training_text(job: JobNode) -> str:
    """Returns one line on the training of a job: its plain properties without results and device."""
    parts = [_property_text(name, value) for name, value in job.properties.items() if name not in (RESULTS, DEVICE)]
    line = ", ".join(part for part in parts if part)
    return text(line if len(line) <= _MAX_TEXT else line[: _MAX_TEXT - 1] + "…")


def _property_text(name: str, value: object) -> str:
    if name == "tag" and isinstance(value, str):
        return value
    if isinstance(value, str):
        return f"{name} {value}"
    return f"{name} {safe_repr(value)}" if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _column(target: str, unit: str | None, dataset: str | None, device: str | None) -> Payload:
    named: Mapping[str, str | None] = {"unit": unit, "dataset": dataset, "device": device}
    return {
        "target": text(target),
        **{name: None if value is None else text(value) for name, value in named.items()},
        "cost": is_cost(target),
        **{name: [] for name in ("model", "value", "size", "job")},
    }


def _device(job: JobNode) -> str | None:
    device = job.properties.get(DEVICE)
    return device if isinstance(device, str) else None


def _image_size(job: JobNode) -> float | int | None:
    size = job.properties.get(IMAGE_SIZE)
    return size if isinstance(size, int | float) and not isinstance(size, bool) and 0 < size < 1e9 else None


# -------------------- Analyses of a knowledge graph for the explorer, by fingerprint, cached per contents


MEASURES = ("pagerank", "in_degree", "closeness")
DISTRIBUTIONS = ("power law", "log-normal")  # drawn over the ranks
MAX_SIMILAR = 8  # models beside one
TYPE_LEVELS = (1, 2)  # of types


@dataclass(frozen=True)
class TypeLevel:
    """Module types of one level, by fingerprint; `differs` names the attributes that differ within the type."""

    level: int
    type_of: dict[str, str]
    differs: dict[str, str]


@dataclass(frozen=True)
class RankFit:
    """Fit of a power law to the use counts; without the package `powerlaw` only a reason."""

    verdict: str
    alpha: float | None = None
    xmin: float | None = None
    comparisons: list[tuple[str, float, float]] = field(default_factory=list)  # law, likelihood ratio, p
    lines: dict[str, list[tuple[float, float]]] = field(default_factory=dict)  # law -> (count, expected rank)


@dataclass(frozen=True)
class Findings:
    """Results of all analyses that the explorer shows."""

    communities: dict[str, int]
    community_names: list[str]  # by number
    modularity: float
    importance: dict[str, dict[str, float]]
    types: list[TypeLevel]
    nearest: dict[str, list[tuple[str, float]]]  # model -> those most like it, and how much
    fit: RankFit


_cache: dict[int, tuple[weakref.ref[Contents], Findings]] = {}


def analyse_contents(contents: Contents, check_cancelled: Callable[[], None] = lambda: None) -> Findings:
    """Returns the results of all analyses, cached while `contents` lives; `check_cancelled` runs before each.

    `check_cancelled` is called before each step, and ends all by raising.
    """
    known = _cache.get(id(contents))
    if known is not None and known[0]() is contents:
        return known[1]
    found = _analyse(contents, check_cancelled)
    key = id(contents)
    _cache[key] = weakref.ref(contents, lambda _: _cache.pop(key, None)), found
    return found


def _analyse(contents: Contents, check_cancelled: Callable[[], None]) -> Findings:
    keys = {name: key for key, name in contents.names.items()}
    steps: dict[str, Callable[[], Any]] = {
        "parts": lambda: communities(contents),
        **{name: lambda name=name: _by_key(importance(contents, name), name, keys) for name in MEASURES},
        **{f"level {level}": lambda level=level: _type_level(contents, level, keys) for level in TYPE_LEVELS},
        "nearest": lambda: SimilarityIndex(contents).nearest_neighbors(MAX_SIMILAR),
        "fit": lambda: _rank_fit(rank_frequency(contents)),
    }
    found: dict[str, Any] = {}
    for step, make in steps.items():
        check_cancelled()
        found[step] = make()
    parts = found["parts"]
    return Findings(
        communities={keys[name]: int(part) for name, part in zip(parts["name"], parts["community"], strict=True)},
        community_names=parts.attrs["names"],
        modularity=float(parts.attrs["modularity"]),
        importance={measure: found[measure] for measure in MEASURES},
        types=[found[f"level {level}"] for level in TYPE_LEVELS],
        nearest=found["nearest"],
        fit=found["fit"],
    )


def _by_key(table: pd.DataFrame, measure: str, keys: Mapping[str, str]) -> dict[str, float]:
    return {keys[name]: value for name, value in zip(table["name"], table[measure].tolist(), strict=True)}


def _type_level(contents: Contents, level: int, keys: Mapping[str, str]) -> TypeLevel:
    edges = is_a(contents, level)
    nodes = [keys[name] for name in edges["node"]]
    differs = {key: ", ".join(map(str, values)) for key, values in zip(nodes, edges["differs"], strict=True)}
    return TypeLevel(level, dict(zip(nodes, edges["type"], strict=True)), differs)


def _rank_fit(ranks: RankFrequency) -> RankFit:
    try:
        found = ranks.fit
    except MissingPackageError as error:
        return RankFit(str(error))
    laws = found.comparisons
    rows = zip(laws["alternative"], laws["R"].tolist(), laws["p"].tolist(), strict=True)
    lines = {
        law: list(zip(found.counts.tolist(), found.expected[law].tolist(), strict=True))
        for law in DISTRIBUTIONS
        if law in found.expected
    }
    return RankFit(ranks.verdict, found.alpha, found.xmin, [(str(law), ratio, p) for law, ratio, p in rows], lines)


# ----------------------------------------


_DIGITS = 5  # of figures that are only looked at
_ABSENT = -1  # in columns of positions: there is none
TypedValue: TypeAlias = tuple[type, str | int | float | None]  # 1, 1.0 and True are not the same


RUNNING, DONE, FAILED = "running", "done", "failed"
_NO_FINDINGS = Findings({}, [], 0.0, {}, [], {}, RankFit(""))


def knowledge_payload(
    contents: Contents, families: Superfamilies, findings: Findings | None, analysis: str = DONE
) -> Payload:
    """Returns all nodes as parallel columns, which refer to each other by index.

    Without `findings` it has the models, their families and their results alone: of thousands of models that is what
    can be there at once, and `analysis` says whether the rest will come.
    """
    shown, found = (contents, findings) if findings is not None else (Contents(contents.scheme), _NO_FINDINGS)
    place = {key: index for index, key in enumerate(shown.modules)}
    return KNOWLEDGE.payload(
        {
            "title": _count_text(len(contents.models), "model"),
            "analysis": DONE if findings is not None else analysis,
            "size": len(contents.modules),
            **_entities(shown, place, found),
            "models": _models(contents, place, found, families),
            "families": [text(name) for name in families.families],
            "superfamilies": {
                "name": [text(name) for name in families.names],
                "of": families.superfamily_of,
                "links": [figure for *pair, weight in families.links for figure in (*pair, round(weight, 3))],
            },
            "results": result_columns(contents),
            "communities": {
                "modularity": _rounded(found.modularity),
                "count": len(found.community_names),
                "names": [text(name) for name in found.community_names],
            },
            "types": [_types(level, place) for level in found.types],
            "fit": _fit(found.fit),
            "jobs": _jobs(contents if findings is not None else shown),
            "datasets": _named(contents.datasets),
            "users": _named(contents.users),
        }
    )


def selectable(payload: Parts) -> set[str]:
    """Returns the keys that `selected` accepts."""
    return {
        *payload["entities"]["digest"],
        *(f"Model:{name}" for name in payload["models"]["name"]),
        *(f"Family:{name}" for name in payload["families"]),
        *(f"Superfamily:{name}" for name in payload["superfamilies"]["name"]),
        *(f"Community:{index}" for index in range(payload["communities"]["count"])),
        *(f"Type:{name}" for level in payload["types"] for name in level["name"]),
    }


# ------------------------------------------------------------------ structures


def _entities(contents: Contents, place: Mapping[str, int], findings: Findings) -> Payload:
    classes, values = DistinctKeys[tuple[str, str]](), DistinctKeys[TypedValue]()
    fields: list[DistinctKeys[str]] = []  # of each class: attribute -> column
    columns: Columns = {
        name: [] for name in ("class", "name", "digest", "params", "bytes", "hyper", "children", "community")
    }
    for key, node in contents.modules.items():
        position = classes.index_of((node.qualified_class, node.class_name))
        if position == len(fields):
            fields.append(DistinctKeys())
        columns["class"].append(position)
        columns["name"].append(text(contents.names[key]))
        columns["digest"].append(text(key))
        columns["params"].append(number(node.parameters))
        columns["bytes"].append(number(node.bytes))
        columns["hyper"].append(_hyper(node, fields[position], values))
        columns["children"].append(_children(node, place))
        columns["community"].append(findings.communities.get(key, _ABSENT))
    importance = {
        measure: [_rounded(by_key.get(key)) for key in contents.modules]
        for measure, by_key in findings.importance.items()
    }
    return {
        "entities": {**columns, "importance": importance},
        "classes": {
            "name": [text(shown_as) for _, shown_as in classes.keys],
            "qualified": [text(qualified) for qualified, _ in classes.keys],
            "fields": [[text(name) for name in columns.keys] for columns in fields],
        },
        "values": [value for _, value in values.keys],
    }


def _hyper(node: StructureNode, fields: DistinctKeys[str], values: DistinctKeys[TypedValue]) -> list[int]:
    """The index of the value of each class field in the table of values."""
    row: list[int] = [_ABSENT] * len(fields)
    for name, value in node.hyperparameters.items():
        column = fields.index_of(name)
        row.extend([_ABSENT] * (column + 1 - len(row)))
        plain = _plain(value)
        row[column] = values.index_of((type(plain), plain))
    return row


def _children(node: StructureNode, place: Mapping[str, int]) -> list[int]:
    """Index and count of each direct child structure, flattened."""
    counts: dict[int, int] = {}
    for _, child in node.slots:
        if child is not None and child in place:
            counts[place[child]] = counts.get(place[child], 0) + 1
    return [figure for pair in counts.items() for figure in pair]


def _plain(value: str | float | int | None) -> str | int | float | None:
    return "None" if value is None else text(value) if isinstance(value, str) else number(value)


# ------------------------------------------------------------------ models


def _models(contents: Contents, place: Mapping[str, int], findings: Findings, families: Superfamilies) -> Columns:
    family_of = {name: index for index, names in enumerate(families.families.values()) for name in names}
    model_of = {name: index for index, name in enumerate(contents.models)}
    columns: Columns = {name: [] for name in _MODEL_COLUMNS}
    for model in contents.models.values():
        columns["name"].append(text(model.name))
        columns["root"].append(place.get(model.root, _ABSENT))
        columns["params"].append(number(model.parameters))
        columns["bytes"].append(number(model.bytes))
        columns["flops"].append(number(model.flops))
        columns["family"].append(family_of[model.name])
        columns["modules"].append(sum(model.occurrences.values()))
        columns["structures"].append(len({key for key, _ in model.occurrences}))
        # position, level and count of each structure in the model
        members = [
            (place[key], LEVELS.index(level), count)
            for (key, level), count in model.occurrences.items()
            if key in place
        ]
        columns["members"].append([figure for member in members for figure in member])
        costs = [(place[key], number(flops)) for key, flops in model.module_flops.items() if key in place]
        columns["module_flops"].append([figure for pair in costs for figure in pair])
        near = [(model_of[other], round(1000 * likeness)) for other, likeness in findings.nearest.get(model.name, [])]
        columns["nearest"].append([figure for pair in near for figure in pair])
    return columns


_MODEL_COLUMNS = (
    "name", "root", "params", "bytes", "flops", "family", "modules", "structures", "members", "module_flops", "nearest",
)  # fmt: skip


def _types(level: TypeLevel, place: Mapping[str, int]) -> Payload:
    names = DistinctKeys[str]()
    of, differs = [_ABSENT] * len(place), [""] * len(place)
    for key, name in level.type_of.items():
        if key in place:
            of[place[key]] = names.index_of(text(name))
            differs[place[key]] = text(level.differs.get(key, ""))
    texts = DistinctKeys[str]()
    return {
        "level": level.level,
        "name": names.keys,
        "of": of,
        "differs": [texts.index_of(value) for value in differs],
        "texts": texts.keys,
    }


# ------------------------------------------------------------------ statistics and jobs


def _fit(fit: RankFit) -> Payload:
    return {
        "alpha": _rounded(fit.alpha),
        "xmin": _rounded(fit.xmin),
        "verdict": text(fit.verdict),
        "comparisons": [[text(law), _rounded(ratio), _rounded(p)] for law, ratio, p in fit.comparisons],
        "lines": [
            [text(law), [_rounded(value) for point in points for value in point]] for law, points in fit.lines.items()
        ],
    }


def _jobs(contents: Contents) -> Columns:
    jobs: Iterable[JobNode] = contents.jobs.values()
    columns: Columns = {
        name: []
        for name in (
            "name", "user", "dataset", "model", "accuracy", "convergence", "started", "ended", "metrics", "training",
        )
    }  # fmt: skip
    for job in jobs:
        for name in ("name", "user", "dataset", "model"):
            value = getattr(job, name)
            columns[name].append(None if value is None else text(value))
        for name in ("accuracy", "convergence", "started", "ended"):
            columns[name].append(number(getattr(job, name)))
        columns["metrics"].append([[text(metric), len(steps)] for metric, steps in job.history.items()])
        columns["training"].append(training_text(job))
    return columns


def _named(nodes: Mapping[str, DataSetNode] | Mapping[str, UserNode]) -> Columns:
    """Names, and properties as pairs of name and text."""
    return {
        "name": [text(name) for name in nodes],
        "properties": [
            [[text(str(key)), text(str(value))[:200]] for key, value in node.properties.items()]
            for node in nodes.values()
        ],
    }


def _rounded(value: float | int | None) -> float | int | str | None:
    """Returns a number rounded to few digits."""
    if value is None or isinstance(value, int):
        return number(value)
    return number(float(f"{value:.{_DIGITS}g}"))


def _count_text(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
