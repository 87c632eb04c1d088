"""Two graphs made one: what both know by the same name and what only one does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from modulekg_widgets.engine.errors import DuplicateNameError, shown
from modulekg_widgets.engine.knowledge.contents import Contents
from modulekg_widgets.engine.knowledge.property_values import encode
from modulekg_widgets.engine.knowledge.records import ModelNode

NAMED = {"model": "models", "data set": "datasets", "user": "users", "job": "jobs"}


def without_conflicts(ours: Contents, theirs: Contents, on_conflict: str) -> Contents:
    """What of `theirs` is to be added to `ours`; raises `DuplicateNameError` where both differ and that is an error."""
    found = {kind: _conflicts(getattr(ours, place), getattr(theirs, place)) for kind, place in NAMED.items()}
    if on_conflict == "error" and any(found.values()):
        kind, names = next((kind, names) for kind, names in found.items() if names)
        more = f" and {sum(map(len, found.values())) - 1} more" if sum(map(len, found.values())) > 1 else ""
        raise DuplicateNameError(
            f"both graphs have a {kind} {shown(names[0])!r}{more} and it is not the same: "
            'pass on_conflict="keep" or "replace"; nothing was added'
        )
    fresh = {
        place: _without(getattr(theirs, place), getattr(ours, place), found[kind] if on_conflict == "replace" else [])
        for kind, place in NAMED.items()
    }
    lost = set(found["model"]) if on_conflict == "keep" else set()  # a run of theirs is none of our model of that name
    fresh["jobs"] = {k: replace(job, model=None) if job.model in lost else job for k, job in fresh["jobs"].items()}
    used = {key for model in fresh["models"].values() for key, _ in model.occurrences}
    alone = theirs.modules.keys() - {key for model in theirs.models.values() for key, _ in model.occurrences}
    modules = {key: node for key, node in theirs.modules.items() if key in used or key in alone}
    return replace(theirs, modules=modules, **fresh)


def _conflicts(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    return [name for name, node in theirs.items() if name in ours and not _same(ours[name], node)]


def _same(one: Any, other: Any) -> bool:
    """Equality under which NaN is NaN: a run that diverged is still the same run."""
    return one == other or (not isinstance(one, ModelNode) and encode(asdict(one)) == encode(asdict(other)))


def _without(theirs: Mapping[str, Any], ours: Mapping[str, Any], but: list[str]) -> dict[str, Any]:
    """What only `theirs` has, and those that replace ours."""
    return {name: node for name, node in theirs.items() if name not in ours or name in but}
