"""Tables of published or own results as jobs, one for each model, training, data set and device."""

from __future__ import annotations

import hashlib
import io
import os
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from modulekg_widgets.engine.errors import PropertyError, a_type, closest_match_hint, printable
from modulekg_widgets.engine.knowledge.exchange.graph_files import checked_path, read_whole
from modulekg_widgets.engine.knowledge.facts.contents import Contents, DataSetNode, JobNode
from modulekg_widgets.engine.knowledge.facts.jobs import checked_name, checked_properties
from modulekg_widgets.engine.knowledge.facts.property_values import PropertyValue
from modulekg_widgets.engine.knowledge.facts.results import (
    RESULTS,
    Result,
    as_property,
    normalized_result,
    results_of,
    unit_notes,
)
from modulekg_widgets.engine.knowledge.facts.units import (
    FRACTION,
    PERCENT,
    TOP_1,
    canonical_target,
    finite_float,
    is_share,
    safe_repr,
    share_error,
)

if TYPE_CHECKING:
    import pandas as pd


# -------------------- Columns of a result table as the user names them, checked


class ResultColumns(NamedTuple):
    """Names of the columns of a table, and values that hold for all of its rows."""

    dataset: str | None
    target: str | None
    model: str
    value: str
    training: Sequence[str]
    unit: str | Mapping[str, str] | None
    device: str | None
    columns: Mapping[Hashable, str]


def result_columns(
    dataset: object,
    target: object,
    model: object,
    value: object,
    training: object,
    unit: object,
    device: object,
    columns: object,
) -> ResultColumns:
    """Returns the checked columns; raises `PropertyError` or `UnknownNameError`."""
    constants = ((dataset, "data set"), (target, "target"), (device, "device"))
    of_dataset, of_target, of_device = [None if name is None else checked_name(name, what) for name, what in constants]
    return ResultColumns(
        of_dataset, of_target, checked_name(model, "column of models"), checked_name(value, "column of values"),
        column_names(training, "training"), checked_unit(unit), of_device, names_by_column(columns, "columns"),
    )  # fmt: skip


def column_names(columns: object, what: str) -> tuple[str, ...]:
    """Returns the names of columns as a tuple; one text is one name. Raises `PropertyError`."""
    if isinstance(columns, str):
        return (columns,)
    if isinstance(columns, Mapping | bytes) or not isinstance(columns, Iterable):
        raise PropertyError(f"{what} is {safe_repr(columns)}: give the names of columns, as a list")
    names = tuple(columns)
    for name in names:
        checked_name(name, f"column of {what}")
    return names


def names_by_column(columns: object, what: str) -> dict[Any, str]:
    """Returns new names by column; raises `PropertyError` or `UnknownNameError`."""
    if columns is None:
        return {}
    if not isinstance(columns, Mapping):
        raise PropertyError(f"{what} is {safe_repr(columns)}: give {{'column': 'name'}}")
    for name in columns.values():
        checked_name(name, f"name of {what}")
    return dict(columns)


def checked_unit(unit: object) -> str | dict[str, str] | None:
    """A unit, or units by target; raises `PropertyError`."""
    if unit is None or isinstance(unit, str):
        return unit
    if not isinstance(unit, Mapping) or not all(isinstance(part, str) for pair in unit.items() for part in pair):
        raise PropertyError(f"unit is {safe_repr(unit)}: give a text, or {{'target': 'unit'}}")
    return {canonical_target(target): text for target, text in unit.items()}


# ----------------------------------------


MODEL, VALUE, DATASET, TARGET, DEVICE, UNIT = "model", "value", "dataset", "target", "device", "unit"
MAX_FRACTION = 1.0
MAX_LISTED = 8
MAX_INTEGER = 2**63  # of what tells how a model was trained

Row = dict[str, object]
Training = tuple[tuple[str, PropertyValue], ...]
JobKey = tuple[str, str | None, str | None, Training]  # model, data set, device, training
LeftOut: TypeAlias = dict[Any, str]  # why a row or a run is not among the results, by its label


