"""Walk over the modules of a model: iterative, each object once, through `__dict__` alone, so that no user code runs.

`walk(model)` returns a `Walk`: parallel lists of modules, names, parents and `__dict__`s in the order of `modules()`,
with the root at index 0. Fingerprints, hierarchies and every widget start here. There is no object for each module: a
fingerprint of a million modules spends its time in this file.

Shared modules, cycles and empty slots are kept in `Paths.irregular` and listed by `links()`. The wrapper of
`torch.compile` is passed through; the class of a parametrized or FSDP module is the one that the user wrote
(`nominal_class`).

Errors name the path: `NotAModuleError` for anything but modules, `BrokenModuleError` for one that has not run
`nn.Module.__init__`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import PurePath
from typing import Any, NamedTuple, TypeVar

from torch import nn

from modulekg_widgets.engine.errors import BrokenModuleError, NotAModuleError, a_type, printable
from modulekg_widgets.engine.identity.classes import class_names, is_text
from modulekg_widgets.engine.identity.skeleton_source import SkeletonSource
from modulekg_widgets.engine.identity.tensors import native_script
from modulekg_widgets.engine.torch_runtime.modules import Attributes, is_script, module_state, unwrapped
from modulekg_widgets.engine.torch_runtime.private import MODULES, WRAPPER_ATTRIBUTES, type_of_script

# -------------------- Slots and dotted paths of the modules of a model, without the modules themselves


Slot = tuple[str, int | None]


class Link(NamedTuple):
    """A slot whose module was met before at another slot."""

    parent: int
    name: str
    target: int
    kind: str  # "shared", or "cycle" when the target contains the slot


class Paths:
    """The slots of a model as parallel lists, depth first in the order of `modules()`; index 0 is the root."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.parents: list[int] = []
        self.children: dict[int, list[int]] = {}  # of containers: the modules that have their place directly below
        self.irregular: dict[int, list[Slot]] = {}  # all slots of containers that have empty, shared or cyclic ones
        self._lookups: dict[int, tuple[dict[str, int], bool]] = {}

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def depths(self) -> list[int]:
        depths: list[int] = []
        for parent in self.parents:
            depths.append(depths[parent] + 1 if parent >= 0 else 0)
        return depths

    def slots(self, index: int) -> list[Slot]:
        """The entries of a module's `_modules`: (name, index of the module), the index None for an empty slot."""
        irregular = self.irregular.get(index)
        return irregular if irregular is not None else [(self.names[c], c) for c in self.children.get(index, ())]

    def path(self, index: int) -> str:
        """The dotted path of module `index`; the root's is empty."""
        segments: list[str] = []
        while index > 0:
            segments.append(self.names[index])
            index = self.parents[index]
        return ".".join(reversed(segments))

    @cached_property
    def subtree_ends(self) -> list[int]:
        """For each module the index behind its subtree, which follows it in pre-order."""
        ends = list(range(1, len(self) + 1))
        for index in range(len(self) - 1, 0, -1):
            ends[self.parents[index]] = max(ends[self.parents[index]], ends[index])
        return ends

    def find(self, path: str) -> int | None:
        """The index of the module at a dotted path; a shared module is found under each of its paths."""
        # names may hold dots themselves, so more than one cut of the path can fit; the longest name is tried first
        waiting: list[tuple[int, str | None]] = [(0, path or None)]
        tried: set[tuple[int, str | None]] = set()
        while waiting:
            index, rest = waiting.pop()
            if rest is None:
                return index
            slots, dotted = self._lookup(index)
            cut = rest.find(".")
            while cut >= 0:
                child = slots.get(rest[:cut])
                if child is not None and (child, rest[cut + 1 :]) not in tried:
                    waiting.append((child, rest[cut + 1 :]))
                    tried.add(waiting[-1])
                cut = rest.find(".", cut + 1) if dotted else -1
            if rest in slots:
                waiting.append((slots[rest], None))
        return None

    def _lookup(self, index: int) -> tuple[dict[str, int], bool]:
        """The modules in the slots of module `index` by name, and whether a name holds a dot."""
        found = self._lookups.get(index)
        if found is None:
            slots = {name: child for name, child in self.slots(index) if child is not None}
            found = self._lookups[index] = slots, any("." in name for name in slots)
        return found

    def similar_paths(self, path: str) -> list[str]:
        """Returns paths of about the same depth for suggestions in errors, a limited number."""
        depth = path.count(".") + 1
        near = [i for i in range(1, min(len(self), 20_000)) if abs(self.depths[i] - depth) <= 1]
        return [self.path(i) for i in near[:2_000]]

    def is_first_slot(self, parent: int, name: str, index: int) -> bool:
        """True if this slot is the first that leads to the module."""
        return self.parents[index] == parent and self.names[index] == name

    def links(self) -> Iterator[Link]:
        """Yields the slots whose module has an earlier slot: shared modules and cycles."""
        for parent, slots in self.irregular.items():
            for name, index in slots:
                if index is None or self.is_first_slot(parent, name, index):
                    continue
                yield Link(parent, name, index, "cycle" if self.common_ancestor(parent, index) == index else "shared")

    def common_ancestor(self, left: int, right: int) -> int:
        """Returns the deepest module that contains both, or is one of them."""
        while left != right:
            # a module comes before all that it contains, so the later of the two is no ancestor of the other
            if left > right:
                left = self.parents[left]
            else:
                right = self.parents[right]
        return left

    def reachable(self, start: int) -> set[int]:
        """The modules that can be reached from module `start` through any slots, itself included."""
        seen, waiting = {start}, [start]
        while waiting:
            for _, index in self.slots(waiting.pop()):
                if index is not None and index not in seen:
                    seen.add(index)
                    waiting.append(index)
        return seen

    def all_paths(self) -> list[tuple[str, int]]:
        """Returns every dotted path with the index of its module; further paths of shared modules come last."""
        places = [(self.path(index), index) for index in range(len(self))]
        for link in self.links():
            if link.kind == "shared":
                above, path = self.path(link.parent), self.path(link.target)
                alias = f"{above}.{link.name}" if above else link.name
                below = range(link.target, self.subtree_ends[link.target])
                places += [(alias + self.path(inner)[len(path) :], inner) for inner in below]
        return places


