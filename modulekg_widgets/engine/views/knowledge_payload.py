"""What a KnowledgeExplorer sends to the browser: one JSON object of columns (js/src/core/knowledge/data/payload.ts)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from modulekg_widgets.engine.identity.levels import LEVELS
from modulekg_widgets.engine.knowledge.analysis.superfamilies import Superfamilies
from modulekg_widgets.engine.knowledge.contents import Contents, JobNode
from modulekg_widgets.engine.knowledge.records import StructureNode
from modulekg_widgets.engine.views.knowledge_findings import Findings, RankFit, TypeLevel
from modulekg_widgets.engine.views.knowledge_results import result_columns, training_text
from modulekg_widgets.engine.views.payload import Distinct, number, text
from modulekg_widgets.engine.views.schema import KNOWLEDGE

_DIGITS = 5  # of figures that are only looked at
_ABSENT = -1  # in columns of positions: there is none


RUNNING, DONE, FAILED = "running", "done", "failed"
_UNKNOWN = Findings({}, [], 0.0, {}, [], {}, RankFit(""))


def knowledge_payload(
    contents: Contents, families: Superfamilies, findings: Findings | None, analysis: str = DONE
) -> dict[str, Any]:
    """All nodes as parallel columns; nodes name each other by their position, values that repeat stand in one table.

    Without `findings` it has the models, their families and their results alone: of thousands of models that is what
    can be there at once, and `analysis` says whether the rest will come.
    """
    shown, found = (contents, findings) if findings is not None else (Contents(contents.scheme), _UNKNOWN)
    place = {key: index for index, key in enumerate(shown.modules)}
    return KNOWLEDGE.payload(
        {
            "title": _counted(len(contents.models), "model"),
            "analysis": DONE if findings is not None else analysis,
            "size": len(contents.modules),
            **_entities(shown, place, found),
            "models": _models(contents, place, found, families),
            "families": [text(name) for name in families.families],
            "superfamilies": {
                "name": [text(name) for name in families.names],
                "of": families.of,
                "links": [figure for *pair, weight in families.links for figure in (*pair, round(weight, 3))],
            },
            "results": result_columns(contents),
            "communities": {
                "modularity": _short(found.modularity),
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


def selectable(payload: Mapping[str, Any]) -> set[str]:
    """The keys that `selected` takes, as the browser has them."""
    return {
        *payload["entities"]["digest"],
        *(f"Model:{name}" for name in payload["models"]["name"]),
        *(f"Family:{name}" for name in payload["families"]),
        *(f"Superfamily:{name}" for name in payload["superfamilies"]["name"]),
        *(f"Community:{index}" for index in range(payload["communities"]["count"])),
        *(f"Type:{name}" for level in payload["types"] for name in level["name"]),
    }


# ------------------------------------------------------------------ structures


def _entities(contents: Contents, place: Mapping[str, int], findings: Findings) -> dict[str, Any]:
    classes, values = Distinct(), Distinct()
    fields: list[Distinct] = []  # of each class: attribute -> column
    columns: dict[str, list[Any]] = {
        name: [] for name in ("class", "name", "digest", "params", "bytes", "hyper", "children", "community")
    }
    for key, node in contents.modules.items():
        position = classes.place((node.qualified_class, node.class_name))
        if position == len(fields):
            fields.append(Distinct())
        columns["class"].append(position)
        columns["name"].append(text(contents.names[key]))
        columns["digest"].append(text(key))
        columns["params"].append(number(node.parameters))
        columns["bytes"].append(number(node.bytes))
        columns["hyper"].append(_hyper(node, fields[position], values))
        columns["children"].append(_children(node, place))
        columns["community"].append(findings.communities.get(key, _ABSENT))
    importance = {
        measure: [_short(by_key.get(key)) for key in contents.modules]
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


def _hyper(node: StructureNode, fields: Distinct, values: Distinct) -> list[int]:
    """For each field of the class the position of its value in the table of values."""
    row: list[int] = [_ABSENT] * len(fields)
    for name, value in node.hyperparameters.items():
        column = fields.place(name)
        row.extend([_ABSENT] * (column + 1 - len(row)))
        plain = _plain(value)
        row[column] = values.place((type(plain), plain))  # 1, 1.0 and True are not the same
    return row


def _children(node: StructureNode, place: Mapping[str, int]) -> list[int]:
    """Position and count of each structure directly inside, one after the other."""
    counts: dict[int, int] = {}
    for _, child in node.slots:
        if child is not None and child in place:
            counts[place[child]] = counts.get(place[child], 0) + 1
    return [figure for pair in counts.items() for figure in pair]


def _plain(value: Any) -> str | int | float | bool:
    return "None" if value is None else text(value) if isinstance(value, str) else number(value)  # type: ignore[return-value]


# ------------------------------------------------------------------ models


def _models(
    contents: Contents, place: Mapping[str, int], findings: Findings, families: Superfamilies
) -> dict[str, list[Any]]:
    family_of = {name: index for index, names in enumerate(families.families.values()) for name in names}
    model_of = {name: index for index, name in enumerate(contents.models)}
    columns: dict[str, list[Any]] = {name: [] for name in _MODEL_COLUMNS}
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


def _types(level: TypeLevel, place: Mapping[str, int]) -> dict[str, Any]:
    names = Distinct()
    of, differs = [_ABSENT] * len(place), [""] * len(place)
    for key, name in level.type_of.items():
        if key in place:
            of[place[key]] = names.place(text(name))
            differs[place[key]] = text(level.differs.get(key, ""))
    texts = Distinct()
    return {
        "level": level.level,
        "name": names.keys,
        "of": of,
        "differs": [texts.place(value) for value in differs],
        "texts": texts.keys,
    }


# ------------------------------------------------------------------ statistics and jobs


def _fit(fit: RankFit) -> dict[str, Any]:
    return {
        "alpha": _short(fit.alpha),
        "xmin": _short(fit.xmin),
        "verdict": text(fit.verdict),
        "comparisons": [[text(law), _short(ratio), _short(p)] for law, ratio, p in fit.comparisons],
        "lines": [
            [text(law), [_short(value) for point in points for value in point]] for law, points in fit.lines.items()
        ],
    }


def _jobs(contents: Contents) -> dict[str, list[Any]]:
    jobs: Iterable[JobNode] = contents.jobs.values()
    columns: dict[str, list[Any]] = {
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


def _named(nodes: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Name and properties, as pairs of name and text."""
    return {
        "name": [text(name) for name in nodes],
        "properties": [
            [[text(str(key)), text(str(value))[:200]] for key, value in node.properties.items()]
            for node in nodes.values()
        ],
    }


def _short(value: float | int | None) -> float | int | str | None:
    """A number of few digits, for what is only looked at."""
    if value is None or isinstance(value, int):
        return number(value)
    return number(float(f"{value:.{_DIGITS}g}"))


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