@dataclass(frozen=True)
class AddedResults:
    """Report of an import: results added, jobs, and rows or runs left out with the reason.

    Attributes
    ----------
    added : int
        How many results are in the graph now.
    jobs : int
        How many jobs they are of.
    left_out : dict
        Why one is not among them, by the row's label in the table or the name of the run or job.
    notes : tuple of str
        What else is worth knowing, as a target without a unit.
    of : str
        What the labels in `left_out` are of.
    """

    added: int
    jobs: int
    left_out: LeftOut = field(repr=False)
    notes: tuple[str, ...] = ()
    of: str = "row"

    def __str__(self) -> str:
        lines = [f"{self.added} results of {self.jobs} jobs added, {len(self.left_out)} {self.of}s left out"]
        first = list(self.left_out.items())[:MAX_LISTED]
        lines += [f"{self.of} {printable(str(label))}: {reason}" for label, reason in first]
        if len(self.left_out) > MAX_LISTED:
            lines.append(f"and {len(self.left_out) - MAX_LISTED} more, see .left_out")
        return "\n".join([*lines, *self.notes])


class RowResult(NamedTuple):
    """One result of a row."""

    row: Any  # its label in the table, or what another table calls it by
    model: str
    dataset: str | None
    device: str | None
    training: Training
    target: str
    result: Result

    @property
    def key(self) -> JobKey:
        return self.model, self.dataset, self.device, self.training


def read_table(table: object) -> pd.DataFrame:
    """A DataFrame as it is, or the CSV of a path; raises `GraphFileError` and `PropertyError`."""
    import pandas as pd

    if isinstance(table, pd.DataFrame):
        return table
    if not isinstance(table, str | os.PathLike):
        raise PropertyError(f"results come as {a_type(table)}: pass a DataFrame or the path of a CSV file")
    try:
        content = io.BytesIO(read_whole(checked_path(table)))
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows with more cells than columns lose some
            return pd.read_csv(content, index_col=False)
    except (
        ValueError,
        UnicodeError,
        pd.errors.ParserWarning,
    ) as error:  # pandas has errors of its own that are ValueErrors
        if type(error).__module__.startswith("modulekg_widgets"):
            raise
        raise PropertyError(
            f"{printable(str(table))} is not a table of comma-separated values: {printable(str(error))}"
        ) from None


def jobs_from_table(frame: pd.DataFrame, about: ResultColumns, known: Contents) -> tuple[Contents, AddedResults]:
    """Returns the data sets and jobs to add, and the report; raises `PropertyError` for an invalid table."""
    frame = frame.rename(columns=dict(about.columns))
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        raise PropertyError("two columns of the table have one name: rename one of them by columns={…}")
    targets = _targets(names, about)
    left_out: LeftOut = {}
    units = _units(frame, about)

    @cache  # a table has many rows of each
    def unknown(name: str) -> str:
        return f"no model is called {printable(name)!r}: {closest_match_hint(name, known.models)}"

    found: list[RowResult] = []
    for label, row in _rows(frame):
        for each in _results_in(label, row, targets, about, known, units, unknown):
            if isinstance(each, str):
                left_out.setdefault(label, each)
            else:
                found.append(each)
    found = _drop_duplicates(unify_units(found, left_out), left_out)
    jobs = _jobs(found, known)
    datasets = {name: DataSetNode(name, {}) for name in dict.fromkeys(job.dataset for job in jobs) if name is not None}
    new = {name: node for name, node in datasets.items() if name not in known.datasets}
    contents = Contents(known.scheme, datasets=new, jobs={job.name: job for job in jobs})
    notes = unit_notes({each.target for each in found}, {**known.jobs, **contents.jobs}.values(), known.models)
    return contents, AddedResults(len(found), len(jobs), left_out, notes)