# ----------------------------------------


PathsT = TypeVar("PathsT", bound=Paths)


class Walk(Paths):
    """The modules of a model with their paths, as parallel lists.

    Kept lean, with no object per module: a fingerprint of a million modules spends its time here.
    """

    def __init__(self) -> None:
        super().__init__()
        self.modules: list[nn.Module] = []
        self.states: list[Attributes] = []  # each module's __dict__

    @cached_property
    def bottom_up(self) -> Sequence[int]:
        """The indices so that a module comes after all that its slots lead to, but for cycles."""
        if not any(index is not None for slots in self.irregular.values() for _, index in slots):
            return range(len(self.modules) - 1, -1, -1)
        order: list[int] = []
        entered = {0}
        stack = [(0, iter(self.slots(0)))]
        while stack:
            index, slots = stack[-1]
            for _, child in slots:
                if child is not None and child not in entered:
                    entered.add(child)
                    stack.append((child, iter(self.slots(child))))
                    break
            else:
                stack.pop()
                order.append(index)
        return order

    def paths_only(self) -> Paths:
        """Returns the paths without the modules, for callers that must not keep the model alive."""
        return self._with_same_paths(Paths())

    def with_modules(self, modules: list[nn.Module]) -> Walk:
        """Returns the same paths with the modules of a copy, in the same order."""
        new = self._with_same_paths(Walk())
        new.modules, new.states = modules, list(map(module_state, modules))
        return new

    def _with_same_paths(self, new: PathsT) -> PathsT:
        new.names, new.parents, new.children, new.irregular = self.names, self.parents, self.children, self.irregular
        return new


