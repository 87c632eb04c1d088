"""What a configuration can say of the sizes that cuts left: found by trying, proved by building from it.

No key is known by its name. Where the model that a configuration builds differs from the one that is wanted, the two
sizes tell which values may have to change: what equals the size, or what the size is a multiple of.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product
from typing import Any, NamedTuple

import torch

from modulekg_widgets.engine.errors import shown
from modulekg_widgets.engine.pruning.saving.empty import built_empty
from modulekg_widgets.engine.pruning.saving.library_origins import TransformersOrigin, document_of
from modulekg_widgets.engine.pruning.saving.model_signature import SIZES, Anatomy, different, same_values
from modulekg_widgets.engine.pruning.saving.origin import fresh

MOST_STEPS = 16  # keys that change, one after the other
MOST_TRIES = 500  # models that are built in all
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


class TriedConfig(NamedTuple):
    """A configuration on the way, and what the model that it builds differs in."""

    config: Mapping[str, Any]
    anatomy: Anatomy
    others: list[tuple[Any, ...]]


@dataclass
class _Goal:
    """What a configuration shall build; facts that are `loose` may be any. So many `tries` are left."""

    origin: TransformersOrigin
    wanted: Anatomy
    loose: Container[tuple[Any, ...]]
    tries: int

    def tried(self, config: Mapping[str, Any]) -> TriedConfig | None:
        """What a configuration leads to; None where the library refuses it, and after the last try.

        Where it refuses, lists that it computes from other keys are left to it: they may be of the old numbers.
        """
        found = self._built(config)
        if found is None:
            known = self.origin.config
            old = {key for key in self.origin.computed if config.get(key) == known[key]}
            found = self._built({key: value for key, value in config.items() if key not in old}) if old else None
        return found

    def _built(self, config: Mapping[str, Any]) -> TriedConfig | None:
        self.tries -= 1
        if self.tries < 0:
            return None
        try:
            anatomy = Anatomy.of(built_empty(self.origin.with_config(config).build))
        except Exception:  # noqa: BLE001 - of the library, whatever it checks
            return None
        others = [key for key in different(self.wanted.facts, anatomy.facts) if key not in self.loose]
        return TriedConfig(config, anatomy, others)


def fitting_config(origin: TransformersOrigin, wanted: Anatomy, value_of: Callable[[str], torch.Tensor]) -> Fit:
    """The configuration that builds the wanted model, as far as `value_of` its tensors can tell, if there is one."""
    found = nearest_config(origin, wanted)
    reason = found if isinstance(found, str) else difference(found, wanted, value_of)
    if isinstance(found, str) or reason:
        return Fit(None, reason)
    found = _without_needless(origin, found, wanted, value_of)
    changed = ", ".join(_changes(origin.config, found.config)) or "nothing"
    return Fit(origin.with_config(found.config), f"changed in the configuration: {changed}")


def nearest_config(
    origin: TransformersOrigin, wanted: Anatomy, loose: Container[tuple[Any, ...]] = (), most_tries: int = MOST_TRIES
) -> TriedConfig | str:
    """The configuration whose model comes nearest to the wanted one, but for facts that are `loose`; else why not."""
    goal = _Goal(origin, wanted, loose, most_tries)
    start = goal.tried(origin.config)
    if start is None:
        return "no model is built from the configuration"
    unlike = _unlike_layers(start.anatomy, wanted)
    if unlike:
        return f"the layers differ, which no configuration says: {shown(unlike)}"
    changed = _changed_with(origin.config, wanted.model)
    followed = goal.tried(_with(origin.config, changed)) if changed else None
    if followed is not None and len(followed.others) < len(start.others):
        start = followed
    return _search(goal, start) if start.others else start


def _changed_with(config: Mapping[str, Any], model: Any) -> Change:
    """What a cut has set in the configuration that the model holds, as counts of layers and lists of their kinds."""
    before = dict(_leaves(config))
    after = _leaves(document_of(model.config))
    changed = {place: value for place, value in after if place in before and before[place] != value}
    lists = {place for place, value in changed.items() if isinstance(value, list)}

    def is_in_a_list(place: Place) -> bool:
        return any(place[:at] in lists for at in range(len(place)))

    return {place: value for place, value in changed.items() if not is_in_a_list(place)}


def _without_needless(
    origin: TransformersOrigin, found: TriedConfig, wanted: Anatomy, value_of: Callable[[str], torch.Tensor]
) -> TriedConfig:
    """The configuration with as few changes as will do: what was as large or long as a size by chance stays."""
    goal = _Goal(origin, wanted, (), MOST_TRIES)
    for place, value in _leaves(origin.config):
        now = dict(_leaves(found.config)).get(place)
        if now is not None and type(value) in (int, float, list) and type(now) in (int, float, list) and now != value:
            tried = goal.tried(_with(found.config, {place: value}))
            if tried is not None and not tried.others and not difference(tried, wanted, value_of):
                found = tried
    return found


def difference(found: TriedConfig, wanted: Anatomy, value_of: Callable[[str], torch.Tensor]) -> str:
    """What a configuration builds otherwise than wanted, "" where nothing is."""
    others = different(wanted.facts, found.anatomy.facts)
    if others:
        return f"no key of the configuration says {_named(others[0])}"
    return _read_differently(found.anatomy, wanted) or _computed_differently(found.anatomy, wanted, value_of)


def _search(goal: _Goal, step: TriedConfig) -> TriedConfig:
    """The configuration that comes nearest, by one change or two together after the other.

    No change may spoil a shape that was right: it would look like progress, as smaller heads do where fewer are wanted.
    """
    wanted = goal.wanted
    for _ in range(MOST_STEPS):
        if not step.others or goal.tries <= 0:
            break
        near: list[tuple[int, Change]] = []  # what leads elsewhere, but not nearer
        best = _first_nearer(goal, step, _proposals(step, wanted), near)
        if best is None:
            pairs = ({**one, **other} for one, other in combinations(_best_of_each(near), 2))
            others = chain(pairs, _without_some(step, wanted), _proposals(step, wanted, left_open=True))
            best = _first_nearer(goal, step, others, [])
        if best is None:
            break
        step = best
    return step


def _first_nearer(
    goal: _Goal, step: TriedConfig, changes: Iterable[Change], near: list[tuple[int, Change]]
) -> TriedConfig | None:
    """The first change that leads nearer; into `near` those that lead elsewhere, with how many differences are left."""
    for change in changes:
        tried = goal.tried(_with(step.config, change))
        if tried is not None and _is_nearer(tried, step):
            return tried
        if tried is not None and set(tried.others) != set(step.others):
            near.append((len(tried.others), change))
            for named in _named_alike(change, tried, goal.wanted):
                more = goal.tried(_with(step.config, named))
                if more is not None and _is_nearer(more, step):
                    return more
    return None


def _named_alike(change: Change, tried: TriedConfig, wanted: Anatomy) -> Iterator[Change]:
    """The change with an attribute that it spoils as a key of that name: what is computed may also be said."""
    place = next(iter(change))
    home: Any = tried.config
    for key in place[:-1]:
        home = home[key]
    if isinstance(home, Mapping):
        spoilt = {
            key[2]: wanted.facts.get(key)
            for key in tried.others
            if key[0] == "attribute" and not _is_of_torch(key, wanted)
        }
        for name, value in spoilt.items():
            if type(value) is int and home.get(name) is None:
                yield {**change, (*place[:-1], name): value}


def _is_of_torch(key: tuple[Any, ...], wanted: Anatomy) -> bool:
    """Whether an attribute is of a layer of torch, which knows no configuration."""
    return str(wanted.facts.get(("class", key[1]))).startswith("torch.")


def _best_of_each(near: Iterable[tuple[int, Change]]) -> list[Change]:
    """The best values of the places that one may have to change together with another."""
    found: dict[Place, Change] = {}
    for _, change in sorted(near, key=lambda each: each[0]):
        if len(change) == 1:
            found.setdefault(next(iter(change)), change)
    return list(found.values())[:MOST_PAIRED]


def _is_nearer(tried: TriedConfig, step: TriedConfig) -> bool:
    wrong = set(step.others)
    spoilt = any(key[0] in SHAPES and key not in wrong for key in tried.others)
    return not spoilt and len(tried.others) < len(step.others)


# --------------------------------------------------------------- proposals


def _proposals(step: TriedConfig, wanted: Anatomy, left_open: bool = False) -> Iterator[Change]:
    """Changes that may bring the configuration nearer: all that are clear at once, then one at a time.

    With `left_open` those of keys that have no value yet, and of no others.
    """
    pairs = _pairs(step, wanted)
    leaves = [leaf for leaf in _leaves(step.config) if (leaf[1] is None) is left_open]
    clear = {now: new for now, new in pairs if sum(now == other for other, _ in pairs) == 1}
    together = {place: clear[value] for place, value in leaves if type(value) is int and value in clear}
    named = {} if left_open else _named_as_attributes(step, wanted, leaves)
    if named:
        settled = {value for place, value in leaves if place in named}
        yield {**{place: new for place, new in together.items() if _value(step.config, place) not in settled}, **named}
    if len(together) > 1:
        yield together
    known: set[tuple[Place, str]] = set()
    for doubt, (now, to) in product(range(3), pairs):
        for place, value in leaves:
            for new in _scaled(value, now, to) if _doubt(value, now) == doubt else ():
                if (place, str(new)) not in known and len(known) < MOST_TRIED:
                    known.add((place, str(new)))
                    yield {place: new}
        if doubt == 0 and not left_open:
            yield from _shorter(step, wanted, leaves)


def _shorter(step: TriedConfig, wanted: Anatomy, leaves: Sequence[tuple[Place, Any]]) -> Iterator[Change]:
    """Fewer modules in a list: a key that counts them, with all lists that say something of each of them."""
    lengths = [(step.anatomy.facts.get(key), wanted.facts.get(key)) for key in step.others if key[0] == "length"]
    for now, new in dict.fromkeys(lengths):
        if type(now) is int and type(new) is int and new < now:
            lists = {place: value[:new] for place, value in leaves if isinstance(value, list) and len(value) == now}
            yield from ({**lists, place: new} for place, value in leaves if lists and value == now)


def _doubt(value: Any, now: int) -> int:
    """How far it is from sure that a value says a size: parts of it may be of another thing, and shares rarely are."""
    return 0 if value == now else 2 if type(value) is float else 1


def _named_as_attributes(step: TriedConfig, wanted: Anatomy, leaves: Sequence[tuple[Place, Any]]) -> Change:
    """The keys that have the name and the number of an attribute that should be another: equal sizes tell less."""
    found: dict[tuple[str, int], set[int]] = {}
    for key in step.others:
        now, new = step.anatomy.facts.get(key), wanted.facts.get(key)
        if key[0] == "attribute" and type(now) is int and type(new) is int:
            found.setdefault((key[2], now), set()).add(new)
    return {
        place: min(new) for place, value in leaves
        if type(value) is int and len(new := found.get((str(place[-1]), value), set())) == 1
    }  # fmt: skip


def _without_some(step: TriedConfig, wanted: Anatomy) -> Iterator[Change]:
    """All that is clear at once, but for one, two or three: equal sizes may be of different things."""
    together = next(_proposals(step, wanted), {})
    if 2 < len(together) <= MOST_PAIRED:
        for count in (1, 2, 3):
            for left_out in combinations(together, count):
                yield {place: new for place, new in together.items() if place not in left_out}


def _pairs(step: TriedConfig, wanted: Anatomy) -> list[tuple[int, int]]:
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


def _value(config: Mapping[str, Any], place: Place) -> Any:
    at: Any = config
    for key in place:
        at = at[key]
    return at


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