def _targets(names: Sequence[str], about: ResultColumns) -> dict[str, str | None]:
    """Returns the columns of values with their targets, None if a column of the table holds the target."""
    if about.model not in names:
        raise PropertyError(
            f"the table has no column {printable(about.model)!r}: {closest_match_hint(about.model, names)}; say model="
        )
    if about.value in names:
        if about.target is None and TARGET not in names:
            raise PropertyError("nothing says what the values are: pass target=, or a table with a column 'target'")
        return {about.value: None if about.target is None else canonical_target(about.target)}
    own = {about.model, DATASET, TARGET, DEVICE, UNIT, *about.training}
    wide = [name for name in about.columns.values() if name not in own]
    if about.target is not None and about.target in names:
        wide = [about.target]
    if not wide:
        raise PropertyError(
            f"the table has no column {printable(about.value)!r}: {closest_match_hint(about.value, names)}; say "
            "value=, or which "
            "columns are targets by columns={'column': 'target'}"
        )
    return {name: canonical_target(name) for name in dict.fromkeys(wide)}


def _units(frame: pd.DataFrame, about: ResultColumns) -> dict[str, str]:
    told = frame.attrs.get("units")
    given = {
        canonical_target(str(target)): str(unit) for target, unit in (told if isinstance(told, dict) else {}).items()
    }
    return {**given, **(about.unit if isinstance(about.unit, Mapping) else {})}


def _rows(frame: pd.DataFrame) -> Iterator[tuple[Hashable, Row]]:
    columns = [str(name) for name in frame.columns]
    for place, values in enumerate(frame.itertuples(index=False, name=None)):
        label = frame.index[place]
        yield (label if _is_hashable(label) else place), dict(zip(columns, values, strict=True))


def _is_hashable(label: object) -> bool:
    try:
        hash(label)
    except TypeError:
        return False
    return True


def _results_in(
    label: Hashable,
    row: Row,
    targets: Mapping[str, str | None],
    about: ResultColumns,
    known: Contents,
    units: Mapping[str, str],
    unknown: Callable[[str], str],
) -> Iterator[RowResult | str]:
    """Yields the results of a row, or the reason why there is none."""
    name = _text(row.get(about.model))
    if name is None:
        yield "it names no model"
        return
    model, tag = (name, None) if name in known.models else _split_tag(name)
    if model not in known.models:
        yield unknown(name)
        return
    try:
        training = {key: value for key in about.training if (value := _plain(row.get(key), key)) is not None}
    except PropertyError as error:
        yield str(error)
        return
    if tag is not None:
        training.setdefault("tag", tag)
    dataset = about.dataset if about.dataset is not None else _text(row.get(DATASET))
    device = about.device if about.device is not None else _text(row.get(DEVICE))
    for column, given in targets.items():
        named = given if given is not None else _text(row.get(TARGET))
        value = finite_float(row.get(column))
        if named is None:
            yield "it names no target"
        elif value is None:
            yield f"its {printable(column)} is not a finite number: {printable(safe_repr(row.get(column)), 60)}"
        else:
            target = canonical_target(named)
            unit = _text(row.get(UNIT)) or (_text(about.unit) if isinstance(about.unit, str) else units.get(target))
            yield RowResult(label, model, dataset, device, tuple(sorted(training.items())), target, Result(value, unit))


def _split_tag(name: str) -> tuple[str, str | None]:
    """Architecture and tag, as timm writes them."""
    model, dot, tag = name.partition(".")
    return model, tag if dot else None


def unify_units(results: Sequence[RowResult], left_out: LeftOut) -> list[RowResult]:
    """Returns the valid results; shares without a unit become percents or fractions, as most of them are.

    A unit that is said is believed, unless the share is out of its range then; zeros say nothing.
    """
    groups: dict[tuple[object, ...], list[RowResult]] = {}
    for each in results:
        fault = share_error(each.target, *each.result)
        if fault is None:
            groups.setdefault((each.target, each.dataset, each.result.unit), []).append(each)
        else:
            left_out.setdefault(each.row, printable(fault, 200))
    kept: list[RowResult] = []
    for (target, _, unit), own in groups.items():
        if unit is not None or not is_share(target):
            kept += own
            continue
        telling = [each for each in own if each.result.value]
        small = sum(each.result.value <= MAX_FRACTION for each in telling)
        usual = FRACTION if telling and 2 * small >= len(telling) else PERCENT
        for each in own:
            value = each.result.value
            if value and (value <= MAX_FRACTION) != (usual == FRACTION):
                other, most = ("fraction", "percents") if usual == PERCENT else ("percentage", "fractions")
                left_out.setdefault(each.row, f"{target} is {value:g} among {most}: is it a {other}? Say its unit")
            else:
                kept.append(_with_unit(each, usual))
    return kept


