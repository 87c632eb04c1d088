"""Jobs by names and times, and the structures that occur at a level of models."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Collection, Iterable

from modulekg_widgets.engine.errors import UnknownNameError, UnknownPathError, closest_match_hint, printable
from modulekg_widgets.engine.identity.levels import LEVELS
from modulekg_widgets.engine.knowledge.facts.contents import Contents, JobNode
from modulekg_widgets.engine.knowledge.facts.jobs import TimeLike, timestamp
from modulekg_widgets.engine.knowledge.facts.records import ModelNode


def filter_jobs(
    contents: Contents,
    user: str | None = None,
    dataset: str | None = None,
    model: str | None = None,
    since: TimeLike = None,
    until: TimeLike = None,
) -> list[JobNode]:
    """Returns the jobs of these names and times; raises `UnknownPathError` for unknown names."""
    for kind, name, known in (
        ("user", user, contents.users), ("data set", dataset, contents.datasets), ("model", model, contents.models)
    ):  # fmt: skip
        if name is not None and (not isinstance(name, str) or name not in known):
            raise unknown_name_error(kind, name, known)
    first, last = timestamp(since, "since"), timestamp(until, "until")
    return [
        job
        for job in contents.jobs.values()
        if (user is None or job.user == user)
        and (dataset is None or job.dataset == dataset)
        and (model is None or job.model == model)
        and (first is None or (job.started if job.ended is None else job.ended) >= first)
        and (last is None or job.started <= last)
    ]


def occurrences_at_level(model: ModelNode, level: str | None) -> Counter[str]:
    """Number of occurrences of each structure in `model`, at one level or at any."""
    uses: Counter[str] = Counter()
    for (key, at), count in model.occurrences.items():
        if level is None or at == level:
            uses[key] += count
    return uses


def structures_at_level(contents: Contents, level: str | None) -> Collection[str]:
    """Returns the structures at one level of some model, or all; raises `UnknownNameError`."""
    checked_level(level)
    if level is None:
        return contents.modules
    return {key for model in contents.models.values() for key, at in model.occurrences if at == level}


def checked_level(level: str | None) -> None:
    """Raise `UnknownNameError` for what is no level."""
    if level is not None and level not in LEVELS:
        raise UnknownNameError(f"there is no level {printable(str(level))!r}: {closest_match_hint(str(level), LEVELS)}")


def checked_number(n: int) -> int:
    """A number of rows; raises `UnknownNameError` for anything else, such as a level in its place."""
    if isinstance(n, bool) or not hasattr(n, "__index__") or n < 0:
        raise UnknownNameError(
            f"{printable(repr(n))} is not a number of rows: give one first, as most_used(10, level='op')"
        )
    return operator.index(n)


def unknown_name_error(kind: str, name: object, known: Iterable[str]) -> UnknownPathError:
    """Returns the error for an unknown name, with similar names."""
    return UnknownPathError(f"there is no {kind} {printable(str(name))!r}: {closest_match_hint(str(name), known)}")
