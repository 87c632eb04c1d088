"""Removal of modules: from their container, or with a placeholder in their position."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import nn

from modulekg_widgets.engine.errors import CutError, closest_match_hint, printable
from modulekg_widgets.engine.identity.walk import Walk
from modulekg_widgets.engine.residuals.stand_ins import Placeholder
from modulekg_widgets.engine.torch_runtime.modules import Attributes, index_prefix
from modulekg_widgets.engine.torch_runtime.private import MODULES


@dataclass(frozen=True, slots=True)
class RemovedModule:
    """A removed module; without a placeholder it leaves its container and later ones move up."""

    path: str
    placeholder: Placeholder | None = None


@dataclass(frozen=True, slots=True)
class MovedModule:
    """A module inside a removed one that another module takes over under the same name."""

    path: str
    owner: str  # the path of the one that takes it

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class ModuleRemoval:
    """Removed modules by their old paths, and the attributes that change with them."""

    modules: tuple[RemovedModule, ...] = ()
    attributes: dict[str, tuple[Any, Any]] = field(default_factory=dict, hash=False)  # before → after
    moved: tuple[MovedModule, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.modules)

    def removes(self, path: str) -> bool:
        """True if a module is removed, by itself or within another one."""
        return _is_within(path, self.modules) and not _is_within(path, self.moved)

    def removes_all(self, names: Iterable[str]) -> bool:
        """True if an attribute or tensor is removed under all of its names."""
        return bool(self.modules) and all(self.removes(name.rpartition(".")[0]) for name in names)


def _is_within(path: str, modules: Iterable[RemovedModule] | Iterable[MovedModule]) -> bool:
    return any(path == each.path or path.startswith(f"{each.path}.") for each in modules)


NOTHING_REMOVED = ModuleRemoval()


class ChildrenChange(NamedTuple):
    """The children of a module, before and after."""

    state: Attributes
    before: dict[str, nn.Module | None]
    after: dict[str, nn.Module | None]


def is_container(module: nn.Module) -> bool:
    """True if a module is a list, dict or sequence of modules."""
    return isinstance(module, nn.ModuleList | nn.ModuleDict | nn.Sequential)


def children_after(walked: Walk, removal: ModuleRemoval) -> list[ChildrenChange]:
    """The changed children of all modules that lose, replace or receive some.

    Raises `CutError` where the model is not what the removal is made for.
    """
    places = dict(walked.all_paths())
    states = {path: walked.states[index] for path, index in places.items()}
    changed: dict[str, dict[str, RemovedModule]] = {}
    for each in removal.modules:
        parent, _, name = each.path.rpartition(".")
        children = states.get(parent, {}).get(MODULES, {})
        if not isinstance(children.get(name), nn.Module):
            raise CutError(
                f"the model has no module {printable(each.path)!r}: {closest_match_hint(each.path, places)}; plan "
                "for this model"
            )
        if each.placeholder is None and not is_container(walked.modules[places[parent]]):
            raise CutError(f"{printable(each.path)} is in no container that it could leave: plan for this model")
        changed.setdefault(parent, {})[name] = each
    taken = _moved_children(states, removal)
    return [
        _children_change(states[parent], changed.get(parent, {}), taken.get(parent, {}))
        for parent in {**changed, **taken}
    ]


def _moved_children(states: Mapping[str, Attributes], removal: ModuleRemoval) -> dict[str, dict[str, nn.Module]]:
    """The modules that others take over, by new owner and name."""
    found: dict[str, dict[str, nn.Module]] = {}
    for each in removal.moved:
        children = states.get(each.path.rpartition(".")[0], {}).get(MODULES, {})
        module = children.get(each.name)
        if not isinstance(module, nn.Module) or not _is_within(each.path, removal.modules):
            raise CutError(f"{printable(each.path)} is not a module inside a removed one: plan for this model")
        owner = states.get(each.owner)
        if owner is None or _is_within(each.owner, removal.modules) or owner.get(each.name) is not None:
            raise CutError(f"{printable(each.owner)} cannot take over {printable(each.path)}: plan for this model")
        if owner[MODULES].get(each.name) is not None or each.name in found.get(each.owner, {}):
            raise CutError(f"{printable(each.owner)} has its own {printable(each.name)}: plan for this model")
        found.setdefault(each.owner, {})[each.name] = module
    return found


def _children_change(
    state: Attributes, gone: Mapping[str, RemovedModule], taken: Mapping[str, nn.Module]
) -> ChildrenChange:
    before = dict(state[MODULES])
    after: dict[str, nn.Module | None] = {}
    prefix = index_prefix(before)
    for name, module in before.items():
        removed = gone.get(name)
        if removed is not None and removed.placeholder is None:
            continue
        kept = removed.placeholder.module(module) if removed and removed.placeholder and module is not None else module
        after[name if prefix is None else f"{prefix}{len(after)}"] = kept
    return ChildrenChange(state, before, {**after, **taken})


def remove_modules(walked: Walk, removal: ModuleRemoval) -> None:
    """Remove the modules in a sandbox; attributes are unchanged."""
    for state, _, after in children_after(walked, removal):
        state[MODULES].clear()
        state[MODULES].update(after)


def paths_after(walked: Walk, removal: ModuleRemoval) -> dict[str, str]:
    """The new path of each remaining module by its old path."""
    names: dict[int, dict[str, str]] = {}
    for state, before, after in children_after(walked, removal):
        now = {id(module): name for name, module in after.items()}
        names[id(state)] = {name: now[id(module)] for name, module in before.items() if id(module) in now}
    states = {path: walked.states[index] for path, index in walked.all_paths()}
    found = {"": ""}
    for path in states:
        parent, _, name = path.rpartition(".")
        own = names.get(id(states.get(parent)), {name: name})
        if path and parent in found and name in own:
            found[path] = f"{found[parent]}.{own[name]}" if found[parent] else own[name]
    for each in removal.moved:
        below = [path for path in states if _is_within(path, [each])]
        found.update({path: f"{found[each.owner]}.{each.name}{path.removeprefix(each.path)}" for path in below})
    return found


def outermost_paths(paths: Iterable[str]) -> list[str]:
    """The paths without those inside of another one."""
    every = list(dict.fromkeys(paths))
    return [path for path in every if not any(path.startswith(f"{other}.") for other in every)]
