"""What a configuration can say of the sizes that cuts left: found by trying, proved by building from it.

No key is known by its name. Where the model that a configuration builds differs from the one that is wanted, the two
sizes tell which values may have to change: what equals the size, or what the size is a multiple of.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, combinations
from typing import Any, NamedTuple

import torch

from modulekg_widgets.engine.errors import shown
from modulekg_widgets.engine.pruning.saving.empty import built_empty
from modulekg_widgets.engine.pruning.saving.origin import fresh
from modulekg_widgets.engine.pruning.saving.transformers_origin import TransformersOrigin
from modulekg_widgets.engine.pruning.saving.twins import SIZES, Anatomy, different, same_values

MOST_STEPS = 16  # keys that change, one after the other
MOST_TRIED = 40  # values in a step
MOST_PAIRED = 10  # changes that are tried two by two
SHAPES = ("size", "dimensions", "length", "class", "tied")
NUMBER = re.compile(r"\.\d+\.")
Place = tuple[Any, ...]  # the keys and positions that lead to a value
Change = Mapping[Place, Any]


class Fit(NamedTuple):
    """The origin with a configuration that builds the cut model at once, or None; and why."""

    origin: TransformersOrigin | None
    reason: str


class _TriedConfig(NamedTuple):
    """A configuration on the way, and what the model that it builds differs in."""

    config: Mapping[str, Any]
    anatomy: Anatomy
    others: list[tuple[Any, ...]]


def fitting_config(origin: TransformersOrigin, wanted: Anatomy, value_of: Callable[[str], torch.Tensor]) -> Fit:
    """The configuration that builds the wanted model, as far as `value_of` its tensors can tell, if there is one."""
    start = _tried(origin, origin.config, wanted)
    if start is None:
        return Fit(None, "no model is built from the configuration")
    unlike = _unlike_layers(start.anatomy, wanted)
    if unlike:
        return Fit(None, f"the layers differ, which no configuration says: {shown(unlike)}")
    found = _search(origin, start, wanted) if start.others else start
    if found.others:
        return Fit(None, f"no key of the configuration says {_named(found.others[0])}")
    reason = _read_differently(found.anatomy, wanted) or _computed_differently(found.anatomy, wanted, value_of)
    if reason:
        return Fit(None, reason)
    changed = ", ".join(_changes(origin.config, found.config)) or "nothing"
    return Fit(origin.with_config(found.config), f"changed in the configuration: {changed}")


def _search(origin: TransformersOrigin, step: _TriedConfig, wanted: Anatomy) -> _TriedConfig:
    """The configuration that comes nearest, by one change or two together after the other.

    No change may spoil a shape that was right: it would look like progress, as smaller heads do where fewer are wanted.
    """
    for _ in range(MOST_STEPS):
        if not step.others:
            break
        near: list[tuple[int, Change]] = []  # what leads elsewhere, but not nearer
        best = _first_nearer(origin, step, _proposals(step, wanted), wanted, near)
        if best is None:
            pairs = ({**one, **other} for one, other in combinations(_best_of_each(near), 2))
            best = _first_nearer(origin, step, chain(pairs, _proposals(step, wanted, left_open=True)), wanted, [])
        if best is None:
            break
        step = best
    return step


def _first_nearer(
    origin: TransformersOrigin,
    step: _TriedConfig,
    changes: Iterable[Change],
    wanted: Anatomy,
    near: list[tuple[int, Change]],
) -> _TriedConfig | None:
    """The first change that leads nearer; into `near` those that lead elsewhere, with how many differences are left."""
    for change in changes:
        tried = _tried(origin, _with(step.config, change), wanted)
        if tried is not None and _is_nearer(tried, step):
            return tried
        if tried is not None and set(tried.others) != set(step.others):
            near.append((len(tried.others), change))
    return None


def _best_of_each(near: Iterable[tuple[int, Change]]) -> list[Change]:
    """The best values of the places that one may have to change together with another."""
    found: dict[Place, Change] = {}
    for _, change in sorted(near, key=lambda each: each[0]):
        if len(change) == 1:
            found.setdefault(next(iter(change)), change)
    return list(found.values())[:MOST_PAIRED]


def _is_nearer(tried: _TriedConfig, step: _TriedConfig) -> bool:
    wrong = set(step.others)
    spoilt = any(key[0] in SHAPES and key not in wrong for key in tried.others)
    return not spoilt and len(tried.others) < len(step.others)


def _tried(origin: TransformersOrigin, config: Mapping[str, Any], wanted: Anatomy) -> _TriedConfig | None:
    """What a configuration leads to; None where the library refuses it."""
    try:
        anatomy = Anatomy.of(built_empty(origin.with_config(config).build))
    except Exception:  # noqa: BLE001 - of the library, whatever it checks
        return None
    return _TriedConfig(config, anatomy, different(wanted.facts, anatomy.facts))


# --------------------------------------------------------------- proposals


def _proposals(step: _TriedConfig, wanted: Anatomy, left_open: bool = False) -> Iterator[Change]:
    """Changes that may bring the configuration nearer: all that are clear at once, then one at a time.

    With `left_open` those of keys that have no value yet, and of no others.
    """
    pairs = _pairs(step, wanted)
    leaves = [leaf for leaf in _leaves(step.config) if (leaf[1] is None) is left_open]
    clear = {now: new for now, new in pairs if sum(now == other for other, _ in pairs) == 1}
    together = {place: clear[value] for place, value in leaves if type(value) is int and value in clear}
    if len(together) > 1:
        yield together
    known: set[tuple[Place, str]] = set()
    for pair in pairs:
        for place, value in leaves:
            for new in _scaled(value, *pair):
                if (place, str(new)) not in known and len(known) < MOST_TRIED:
                    known.add((place, str(new)))
                    yield {place: new}


def _pairs(step: _TriedConfig, wanted: Anatomy) -> list[tuple[int, int]]:
    """The sizes that are and those that should be, the most frequent first."""
    found: Counter[tuple[int, int]] = Counter()
    for key in step.others:
        now, new = step.anatomy.facts.get(key), wanted.facts.get(key)
        if key[0] in SIZES and type(now) is int and type(new) is int and min(now, new) > 0:
            found[now, new] += 1
    return [pair for pair, _ in found.most_common()]


def _leaves(document: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """The numbers of a document, what is left open in it, and its lists as wholes."""
    if isinstance(document, Mapping):
        for key, value in document.items():
            yield from _leaves(value, (*place, key))
    elif isinstance(document, list):
        yield place, document
        for at, value in enumerate(document):
            yield from _leaves(value, (*place, at))
    elif document is None or (type(document) in (int, float) and document):
        yield place, document


def _scaled(value: Any, now: int, new: int) -> Iterator[Any]:
    """What a value may become where a size becomes another that it says, a part of it, or how many parts it has."""
    if value is None or value == now:
        yield new
    if type(value) is int and value > 1:
        for times, of in ((new, now), (now, new)):
            if value * times % of == 0:
                yield value * times // of
    elif type(value) is float:
        yield value * new / now
    elif isinstance(value, list) and len(value) == now > new:
        yield value[:new]


def _with(config: Mapping[str, Any], change: Change) -> dict[str, Any]:
    made = fresh(config)
    for place, new in change.items():
        at: Any = made
        for key in place[:-1]:
            at = at[key]
        at[place[-1]] = new
    return made


# ------------------------------------------------------------------ proofs


def _unlike_layers(before: Anatomy, wanted: Anatomy) -> str:
    """The name of a tensor that had the shape of its like in other layers, and has another one now."""
    shapes: dict[tuple[str, Any], tuple[int, ...]] = {}
    for name, held in wanted.by_name.items():
        old = before.by_name.get(name)
        if old is None or old.tensor.shape == held.tensor.shape:
            continue
        shape = shapes.setdefault((NUMBER.sub(".*.", name), tuple(old.tensor.shape)), tuple(held.tensor.shape))
        if shape != tuple(held.tensor.shape):
            return name
    return ""


def _read_differently(anatomy: Anatomy, wanted: Anatomy) -> str:
    """What the code reads of the configuration while it runs, where it would be another number than in the cut."""
    here, there = anatomy.config_read, wanted.config_read
    key = next((key for key in there if here.get(key) != there[key]), None)
    return "" if key is None else f"the code computes with {shown(key)} of the configuration while it runs"


def _computed_differently(anatomy: Anatomy, wanted: Anatomy, value_of: Callable[[str], torch.Tensor]) -> str:
    """The name of a table that the code computes from sizes, where it would compute another one."""
    for name in sorted(wanted.unsaved):
        if wanted.first_names[name] == name and not same_values(value_of(name), anatomy.by_name[name].tensor):
            return f"{shown(name)} is no file's, and would be computed from other sizes"
    return ""


def _named(key: Place) -> str:
    kind, *where = key
    return shown(f"the {kind} of {'.'.join(str(part) for part in where)}", 120)


def _changes(before: Any, after: Any) -> Iterator[str]:
    old = dict(_leaves(before))
    for place, value in _leaves(after):
        if not isinstance(value, list) and old.get(place) != value:
            yield f"{'.'.join(map(str, place))} {old.get(place)} → {value}"
