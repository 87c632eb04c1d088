"""MLflow's file store (`mlruns/`), read as MLflow documents it.

MLflow's own client refuses file stores unless an environment variable says otherwise, writes into them when it opens
them, and loses the step of a metric that belongs to a data set.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from modulekg_widgets.engine.errors import GraphFileError, MissingPackageError, shown
from modulekg_widgets.engine.knowledge.contents import DataSetNode
from modulekg_widgets.engine.knowledge.exchange.mlflow_record import (
    ACTIVE,
    CONTEXT,
    LONGEST_TEXT,
    STATUS,
    MLflowRun,
    training_first,
)
from modulekg_widgets.engine.knowledge.jobs import Point, kept_places
from modulekg_widgets.engine.safe_files import read_whole

SETTINGS = frozenset({
    "name", "lifecycle_stage", "run_id", "run_uuid", "run_name", "status", "user_id", "start_time", "end_time",
    "digest", "source_id", "source_type", "tags",
})  # fmt: skip
_LARGE = 1 << 28  # bytes of a file of settings or of a metric
_NONE = ("", "null", "~")
_PARSED = 1 << 15  # characters of YAML, which is parsed slowly


def store_in(folder: Path) -> Path | None:
    """The folder with the experiments: this one or its `mlruns`."""
    try:
        for place in (folder, folder / "mlruns"):
            if place.is_dir() and next(_with_settings(place), None) is not None:
                return place
    except (OSError, ValueError) as error:
        raise GraphFileError(f"{shown(str(folder))!r} cannot be read: {shown(str(error))}") from None
    return None


def runs_in(store: Path) -> Iterator[MLflowRun]:
    """The runs of a file store that are not deleted; raises `GraphFileError` for files that are none of MLflow's."""
    for experiment in _with_settings(store):
        about = _settings(experiment / "meta.yaml")
        if about.get("lifecycle_stage", ACTIVE) != ACTIVE:
            continue
        for folder in _with_settings(experiment):
            settings = _settings(folder / "meta.yaml")
            if settings.get("lifecycle_stage", ACTIVE) == ACTIVE:
                yield _run(folder, settings, about.get("name", experiment.name))


def _run(folder: Path, about: dict[str, Any], experiment: str) -> MLflowRun:
    return MLflowRun(
        about.get("run_id") or about.get("run_uuid") or folder.name,
        experiment,
        about.get("run_name") or "",
        STATUS.get(about.get("status", ""), "UNKNOWN"),
        about.get("user_id"),
        about.get("start_time"),
        about.get("end_time"),
        _texts(folder / "params"),
        _texts(folder / "tags"),
        training_first(_datasets(folder)),
        {name: _points(file) for name, file in _files(folder / "metrics")},
    )


def _datasets(folder: Path) -> Iterator[tuple[str | None, DataSetNode]]:
    """The data sets that a run was given, each with what for."""
    for place in _with_settings(folder / "inputs"):
        given = _settings(place / "meta.yaml")
        source = given.get("source_id", "")
        about = folder.parent / "datasets" / source / "meta.yaml"
        if given.get("source_type") != "DATASET" or Path(source).name != source or not about.is_file():
            continue
        dataset, tags = _settings(about), given.get("tags")
        facts = {key: dataset[key] for key in ("digest", "source_type") if key in dataset}
        yield None if tags is None else tags.get(CONTEXT), DataSetNode(dataset.get("name", source), facts)


# ------------------------------------------------------------------ files


def _with_settings(folder: Path) -> Iterator[Path]:
    """The folders within that have a `meta.yaml`, by name; links are not followed."""
    if not folder.is_dir():
        return
    for place in sorted(folder.iterdir()):
        if not place.is_symlink() and place.is_dir() and place.name != ".trash" and (place / "meta.yaml").is_file():
            yield place


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """The files below with their names; a name with slashes is a file in folders."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(place, name)
            yield path.relative_to(folder).as_posix(), path


def _texts(folder: Path) -> dict[str, str]:
    return {name: _read(file, LONGEST_TEXT) for name, file in _files(folder)}


def _read(file: Path, most: int) -> str:
    try:
        return read_whole(file, most, links=False).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise GraphFileError(f"{shown(str(file))!r} cannot be read: {shown(str(error))}") from None


def _points(file: Path) -> list[Point]:
    """A metric's values by step: a line each of time, value, step and, it may be, the data set's name and digest."""
    timed = []
    for line in filter(str.strip, _read(file, _LARGE).split("\n")):
        parts = line.split()
        try:
            timed.append((int(parts[2]) if len(parts) > 2 else 0, int(parts[0]), float(parts[1])))
        except (IndexError, ValueError):
            raise GraphFileError(
                f"{shown(str(file))!r} has the line {shown(line, 40)!r}: no metric of MLflow"
            ) from None
    timed.sort(key=lambda point: point[:2])
    return [(float(timed[place][0]), timed[place][2]) for place in kept_places(len(timed))]


def _settings(file: Path) -> dict[str, Any]:
    """What a file of settings says that is of use here; the rest, which may be long, is not parsed."""
    try:
        import yaml
    except ImportError as error:
        hint = "pip install 'modulekg-widgets[mlflow]'"
        raise MissingPackageError(f"reading runs of MLflow needs PyYAML: {hint}") from error
    try:
        # this loader makes texts of all scalars and knows no objects
        found = yaml.load(_of_use(_read(file, _LARGE), file), Loader=yaml.BaseLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, GraphFileError):
            raise
        raise GraphFileError(f"{shown(str(file))!r} is no YAML: {shown(str(error))}") from None
    known = {key: value for key, value in found.items() if _is_setting(key, value)} if isinstance(found, dict) else {}
    if not known:
        raise GraphFileError(f"{shown(str(file))!r} is no file of settings of MLflow")
    return known


def _is_setting(key: str, value: object) -> bool:
    """Whether a value is a text; lists may hold themselves, or more than memory."""
    return value not in _NONE if isinstance(value, str) else key == "tags" and isinstance(value, dict)


def _of_use(text: str, file: Path) -> str:
    """The lines of the settings that are used, with the indented ones below each."""
    kept: list[str] = []
    wanted = False
    for line in text.split("\n"):
        if line[:1] not in ("", " "):
            wanted = line.partition(":")[0] in SETTINGS
        if wanted:
            kept.append(line)
    found = "\n".join(kept)
    if len(found) > _PARSED:
        raise GraphFileError(f"the settings in {shown(str(file))!r} are longer than {_PARSED:,} characters")
    return found
