"""The numbers of a configuration, and the sizes that follow each: for `layers="uniform"` and `config={…}` of a plan.

No key is known by name. Each number that may matter is changed once, and the model is built from it with
empty weights: the sizes that differ are those that the number says, and the ratio tells how (`NumberEffect`).
From that follow the axes that one number ties (`plan/uniform_plan`) and, the other way round, the
numbers for wanted sizes (`ConfigNumbers.fitting`), which one more model proves.

`explain(sizes)` tries as few numbers as it can: those that equal a size or a part of it, one by one, and
others that could make it, as factors and keys without a value, in halves of all of them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import prod
from typing import Any, NamedTuple

import torch

from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.pruning.saving.empty_weights import build_with_empty_weights
from modulekg_widgets.engine.pruning.saving.library_origins import TransformersOrigin, config_document
from modulekg_widgets.engine.pruning.saving.model_signature import (
    SIZE_FACTS,
    FactKey,
    ModelSignature,
    differing_facts,
    same_values,
)
from modulekg_widgets.engine.pruning.saving.origin import deep_copied

ConfigPath = tuple[str | int, ...]  # the keys and positions that lead to a value
ConfigChange = Mapping[ConfigPath, Any]
MIN_FACTOR = 0.25  # floats below are rates and tolerances, not factors of sizes
EXACT = 1e-9
MAX_ROUNDS = 3  # of numbers that are found by what the first ones leave
READ, COMPUTED = "read", "computed"  # kinds of facts: a value that code reads while it runs, a computed table
NUMBER = re.compile(r"\.\d+\.")


@dataclass(frozen=True, eq=False)
class NumberEffect:
    """A number of a configuration, another value of it, and the facts of the model that differ with that."""

    paths: tuple[ConfigPath, ...]  # of several where the library takes no other value of one alone
    value: float  # of the first; of a key without a value, which is absent: the one that makes the model as it is
    tried: float
    sizes: Mapping[FactKey, tuple[int, int]]
    others: frozenset[FactKey]
    is_absent: bool = False

    @property
    def facts(self) -> Collection[FactKey]:
        return self.sizes.keys() | self.others

    def exponent(self, key: FactKey) -> int | None:
        """The power of the number that a size is a multiple of; None if it is none."""
        old, new = self.sizes.get(key, (1, 1))
        return next((power for power in (0, 1, -1, 2)
                     if abs(new - old * (self.tried / self.value) ** power) < EXACT * new), None)  # fmt: skip

    def factor(self, key: FactKey, number: float) -> float | None:
        """The factor of a size for another value of the number; None if the size is no power of it."""
        power = 0 if number == self.value else self.exponent(key)
        return None if power is None else (number / self.value) ** power

    def number_for(self, key: FactKey, old: float, wanted: int) -> float:
        """The number for a wanted size."""
        power = self.exponent(key)
        if power:
            return self.value * (wanted / old) ** (1 / power)
        before, after = self.sizes[key]
        return self.value + (wanted - old) * (self.tried - self.value) / (after - before)


class CandidateConfig(NamedTuple):
    """A configuration and the signature of the model that it builds."""

    config: Mapping[str, Any]
    signature: ModelSignature


class Fitting(NamedTuple):
    """The numbers that change, and what they build; None if the library refuses them."""

    change: ConfigChange
    built: CandidateConfig | None


@dataclass
class ConfigNumbers:
    """The numbers of one configuration; what each says is found when it is needed."""

    origin: TransformersOrigin
    _effects: dict[ConfigPath, NumberEffect | None] = field(default_factory=dict, repr=False)
    _joint_facts: dict[ConfigPath, frozenset[FactKey]] = field(default_factory=dict, repr=False)  # of trials in groups
    _pairs: dict[tuple[ConfigPath, ...], NumberEffect | None] = field(default_factory=dict, repr=False)

    @cached_property
    def base(self) -> ModelSignature:
        """The signature of the model as the configuration builds it."""
        return ModelSignature.of(build_with_empty_weights(self.origin.build))

    @property
    def effects(self) -> list[NumberEffect]:
        """The effects that are known, of numbers with any."""
        found = (*self._effects.values(), *self._pairs.values())
        return [each for each in found if each is not None and each.facts]

    def build(self, change: ConfigChange) -> CandidateConfig | None:
        """The model of a changed configuration; None if the library refuses it.

        Where it refuses, lists that it computes from other keys are left to it: they may be of the old numbers.
        """
        known = self.origin.config
        if not change:
            return CandidateConfig(known, self.base)
        config = changed_config(known, change)
        old = {key for key in self.origin.computed if config.get(key) == known[key]}
        for left_out in [set(), old] if old else [set()]:
            document = {key: value for key, value in config.items() if key not in left_out}
            try:
                made = ModelSignature.of(build_with_empty_weights(self.origin.with_config(document).build))
            except Exception:  # noqa: BLE001 - of the library, whatever it checks
                continue
            return CandidateConfig(document, made)
        return None

    def refusal(self, change: ConfigChange) -> str:
        """The library's own words on a configuration that it refuses, in one line; "" if it takes it."""
        try:
            build_with_empty_weights(self.origin.with_config(changed_config(self.origin.config, change)).build)
        except Exception as error:  # noqa: BLE001 - of the library, whatever it checks
            return printable(" ".join(str(error).split()) or type(error).__name__, 200)
        return ""

    # --------------------------------------------------------- what follows a number

    def explain(self, sizes: Mapping[FactKey, Collection[int]], only_quotients: bool = False) -> None:
        """Find the numbers that these facts follow, given the sizes that each may consist of.

        `only_quotients`: only those by which known numbers are divided, as heads in the size of a head.
        """
        lengths = {value for key, value in self.base.facts.items() if key[0] == "length"}
        numbers = [(path, value) for path, value in leaves(self.origin.config) if type(value) is int and value > 1]
        numbers.sort(key=lambda each: each[1] in lengths)
        ways = (self._own_size, sizes.__getitem__, self._quotients)
        for parts_of in ways[2:] if only_quotients else ways:
            left = {key: parts_of(key) for key, parts in sizes.items() if not self._is_explained(key, parts)}
            for path, value in numbers:
                if any(value in parts and not self._follows(key, value) for key, parts in left.items()):
                    self._effect(path)
        left = {key: parts for key, parts in sizes.items() if not self._is_explained(key, parts)}
        if left and not only_quotients:
            self._explain_rest(left, lengths)
        equal = {each.value for each in self.effects}
        for path, value in numbers:
            if value in equal:  # as heads of queries and of keys, which make one size together
                self._effect(path)

    def _own_size(self, key: FactKey) -> tuple[int]:
        size = self.base.facts[key]
        assert isinstance(size, int)
        return (size,)

    def _quotients(self, key: FactKey) -> set[float]:
        """The divisors by which the numbers that a fact follows give its size."""
        (size,) = self._own_size(key)
        return {each.value // size for each in self.effects if key in each.sizes and each.value % size == 0} - {1}

    def _follows(self, key: FactKey, value: float) -> bool:
        """True if a known number of this value moves a fact."""
        return any(each.value == value and key in each.facts for each in self.effects)

    def _is_explained(self, key: FactKey, parts: Collection[int]) -> bool:
        own = [part for part in dict.fromkeys(parts) if self._follows(key, part)]
        whole = self.base.facts[key]
        if whole in own or (len(own) > 1 and prod(own) == whole):
            return True
        return any(self._follows(key, part) for part in self._quotients(key))

    def _explain_rest(self, sizes: Mapping[FactKey, Collection[int]], lengths: Container[int]) -> None:
        """Try factors, parts and keys without a value, in halves."""
        own = {size for key in sizes if type(size := self.base.facts[key]) is int}
        group: dict[ConfigPath, Any] = {}
        for path, value in leaves(self.origin.config):
            is_known = path in self._effects or sizes.keys().isdisjoint(self._joint_facts.get(path, sizes))
            if is_known or (type(value) is int and value in lengths):
                continue
            if value is None:
                group[path] = max(max(own) // 2, 1)
            elif type(value) is float and value >= MIN_FACTOR:
                group[path] = value * 2 if value * 2 > 1 else value / 2
            elif type(value) is int and value > 1 and any(size % value == 0 for size in own):
                group[path] = self._other_values(value)[0]
        self._halve(group, sizes.keys())

    def _halve(self, group: ConfigChange, keys: AbstractSet[FactKey]) -> None:
        """Find the numbers of a group that move one of the keys."""
        if len(group) == 1:
            path, tried = next(iter(group.items()))
            self._effect(path, [tried])
        elif group:
            built = self.build(group)
            if built is not None:
                moved = frozenset(differing_facts(self.base.facts, built.signature.facts))
                self._joint_facts.update(dict.fromkeys(group, moved))
                if keys.isdisjoint(moved):
                    return
            paths = list(group)
            for half in (paths[: len(paths) // 2], paths[len(paths) // 2 :]):
                self._halve({path: group[path] for path in half}, keys)

    def _effect(self, path: ConfigPath, values: Iterable[Any] | None = None) -> None:
        """Try other values of a number, until the library takes one."""
        if path in self._effects:
            return
        value = value_at(self.origin.config, path)
        self._effects[path] = None
        for tried in self._other_values(value) if values is None else values:
            built = self.build(self._with_lists(path, value, tried))
            if built is not None:
                self._effects[path] = self._compared((path,), value, tried, built.signature)
                break
        else:
            self._try_with_others(path)

    def _other_values(self, value: int) -> list[int]:
        """Other values of a number that divide and are divided as before, those first that no other number has."""
        found = [value // 2 if value % 2 == 0 else 1, 2 * value, 4 * value]
        return sorted(found, key=self._integers.__contains__)

    @cached_property
    def _integers(self) -> frozenset[int]:
        return frozenset(value for _, value in leaves(self.origin.config) if type(value) is int)

    def _try_with_others(self, path: ConfigPath) -> None:
        """Try a number together with each other one that is not taken alone: their product may have to stay equal."""
        stuck = [other for other, effect in self._effects.items() if effect is None and other != path]
        for other in stuck:
            pair = {each: value for each in (path, other) if type(value := value_at(self.origin.config, each)) is int}
            change = {each: value // 2 for each, value in pair.items() if value % 2 == 0}
            built = self.build(change) if len(change) == 2 else None
            if built is not None:
                paths = tuple(pair)
                self._pairs[paths] = self._compared(paths, pair[path], change[path], built.signature)

    def _with_lists(self, path: ConfigPath, value: Any, tried: Any) -> ConfigChange:
        """The change of a number; if it is a count of layers, lists of as many elements are shortened."""
        if type(value) is not int or tried > value:
            return {path: tried}
        if not any(key[0] == "length" and size == value for key, size in self.base.facts.items()):
            return {path: tried}
        lists = {place: each[:tried] for place, each in leaves(self.origin.config)
                 if isinstance(each, list) and len(each) == value and place[:-1] == path[:-1]}  # fmt: skip
        return {**lists, path: tried}

    def _compared(
        self, paths: tuple[ConfigPath, ...], value: Any, tried: Any, built: ModelSignature
    ) -> NumberEffect | None:
        sizes: dict[FactKey, tuple[int, int]] = {}
        others = set[FactKey]()
        for key in differing_facts(self.base.facts, built.facts):
            old, new = self.base.facts.get(key), built.facts.get(key)
            if key[0] in SIZE_FACTS and type(old) is int and type(new) is int and min(old, new) > 0:
                sizes[key] = old, new
            else:
                others.add(key)
        others |= {*read_differences(built, self.base), *computed_differences(built, self.base, self._computed)}
        is_absent = value is None
        if is_absent:
            whole = Counter(old * tried / new for old, new in sizes.values())
            if not whole:
                return None
            value = whole.most_common(1)[0][0]
        return NumberEffect(paths, value, tried, sizes, frozenset(others), is_absent)

    def _computed(self, name: str) -> torch.Tensor:
        return self.base.by_name[name].tensor

    # --------------------------------------------------------- numbers for wanted sizes

    def fitting(self, wanted: ModelSignature, ignored: Container[FactKey] = ()) -> Fitting:
        """The numbers to change for the sizes of a wanted model, and the model that they build."""
        start = change = self._changed_in(wanted)
        built = self.build(start)
        for _ in range(MAX_ROUNDS):
            signature = self.base if built is None else built.signature
            differing = [key for key in differing_facts(wanted.facts, signature.facts) if key not in ignored]
            known = len(self._effects)
            self._explain_facts(differing)
            if not differing or (change is not start and len(self._effects) == known):
                break
            change = {**start, **self._solve(wanted.facts)}
            built = self.build(change)
        return Fitting(change, built)

    def _explain_facts(self, differing: Iterable[FactKey]) -> None:
        base = self.base.facts
        sizes = [key for key in differing if type(base.get(key)) is int and key[0] in SIZE_FACTS]
        self.explain({key: self._own_size(key) for key in sizes})

    def _changed_in(self, wanted: ModelSignature) -> ConfigChange:
        """The changes that a cut has made in the configuration of the model itself, as counts of layers."""
        config: Any = wanted.model.config
        before, after = dict(leaves(self.origin.config)), leaves(config_document(config))
        changed = {path: value for path, value in after if path in before and before[path] != value}
        lists = {path for path, value in changed.items() if isinstance(value, list)}
        return {path: value for path, value in changed.items()
                if not any(path[:at] in lists for at in range(len(path)))}  # fmt: skip

    def _solve(self, wanted: Mapping[FactKey, Any]) -> dict[ConfigPath, Any]:
        """The numbers that change: each follows from the sizes that it moves and no other that is still open."""
        open_numbers = self.effects
        fixed: dict[NumberEffect, float] = {}
        while open_numbers:
            solved = next((
                (number, value) for number in open_numbers
                if (value := self._solution(number, [other for other in open_numbers if other is not number],
                                            fixed, wanted)) is not None
            ), None)  # fmt: skip
            number, value = solved or (min(open_numbers, key=lambda each: each.value), None)
            open_numbers = [each for each in open_numbers if each is not number]
            fixed[number] = number.value if value is None else value
        return self._change(fixed)

    def _change(self, values: Mapping[NumberEffect, float]) -> dict[ConfigPath, Any]:
        """The values of the configuration for those of its numbers."""
        found: dict[ConfigPath, Any] = {}
        for number, value in values.items():
            for path in number.paths if value != number.value else ():
                before = found.get(path, value_at(self.origin.config, path))
                new = value if number.is_absent else before * value / number.value
                found[path] = new
        return {path: new if type(value_at(self.origin.config, path)) is float else round(new)
                for path, new in found.items()}  # fmt: skip

    def _solution(
        self, number: NumberEffect, others: Sequence[NumberEffect], fixed: Mapping[NumberEffect, float],
        wanted: Mapping[FactKey, Any],
    ) -> float | None:  # fmt: skip
        """The value that most of a number's sizes ask for; None if all of them follow other open numbers, too."""
        votes: Counter[float] = Counter()
        is_float = type(value_at(self.origin.config, number.paths[0])) is float
        for key, (old, _) in number.sizes.items():
            size = wanted.get(key)
            if type(size) is not int or any(key in other.sizes for other in others):
                continue
            factors = [other.factor(key, value) for other, value in fixed.items()]
            if None in factors:
                continue
            scaled = old * prod(each or 1 for each in factors)
            if number.is_absent:  # it says the size by itself, or not at all
                found = number.value if abs(scaled - size) < EXACT else number.number_for(key, old, size)
            else:
                found = number.number_for(key, scaled, size)
            if is_float or (found > 0 and abs(found - round(found)) < EXACT):
                votes[found if is_float else round(found)] += old  # small sizes are rounded ones
        return votes.most_common(1)[0][0] if votes else None


@lru_cache(maxsize=2)
def _numbers_of(cls: type, config: str, kernels: tuple[tuple[str, str], ...]) -> ConfigNumbers:
    return ConfigNumbers(TransformersOrigin(cls, json.loads(config), dict(kernels)))


def config_numbers(origin: TransformersOrigin) -> ConfigNumbers:
    """The numbers of a configuration, with what was found of the last ones."""
    return _numbers_of(origin.cls, json.dumps(origin.config, sort_keys=True), tuple(sorted(origin.kernels.items())))


# --------------------------------------------------------- the configuration of a cut model


class ConfigFit(NamedTuple):
    """The origin with a configuration that builds the cut model, or None; and the reason."""

    origin: TransformersOrigin | None
    reason: str


def fitting_config(
    origin: TransformersOrigin, wanted: ModelSignature, value_of: Callable[[str], torch.Tensor]
) -> ConfigFit:
    """The configuration that builds the wanted model, if there is one."""
    numbers = config_numbers(origin)
    unlike = differing_layers(numbers.base, wanted)
    if unlike:
        return ConfigFit(None, f"the layers differ, which no configuration says: {printable(unlike)}")
    change, found = numbers.fitting(wanted)
    others = [] if found is None else mismatches(found, wanted, value_of)
    if found is None or others:
        return ConfigFit(None, describe_mismatch(others, numbers.refusal(change)))
    changed = ", ".join(_change_texts(origin.config, found.config)) or "nothing"
    return ConfigFit(origin.with_config(found.config), f"changed in the configuration: {changed}")


def mismatches(
    built: CandidateConfig, wanted: ModelSignature, value_of: Callable[[str], torch.Tensor]
) -> list[FactKey]:
    """The facts of a built model that are others in the wanted one, read and computed ones among them."""
    different = differing_facts(wanted.facts, built.signature.facts)
    read = read_differences(built.signature, wanted)
    return different or [*read, *computed_differences(built.signature, wanted, value_of)]


def describe_mismatch(others: Sequence[FactKey], refusal: str = "") -> str:
    """The first mismatch as text; if there is none, the library's refusal of the numbers."""
    if not others:
        return f"the library refuses the configuration of the wanted sizes{refusal and f': {refusal}'}"
    kind, *where = others[0]
    name = ".".join(str(part) for part in where if part != "")  # the root's path is empty
    if kind == READ:
        return f"the code computes with {printable(name)} of the configuration while it runs"
    if kind == COMPUTED:
        return f"{printable(name)} does not come from a file, and would be computed from other sizes"
    return f"no key of the configuration says {printable(f'the {kind} of {name}', 120)}"


def read_differences(signature: ModelSignature, wanted: ModelSignature) -> Iterator[FactKey]:
    """The configuration values that the code reads while it runs and that differ."""
    here, there = signature.config_read, wanted.config_read
    return ((READ, key) for key in there if here.get(key) != there[key])


def computed_differences(
    signature: ModelSignature, wanted: ModelSignature, value_of: Callable[[str], torch.Tensor]
) -> Iterator[FactKey]:
    """The computed tables that differ, of those that have equal sizes."""
    for name in sorted(wanted.unsaved):
        held = signature.by_name.get(name)
        if held is not None and wanted.first_names[name] == name and not same_values(value_of(name), held.tensor):
            yield COMPUTED, name


def differing_layers(before: ModelSignature, wanted: ModelSignature) -> str:
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


def _change_texts(before: Any, after: Any) -> Iterator[str]:
    old = dict(leaves(before))
    for path, value in leaves(after):
        if not isinstance(value, list) and old.get(path) != value:
            yield f"{'.'.join(map(str, path))} {old.get(path)} → {value}"


# --------------------------------------------------------- values of a document


def leaves(document: Any, path: ConfigPath = ()) -> Iterator[tuple[ConfigPath, Any]]:
    """The numbers, None values and lists of a document, with their paths."""
    if isinstance(document, Mapping):
        for key, value in document.items():
            yield from leaves(value, (*path, key))
    elif isinstance(document, list):
        yield path, document
        for at, value in enumerate(document):
            yield from leaves(value, (*path, at))
    elif document is None or (type(document) in (int, float) and document):
        yield path, document


def value_at(config: Mapping[str, Any], path: ConfigPath) -> Any:
    """The value at a path."""
    at: Any = config
    for key in path:
        at = at[key]
    return at


def changed_config(config: Mapping[str, Any], change: ConfigChange) -> dict[str, Any]:
    """A copy of a configuration with other values."""
    made = deep_copied(config)
    for path, new in change.items():
        at: Any = made
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = new
    return made