def _with_unit(found: RowResult, unit: str | None) -> RowResult:
    return found._replace(result=Result(found.result.value, unit))


def _drop_duplicates(found: Sequence[RowResult], left_out: LeftOut) -> list[RowResult]:
    """Returns the first of the results with the same job and target."""
    kept: dict[tuple[object, ...], RowResult] = {}
    for each in found:
        first = kept.setdefault((*each.key, each.target), each)
        if first is not each:
            other = "" if first.result == each.result else f", which says {first.result.value:g}"
            left_out.setdefault(each.row, f"{each.target} of the same as row {printable(str(first.row))}{other}")
    return list(kept.values())


def _jobs(found: Sequence[RowResult], known: Contents) -> list[JobNode]:
    """Returns the jobs of the results; a job of the graph keeps its results of other targets."""
    results: dict[JobKey, dict[str, Result]] = {}
    for each in found:
        results.setdefault(each.key, {})[each.target] = each.result
    return [_job(key, own, known) for key, own in results.items()]


def _job(key: JobKey, results: dict[str, Result], known: Contents) -> JobNode:
    model, dataset, device, training = key
    name = _name(key)
    old = known.jobs.get(name)
    results = {**(results_of(old) if old is not None else {}), **results}
    properties = checked_properties({
        **dict(training), **({} if device is None else {DEVICE: device}), RESULTS: as_property(results),
    })  # fmt: skip
    accuracy = accuracy_as_fraction(results.get(TOP_1))
    if old is not None:
        return replace(
            old,
            accuracy=accuracy if accuracy is not None else old.accuracy,
            properties={**old.properties, **properties},
        )
    return JobNode(name, None, dataset, model, accuracy, None, {}, 0.0, None, properties)


def _name(key: JobKey) -> str:
    """Returns a stable name of the job: readable words and a digest of the key."""
    model, dataset, device, training = key
    words = [model, *(str(value) for _, value in training), *(text for text in (dataset, device) if text)]
    digest = hashlib.blake2b(repr(key).encode("utf-8", "replace"), digest_size=4).hexdigest()
    return f"{' '.join(words)} {digest}"


def accuracy_as_fraction(result: Result | None) -> float | None:
    """An accuracy as a fraction; None for what is none, or in a unit that says nothing."""
    found = None if result is None else normalized_result(TOP_1, result)
    if found is None or found.unit != PERCENT:
        return None
    return min(found.value / 100, 1.0)


def _text(value: object) -> str | None:
    if value is None or (isinstance(value, float) and value != value):
        return None
    try:
        text = str(value).strip()
    except Exception:  # noqa: BLE001  # an object of anybody's, or an integer of more digits than Python writes
        return None
    return None if text in ("", "nan", "None", "<NA>", "NaT") else text


def _plain(value: PropertyValue, name: str) -> PropertyValue:
    """A cell as a plain value; None where it is empty. Whole numbers stay so where a missing cell made them floats.

    Raises `PropertyError`.
    """
    if isinstance(value, str) or value is None:
        return _text(value)
    try:
        value = value.item() if hasattr(value, "item") else value
    except Exception as error:  # noqa: BLE001  # an array, a tensor without values, an object of anybody's
        raise PropertyError(f"its {printable(name)} is not a single value: {printable(type(error).__name__)}") from None
    if isinstance(value, float):
        return None if value != value else int(value) if value.is_integer() else value
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if abs(value) >= MAX_INTEGER:
            raise PropertyError(f"its {printable(name)} is a number of {value.bit_length()} bits")
        return int(value)
    return _text(value)
