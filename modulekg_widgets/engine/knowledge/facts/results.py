"""Results of jobs: values of any target with their units, stored as a property of the job."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeGuard

from modulekg_widgets.engine.errors import PropertyError, printable
from modulekg_widgets.engine.knowledge.facts.contents import JobNode
from modulekg_widgets.engine.knowledge.facts.units import (
    ACCURACY_TARGETS,
    PERCENT,
    TOP_1,
    canonical_target,
    finite_float,
    normalized_value,
    safe_repr,
    share_error,
)

RESULTS = "results"  # the property of a job: target -> [value, unit]
CONVERGENCE = "convergence"
STEPS = "steps"


class Result(NamedTuple):
    """A value as it was given, with its unit or None."""

    value: float
    unit: str | None


def as_property(results: Mapping[str, Result]) -> dict[str, list[object]]:
    return {target: [result.value, result.unit] for target, result in results.items()}


def results_of(job: JobNode) -> dict[str, Result]:
    """Returns the results of a job by target; its accuracy counts as acc@1 in percent unless it has that.

    Names of one target are one; of two that a job has, the usual one counts.
    """
    found: dict[str, Result] = {}
    if job.accuracy is not None and math.isfinite(job.accuracy):
        found[TOP_1] = Result(100 * job.accuracy, PERCENT)
    if job.convergence is not None and math.isfinite(job.convergence):
        found[CONVERGENCE] = Result(job.convergence, STEPS)
    given = job.properties.get(RESULTS)
    if not isinstance(given, dict):
        return found
    names = [name for name in given if isinstance(name, str)]
    for name in sorted(names, key=lambda name: name == canonical_target(name)):
        target, result = canonical_target(name), _result(given[name])
        if result is not None and (
            target not in found or target not in ACCURACY_TARGETS or _is_percent(target, result)
        ):
            found[target] = result
    return found


def normalized_result(target: str, result: Result) -> Result | None:
    """Returns the value in the unit of comparison; None if it is no valid value of the target."""
    if share_error(target, *result) is not None:
        return None
    found = Result(*normalized_value(target, *result))
    return found if math.isfinite(found.value) else None


def common_unit(target: str, units: Iterable[str | None]) -> str | None:
    """Returns the unit in which values count: the most frequent one, percent for accuracies."""
    if target in ACCURACY_TARGETS:
        return PERCENT
    return next((unit for unit, _ in Counter(units).most_common(1)), None)


def unit_notes(targets: Iterable[str], jobs: Iterable[JobNode], models: Iterable[str]) -> tuple[str, ...]:
    """Returns notes on values in other units, and on targets without a unit."""
    wanted, known = set(targets), set(models)
    units: dict[str, Counter[str | None]] = {target: Counter() for target in sorted(wanted)}
    for job in jobs:
        for target, result in results_of(job).items() if job.model in known else ():
            own = normalized_result(target, result) if target in wanted else None
            if own is not None:
                units[target][own.unit] += 1
    notes: list[str] = []
    for target, counts in units.items():
        unit = common_unit(target, counts.elements())
        if None in counts:
            notes.append(f"no unit is known of {printable(target)}: pass unit=")
        others = f"the {counts[unit]} {_unit_text(unit)}" if counts[unit] else f"values {_unit_text(unit)}"
        notes += [
            f"{count} {'value' if count == 1 else 'values'} of {printable(target)} {_unit_text(other)} "
            f"{'does' if count == 1 else 'do'} not count with {others}"
            for other, count in counts.items() if other != unit
        ]  # fmt: skip
    return tuple(notes)


def check_results(properties: Mapping[str, object]) -> None:
    """Raise `PropertyError` for a result of no number that a float holds, or of a share outside of its range."""
    given = properties.get(RESULTS)
    for name, pair in given.items() if isinstance(given, dict) else ():
        if not isinstance(name, str) or not _is_pair(pair):
            continue
        value, unit = pair
        if type(value) is int and finite_float(value) is None:
            raise PropertyError(f"the result {printable(name)!r} is beyond what a float holds: {safe_repr(value, 30)}")
        number = finite_float(value) if type(value) in (int, float) else None
        fault = None if number is None else share_error(canonical_target(name), number, _unit(unit))
        if fault is not None:
            raise PropertyError(printable(fault, 200))


def _is_percent(target: str, result: Result) -> bool:
    found = normalized_result(target, result)
    return found is not None and found.unit == PERCENT


def _unit_text(unit: str | None) -> str:
    return "without a unit" if unit is None else f"in {printable(unit)!r}"


def _is_pair(pair: object) -> TypeGuard[Sequence[object]]:
    return isinstance(pair, list | tuple) and len(pair) == 2


def _unit(unit: object) -> str | None:
    return unit if isinstance(unit, str) else None


def _result(pair: object) -> Result | None:
    """Returns a stored result, None for any other property of that name."""
    if not _is_pair(pair):
        return None
    value, unit = pair
    number = finite_float(value) if isinstance(value, int | float) else None
    return None if number is None else Result(number, _unit(unit))
