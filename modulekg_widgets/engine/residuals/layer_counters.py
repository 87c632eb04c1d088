"""Layer counters that change with removed layers: indices of layers, and counts in configurations.

A layer index is an attribute that each module of a container has with its position as value, as the `layer_idx` by
which a cache knows an attention. An attribute of a configuration is accepted as the count if a module built from a
copy with one layer less, on meta tensors, matches the remaining layers.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.identity.walk import Walk, walk
from modulekg_widgets.engine.torch_runtime.modules import IndexedChildren, index_prefix, module_state
from modulekg_widgets.engine.torch_runtime.private import MODULES

log = logging.getLogger("modulekg_widgets")
AttributeChanges = dict[str, tuple[Any, Any]]  # by path, before → after


def counter_changes(model: nn.Module, paths: Iterable[str]) -> AttributeChanges:
    """The attribute changes when the modules at these paths leave their containers."""
    walked = walk(model)
    places = dict(walked.all_paths())
    gone: dict[str, set[str]] = {}
    for path in paths:
        container, _, name = path.rpartition(".")
        gone.setdefault(container, set()).add(name)
    found: AttributeChanges = {}
    for container, names in gone.items():
        children = walked.states[places[container]][MODULES]
        prefix = index_prefix(children)
        if prefix is not None:
            modules = IndexedChildren(container, prefix)
            numbers = {int(name.removeprefix(prefix)) for name in names}
            found.update(_renumbering(walked, places, modules, len(children), numbers))
            _add_counts(found, walked, places, modules, len(children), numbers)
    return found


# ------------------------------------------------------------- own numbers


LayerNumbers = dict[tuple[str, str], dict[int, int]]  # by the path in a layer and the attribute: layer -> its number


def _layer_numbers(walked: Walk, places: Mapping[str, int], modules: IndexedChildren, count: int) -> LayerNumbers:
    """The attributes that hold the position of a layer in its container."""
    known: LayerNumbers = {}
    for path, index in places.items():
        number, below = modules.split(path) or (count, "")
        for name, value in walked.states[index].items() if number < count else ():
            if type(value) is int:
                known.setdefault((below, name), {})[number] = value
    return {key: values for key, values in known.items() if all(value == at for at, value in values.items())}


def _renumbering(
    walked: Walk, places: Mapping[str, int], modules: IndexedChildren, count: int, removed: set[int]
) -> AttributeChanges:
    """The new indices of layers that move up."""
    numbered = _layer_numbers(walked, places, modules, count)
    places_of: dict[str, set[int]] = {}
    for (_, name), values in numbered.items():
        places_of.setdefault(name, set()).update(values)
    found: AttributeChanges = {}
    for (below, name), values in numbered.items():
        if len(places_of[name]) < 2:  # of one place a number may be of anything
            continue
        for number in values.keys() - removed:
            after = number - sum(other < number for other in removed)
            if after != number:
                found[".".join(filter(None, (modules.path_of(number), below, name)))] = (number, after)
    return found


def first_indexed_layers(model: nn.Module, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The paths in which the first indexed layer lies, with the name of its index.

    What is counted over all layers may be kept at the place of that one, as the length of what a cache holds.
    """
    walked = walk(model)
    places = dict(walked.all_paths())
    for path in paths:
        parts = path.split(".")
        for at in (at for at, part in enumerate(parts) if part.isdecimal()):
            container, number = ".".join(parts[:at]), int(parts[at])
            children = walked.states[places[container]][MODULES]
            numbered = _layer_numbers(walked, places, IndexedChildren(container, ""), len(children))
            own = ".".join(parts[at + 1 :])
            names = [
                name for (below, name), values in numbered.items()
                if number == min(values) and len(values) > 1 and (not own or f"{below}.".startswith(f"{own}."))
            ]  # fmt: skip
            if names:
                yield path, names[0]
                break


# ------------------------------------------------------------------ counts


def _add_counts(
    found: AttributeChanges,
    walked: Walk,
    places: Mapping[str, int],
    modules: IndexedChildren,
    count: int,
    removed: set[int],
) -> None:
    """Add the changes of layer counts and lists by layer in the configuration."""
    container = modules.path
    homes = list(_configurations(walked, places, container))
    for owner, name, config in homes:
        start = f"{owner}.{name}" if owner else name
        known = {attribute: after for attribute, (_, after) in _changes_below(found, start).items()}
        words = _lists_by_layer(vars(config), (str, bool), count, removed)
        numbers = _lists_by_layer(vars(config), (int, float), count, removed)
        # a module around may check lists that the one that holds the container does not
        made = [home for home, _, other in homes if other is config][-1] if numbers else owner
        stays = [walked.states[places[modules.path_of(at)]] for at in range(count) if at not in removed]
        trial = _ConfigTrial(
            type(walked.modules[places[made]]), config, container[len(made) + 1 :] if made else container, known, stays
        )
        for attribute, after in _possible_counts(vars(config), known, count, count - len(removed)):
            lists = trial.lists_with({attribute: after}, words, numbers)
            if lists is not None:
                found[f"{start}.{attribute}"] = (vars(config)[attribute], after)
                found.update({f"{start}.{other}": (vars(config)[other], left) for other, left in lists.items()})
                return


