"""Search for the configuration that builds a cut model, verified by building it.

No configuration key is known by name. Where the built model differs from the wanted one, the two sizes
tell which values may have to change: those that equal the size or are a multiple or part of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product
from typing import Any, NamedTuple

import torch

from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.pruning.saving.empty_weights import build_with_empty_weights
from modulekg_widgets.engine.pruning.saving.library_origins import TransformersOrigin, config_document
from modulekg_widgets.engine.pruning.saving.model_signature import (
    SIZE_FACTS,
    ModelSignature,
    differing_facts,
    same_values,
)
from modulekg_widgets.engine.pruning.saving.origin import deep_copied

MAX_STEPS = 16  # keys that change, one after the other
MAX_TRIES = 500  # models that are built in all
MAX_VALUES_TRIED = 40  # values in a step
MAX_PAIRED = 10  # changes that are tried two by two
SHAPE_FACTS = ("size", "dimensions", "length", "class", "tied")
NUMBER = re.compile(r"\.\d+\.")
ConfigPath = tuple[Any, ...]  # the keys and positions that lead to a value
ConfigChange = Mapping[ConfigPath, Any]


class ConfigFit(NamedTuple):
    """The origin with a configuration that builds the cut model, or None; and the reason."""

    origin: TransformersOrigin | None
    reason: str


class CandidateConfig(NamedTuple):
    """A configuration, the signature of the model that it builds, and the differences."""

    config: Mapping[str, Any]
    signature: ModelSignature
    differences: list[tuple[Any, ...]]


@dataclass
class _Goal:
    """The signature to reach, with ignored facts and the number of remaining tries. So many `tries` are left."""

    origin: TransformersOrigin
    wanted: ModelSignature
    loose: Container[tuple[Any, ...]]
    tries: int

    def try_config(self, config: Mapping[str, Any]) -> CandidateConfig | None:
        """The result of a configuration; None if the library rejects it or no tries remain.

        Where it refuses, lists that it computes from other keys are left to it: they may be of the old numbers.
        """
        found = self._build(config)
        if found is None:
            known = self.origin.config
            old = {key for key in self.origin.computed if config.get(key) == known[key]}
            found = self._build({key: value for key, value in config.items() if key not in old}) if old else None
        return found

    def _build(self, config: Mapping[str, Any]) -> CandidateConfig | None:
        self.tries -= 1
        if self.tries < 0:
            return None
        try:
            anatomy = ModelSignature.of(build_with_empty_weights(self.origin.with_config(config).build))
        except Exception:  # noqa: BLE001 - of the library, whatever it checks
            return None
        others = [key for key in differing_facts(self.wanted.facts, anatomy.facts) if key not in self.loose]
        return CandidateConfig(config, anatomy, others)


def fitting_config(
    origin: TransformersOrigin, wanted: ModelSignature, value_of: Callable[[str], torch.Tensor]
) -> ConfigFit:
    """The configuration that builds the wanted model, if there is one."""
    found = nearest_config(origin, wanted)
    reason = found if isinstance(found, str) else describe_mismatch(found, wanted, value_of)
    if isinstance(found, str) or reason:
        return ConfigFit(None, reason)
    found = _minimal_changes(origin, found, wanted, value_of)
    changed = ", ".join(_change_texts(origin.config, found.config)) or "nothing"
    return ConfigFit(origin.with_config(found.config), f"changed in the configuration: {changed}")


def nearest_config(
    origin: TransformersOrigin,
    wanted: ModelSignature,
    ignored: Container[tuple[Any, ...]] = (),
    max_tries: int = MAX_TRIES,
) -> CandidateConfig | str:
    """The configuration whose model is nearest to the wanted one; else the reason."""
    goal = _Goal(origin, wanted, ignored, max_tries)
    start = goal.try_config(origin.config)
    if start is None:
        return "no model is built from the configuration"
    unlike = _unequal_layers(start.signature, wanted)
    if unlike:
        return f"the layers differ, which no configuration says: {printable(unlike)}"
    changed = _changed_with(origin.config, wanted.model)
    followed = goal.try_config(_changed_config(origin.config, changed)) if changed else None
    if followed is not None and len(followed.differences) < len(start.differences):
        start = followed
    return _search(goal, start) if start.differences else start


def _changed_with(config: Mapping[str, Any], model: Any) -> ConfigChange:
    """The configuration changes that a cut has made in the model, as counts of layers."""
    before = dict(_leaves(config))
    after = _leaves(config_document(model.config))
    changed = {place: value for place, value in after if place in before and before[place] != value}
    lists = {place for place, value in changed.items() if isinstance(value, list)}

    def is_in_a_list(place: ConfigPath) -> bool:
        return any(place[:at] in lists for at in range(len(place)))

    return {place: value for place, value in changed.items() if not is_in_a_list(place)}


def _minimal_changes(
    origin: TransformersOrigin, found: CandidateConfig, wanted: ModelSignature, value_of: Callable[[str], torch.Tensor]
) -> CandidateConfig:
    """The configuration with as few changes as possible."""
    goal = _Goal(origin, wanted, (), MAX_TRIES)
    for place, value in _leaves(origin.config):
        now = dict(_leaves(found.config)).get(place)
        if now is not None and type(value) in (int, float, list) and type(now) in (int, float, list) and now != value:
            tried = goal.try_config(_changed_config(found.config, {place: value}))
            if tried is not None and not tried.differences and not describe_mismatch(tried, wanted, value_of):
                found = tried
    return found


def describe_mismatch(found: CandidateConfig, wanted: ModelSignature, value_of: Callable[[str], torch.Tensor]) -> str:
    """The first difference between the built and the wanted model, "" if there is none."""
    others = differing_facts(wanted.facts, found.signature.facts)
    if others:
        return f"no key of the configuration says {_fact_text(others[0])}"
    return _read_differently(found.signature, wanted) or _computed_differently(found.signature, wanted, value_of)


def _search(goal: _Goal, step: CandidateConfig) -> CandidateConfig:
    """The nearest configuration, by successive changes of one or two keys.

    No change may spoil a shape that was right: it would look like progress, as smaller heads do where fewer are wanted.
    """
    wanted = goal.wanted
    for _ in range(MAX_STEPS):
        if not step.differences or goal.tries <= 0:
            break
        near: list[tuple[int, ConfigChange]] = []  # what leads elsewhere, but not nearer
        best = _first_nearer(goal, step, _proposals(step, wanted), near)
        if best is None:
            pairs = ({**one, **other} for one, other in combinations(_best_by_path(near), 2))
            others = chain(pairs, _without_some(step, wanted), _proposals(step, wanted, left_open=True))
            best = _first_nearer(goal, step, others, [])
        if best is None:
            break
        step = best
    return step


def _first_nearer(
    goal: _Goal, step: CandidateConfig, changes: Iterable[ConfigChange], near: list[tuple[int, ConfigChange]]
) -> CandidateConfig | None:
    """The first change that comes nearer; other effective changes are added to `near`."""
    for change in changes:
        tried = goal.try_config(_changed_config(step.config, change))
        if tried is not None and _is_nearer(tried, step):
            return tried
        if tried is not None and set(tried.differences) != set(step.differences):
            near.append((len(tried.differences), change))
            for named in _changes_by_name(change, tried, goal.wanted):
                more = goal.try_config(_changed_config(step.config, named))
                if more is not None and _is_nearer(more, step):
                    return more
    return None


def _changes_by_name(change: ConfigChange, tried: CandidateConfig, wanted: ModelSignature) -> Iterator[ConfigChange]:
    """The change with a key set that has the name of a spoilt attribute."""
    place = next(iter(change))
    home: Any = tried.config
    for key in place[:-1]:
        home = home[key]
    if isinstance(home, Mapping):
        spoilt = {
            key[2]: wanted.facts.get(key)
            for key in tried.differences
            if key[0] == "attribute" and not _is_of_torch(key, wanted)
        }
        for name, value in spoilt.items():
            if type(value) is int and home.get(name) is None:
                yield {**change, (*place[:-1], name): value}


def _is_of_torch(key: tuple[Any, ...], wanted: ModelSignature) -> bool:
    """True if an attribute belongs to a torch layer."""
    return str(wanted.facts.get(("class", key[1]))).startswith("torch.")


def _best_by_path(near: Iterable[tuple[int, ConfigChange]]) -> list[ConfigChange]:
    """The best change for each path."""
    found: dict[ConfigPath, ConfigChange] = {}
    for _, change in sorted(near, key=lambda each: each[0]):
        if len(change) == 1:
            found.setdefault(next(iter(change)), change)
    return list(found.values())[:MAX_PAIRED]


def _is_nearer(tried: CandidateConfig, step: CandidateConfig) -> bool:
    wrong = set(step.differences)
    spoilt = any(key[0] in SHAPE_FACTS and key not in wrong for key in tried.differences)
    return not spoilt and len(tried.differences) < len(step.differences)


# --------------------------------------------------------------- proposals


def _proposals(step: CandidateConfig, wanted: ModelSignature, left_open: bool = False) -> Iterator[ConfigChange]:
    """Changes that may come nearer: all clear ones at once, then one at a time.

    With `left_open` those of keys that have no value yet, and of no others.
    """
    pairs = _size_pairs(step, wanted)
    leaves = [leaf for leaf in _leaves(step.config) if (leaf[1] is None) is left_open]
    clear = {now: new for now, new in pairs if sum(now == other for other, _ in pairs) == 1}
    together = {place: clear[value] for place, value in leaves if type(value) is int and value in clear}
    named = {} if left_open else _named_as_attributes(step, wanted, leaves)
    if named:
        settled = {value for place, value in leaves if place in named}
        yield {
            **{place: new for place, new in together.items() if _value_at(step.config, place) not in settled},
            **named,
        }
    if len(together) > 1:
        yield together
    known: set[tuple[ConfigPath, str]] = set()
    for doubt, (now, to) in product(range(3), pairs):
        for place, value in leaves:
            for new in _scaled_values(value, now, to) if _doubt_level(value, now) == doubt else ():
                if (place, str(new)) not in known and len(known) < MAX_VALUES_TRIED:
                    known.add((place, str(new)))
                    yield {place: new}
        if doubt == 0 and not left_open:
            yield from _shorter_lists(step, wanted, leaves)


def _shorter_lists(
    step: CandidateConfig, wanted: ModelSignature, leaves: Sequence[tuple[ConfigPath, Any]]
) -> Iterator[ConfigChange]:
    """Changes that shorten module lists: the count and all lists by layer."""
    lengths = [(step.signature.facts.get(key), wanted.facts.get(key)) for key in step.differences if key[0] == "length"]
    for now, new in dict.fromkeys(lengths):
        if type(now) is int and type(new) is int and new < now:
            lists = {place: value[:new] for place, value in leaves if isinstance(value, list) and len(value) == now}
            yield from ({**lists, place: new} for place, value in leaves if lists and value == now)


def _doubt_level(value: Any, now: int) -> int:
    """The uncertainty that a value is a size: 0 if equal, 1 for a multiple, 2 for a float."""
    return 0 if value == now else 2 if type(value) is float else 1


def _named_as_attributes(
    step: CandidateConfig, wanted: ModelSignature, leaves: Sequence[tuple[ConfigPath, Any]]
) -> ConfigChange:
    """The keys with the name and value of an attribute that should change."""
    found: dict[tuple[str, int], set[int]] = {}
    for key in step.differences:
        now, new = step.signature.facts.get(key), wanted.facts.get(key)
        if key[0] == "attribute" and type(now) is int and type(new) is int:
            found.setdefault((key[2], now), set()).add(new)
    return {
        place: min(new) for place, value in leaves
        if type(value) is int and len(new := found.get((str(place[-1]), value), set())) == 1
    }  # fmt: skip


def _without_some(step: CandidateConfig, wanted: ModelSignature) -> Iterator[ConfigChange]:
    """All clear changes except for one, two or three."""
    together = next(_proposals(step, wanted), {})
    if 2 < len(together) <= MAX_PAIRED:
        for count in (1, 2, 3):
            for left_out in combinations(together, count):
                yield {place: new for place, new in together.items() if place not in left_out}


def _size_pairs(step: CandidateConfig, wanted: ModelSignature) -> list[tuple[int, int]]:
    """Pairs of present and wanted sizes, the most frequent first."""
    found: Counter[tuple[int, int]] = Counter()
    for key in step.differences:
        now, new = step.signature.facts.get(key), wanted.facts.get(key)
        if key[0] in SIZE_FACTS and type(now) is int and type(new) is int and min(now, new) > 0:
            found[now, new] += 1
    return [pair for pair, _ in found.most_common()]


def _leaves(document: Any, place: ConfigPath = ()) -> Iterator[tuple[ConfigPath, Any]]:
    """The numbers, None values and lists of a document, with their paths."""
    if isinstance(document, Mapping):
        for key, value in document.items():
            yield from _leaves(value, (*place, key))
    elif isinstance(document, list):
        yield place, document
        for at, value in enumerate(document):
            yield from _leaves(value, (*place, at))
    elif document is None or (type(document) in (int, float) and document):
        yield place, document


def _scaled_values(value: Any, now: int, new: int) -> Iterator[Any]:
    """The values that a number may become when a size changes."""
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


def _value_at(config: Mapping[str, Any], place: ConfigPath) -> Any:
    at: Any = config
    for key in place:
        at = at[key]
    return at


def _changed_config(config: Mapping[str, Any], change: ConfigChange) -> dict[str, Any]:
    made = deep_copied(config)
    for place, new in change.items():
        at: Any = made
        for key in place[:-1]:
            at = at[key]
        at[place[-1]] = new
    return made


# ------------------------------------------------------------------ proofs


def _unequal_layers(before: ModelSignature, wanted: ModelSignature) -> str:
    """The name of a tensor whose layers no longer have equal shapes, or ""."""
    shapes: dict[tuple[str, Any], tuple[int, ...]] = {}
    for name, held in wanted.by_name.items():
        old = before.by_name.get(name)
        if old is None or old.tensor.shape == held.tensor.shape:
            continue
        shape = shapes.setdefault((NUMBER.sub(".*.", name), tuple(old.tensor.shape)), tuple(held.tensor.shape))
        if shape != tuple(held.tensor.shape):
            return name
    return ""


def _read_differently(signature: ModelSignature, wanted: ModelSignature) -> str:
    """The configuration value that the code reads at run time and that would differ, or ""."""
    here, there = signature.config_read, wanted.config_read
    key = next((key for key in there if here.get(key) != there[key]), None)
    return "" if key is None else f"the code computes with {printable(key)} of the configuration while it runs"


def _computed_differently(
    signature: ModelSignature, wanted: ModelSignature, value_of: Callable[[str], torch.Tensor]
) -> str:
    """The computed table that would differ, or ""."""
    for name in sorted(wanted.unsaved):
        if wanted.first_names[name] == name and not same_values(value_of(name), signature.by_name[name].tensor):
            return f"{printable(name)} is no file's, and would be computed from other sizes"
    return ""


def _fact_text(key: ConfigPath) -> str:
    kind, *where = key
    return printable(f"the {kind} of {'.'.join(str(part) for part in where)}", 120)


def _change_texts(before: Any, after: Any) -> Iterator[str]:
    old = dict(_leaves(before))
    for place, value in _leaves(after):
        if not isinstance(value, list) and old.get(place) != value:
            yield f"{'.'.join(map(str, place))} {old.get(place)} → {value}"