def walk(model: nn.Module, children_override: Mapping[int, Mapping[str, Any]] | None = None) -> Walk:
    """Walk `model` once, each module object once; raises `NotAModuleError` or `BrokenModuleError` naming the path.

    `children_override`: the children that some modules, by their identity, count as having instead of their own.
    """
    children_override = children_override or {}
    root = unwrapped(_checked_root(model))
    out = Walk()
    modules, states, names, parents = out.modules, out.states, out.names, out.parents
    index_of: dict[int, int] = {}
    ordinary: set[type] = set()  # classes that were checked: neither None, nor a wrapper, nor TorchScript
    count = 0
    below: list[int] = []
    # (index of a module, its children so far, its slots to come); the root enters through a slot like every other
    stack: list[tuple[int, list[int], Iterator[tuple[str, Any]]]] = [(-1, below, iter([("", root)]))]
    while stack:
        parent, below, children = stack[-1]
        for name, child in children:
            if type(child) not in ordinary:
                if child is None:
                    out.irregular[parent] = []
                    continue
                child = _checked_child(child, name, out, parent)
                if not is_script(child):
                    ordinary.add(type(child))
            key = id(child)
            if key in index_of:
                out.irregular[parent] = []
                continue
            index_of[key] = count
            below.append(count)
            state = module_state(child)
            modules.append(child)
            states.append(state)
            names.append(name)
            parents.append(parent)
            count += 1
            slots = children_override.get(key) or state.get(MODULES)
            if slots and type(child) in ordinary:
                inside = out.children[count - 1] = []
                stack.append((count - 1, inside, iter(list(slots.items()))))
                break
            if slots is None and type(child) in ordinary:
                raise _uninitialised_error(child, out.path(count - 1))
        else:
            stack.pop()
    if not all(issubclass(kind, str) for kind in set(map(type, names))):
        raise _bad_name_error(out)
    for parent in out.irregular:
        slots = children_override.get(id(modules[parent])) or states[parent][MODULES]
        entries = list(slots.items())
        out.irregular[parent] = [(n, None if c is None else index_of[id(unwrapped(c))]) for n, c in entries]
    return out


def _checked_root(model: object) -> nn.Module:
    if issubclass(type(model), type):
        raise NotAModuleError(f"got the class {printable(type.__dict__['__name__'].__get__(model))}: pass an instance")
    if issubclass(type(model), SkeletonSource):
        raise NotAModuleError(
            f"got {a_type(model)}, which has neither code to run nor values: look at it with mk.hierarchy, mk.diff or "
            "mk.ModelGraph, and pass a live model here"
        )
    if not issubclass(type(model), nn.Module):
        names_a_file = issubclass(type(model), (str, PurePath))
        instead = "pass an instance of torch.nn.Module" + (", or mk.open_file(path)" if names_a_file else "")
        raise NotAModuleError(f"got {a_type(model)}: {instead}")
    return model  # type: ignore[return-value]


def _checked_child(child: object, name: str, out: Walk, parent: int) -> nn.Module:
    if not issubclass(type(child), nn.Module):
        path = ".".join(filter(None, (out.path(parent), name)))
        raise NotAModuleError(f"the child {printable(path)!r} is {a_type(child)}: only modules may stand in _modules")
    return unwrapped(child)  # type: ignore[arg-type]


def _bad_name_error(out: Walk) -> BrokenModuleError:
    index = next(i for i, name in enumerate(out.names) if not is_text(name))
    path, name = out.path(out.parents[index]), out.names[index]
    return BrokenModuleError(f"a child of {printable(path) or '(root)'!r} is named by {a_type(name)}: names are text")


def _uninitialised_error(module: nn.Module, path: str) -> BrokenModuleError:
    where = f" at {printable(path)!r}" if path else ""
    name = printable(type(module).__name__)
    return BrokenModuleError(f"{name}{where} has not run nn.Module.__init__: call super().__init__() in its __init__")


def class_name(module: nn.Module) -> str:
    """The name of the nominal class; for TorchScript the name of the class that was compiled."""
    native = native_script(module_state(module)) if is_script(module) else None
    return nominal_class(module).__name__ if native is None else type_of_script(native)().name()


def nominal_class(module: nn.Module) -> type:
    """Returns the class that the user wrote: `Linear` for a `ParametrizedLinear` or `FSDPLinear` that torch made."""
    cls = type(module)
    if class_names(cls)[0].startswith("torch.distributed.fsdp.") and len(cls.__bases__) == 2:
        return cls.__bases__[1]
    if class_names(cls)[0] == "torch.nn.utils.parametrize" and "parametrizations" in module_state(module)[MODULES]:
        return cls.__bases__[0]
    return cls


# what every module carries: hooks, the training flag, its registries; asked of torch, so that new ones are known too
NON_STRUCTURAL_ATTRIBUTES = frozenset(vars(nn.Module())) | WRAPPER_ATTRIBUTES | {"__overloads__"}  # of scripts
_RANDOM_KEY = "__composable_api_state_key_"  # likewise, with a random number behind it


def is_structural(name: object) -> bool:
    """True if an attribute of a module is part of its structure."""
    return isinstance(name, str) and name not in NON_STRUCTURAL_ATTRIBUTES and not name.startswith(_RANDOM_KEY)