@dataclass(frozen=True)
class _ConfigTrial:
    """A module built from changed configurations, compared with the remaining layers."""

    cls: type
    config: Any
    container: str
    known: Mapping[str, Any]
    remaining_states: Sequence[Mapping[str, Any]]

    def lists_with(
        self, count: Mapping[str, Any], words: Mapping[str, Any], numbers: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """The lists by layer that change with a count; None if it is not the layer count.

        Numbers in a list may be of other things, as strides: they follow where the layers would be others otherwise,
        or the module would not be made.
        """
        lists = dict(words)
        best = self._difference_count({**count, **lists})
        for name, left in numbers.items():
            if (now := self._difference_count({**count, **lists, name: left})) < best:
                lists[name], best = left, now
        if best == math.inf and numbers:
            lists = {**words, **numbers}
            best = self._difference_count({**count, **lists})
            for name in numbers if best < math.inf else ():
                fewer = {key: left for key, left in lists.items() if key != name}
                if self._difference_count({**count, **fewer}) <= best:
                    lists = fewer
        return None if best == math.inf else lists

    def _difference_count(self, changed: Mapping[str, Any]) -> float:
        """The number of attributes that differ from the remaining layers; infinite if counts differ."""
        built = _built_states(self.cls, self.config, {**self.known, **changed}, self.container)
        if built is None or len(built) != len(self.remaining_states):
            return math.inf
        return sum(_differences(one, other) for one, other in zip(built, self.remaining_states, strict=True))


def _differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> int:
    """The number of plain attributes that differ in two modules and below."""
    own = {name: value for name, value in one.items() if type(value) in (int, float, bool, str)}
    unlike = sum(type(other.get(name)) is type(value) and other[name] != value for name, value in own.items())
    theirs = other[MODULES]
    return unlike + sum(
        _differences(module_state(child), module_state(theirs[name])) if theirs.get(name) is not None else 1
        for name, child in one[MODULES].items()
        if child is not None
    )


def _lists_by_layer(
    values: Mapping[str, Any], kinds: tuple[type, ...], count: int, removed: set[int]
) -> dict[str, list[Any]]:
    """The lists with one entry for each layer, without the entries of removed layers."""
    return {
        attribute: [part for at, part in enumerate(value) if at not in removed]
        for attribute, value in values.items()
        # a list of one tells nothing: it is as long as many other things
        if type(value) is list and len(value) == count > 1 and all(type(part) in kinds for part in value)
    }


def _changes_below(found: AttributeChanges, start: str) -> AttributeChanges:
    return {path[len(start) + 1 :]: pair for path, pair in found.items() if path.rpartition(".")[0] == start}


def _configurations(walked: Walk, places: Mapping[str, int], container: str) -> Iterator[tuple[str, str, Any]]:
    """The plain objects that enclosing modules hold and are built from, the innermost first."""
    path = container
    while path:
        path = path.rpartition(".")[0]
        for name, value in walked.states[places[path]].items():
            if name != MODULES and type(getattr(value, "__dict__", None)) is dict and not _is_code(value):
                yield path, name, value


def _is_code(value: object) -> bool:
    return isinstance(value, nn.Module | torch.Tensor | type) or callable(value)


def _possible_counts(values: dict[str, Any], known: dict[str, Any], before: int, after: int) -> Iterator[Any]:
    """The attributes that may be the layer count, with their new values."""
    for attribute, value in values.items():
        if type(value) is int and value == before and attribute not in known:
            yield attribute, after
    for attribute, value in values.items():
        now = known.get(attribute, value)
        if type(value) in (list, tuple) and all(type(part) is int for part in value):
            for at, part in enumerate(value):
                if part == before and now[at] == before:
                    yield attribute, type(value)([*now[:at], after, *now[at + 1 :]])


def _built_states(cls: type, config: Any, changed: Mapping[str, Any], container: str) -> list[Mapping[str, Any]] | None:
    """The states of the layers of a module built from a changed configuration; None if it fails."""
    try:
        new = copy.deepcopy(config)
        vars(new).update(changed)
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            made = cls(new)
        for name in container.split("."):
            made = module_state(made)[MODULES][name]
        return [module_state(child) for child in module_state(made)[MODULES].values()]
    except Exception as error:  # noqa: BLE001 - code of the user's, for sizes that it may not take
        log.debug("%s cannot be made from a changed configuration: %s", cls.__name__, error)
        return None
