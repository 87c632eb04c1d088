"""The walk over a model's modules: iterative, by identity, through `__dict__` alone, so that no user code runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from torch import nn

from modulekg_widgets.engine.errors import BrokenModuleError, NotAModuleError, UnknownPathError, nearest, shown
from modulekg_widgets.engine.identity.encoding import class_names
from modulekg_widgets.engine.identity.paths import Paths
from modulekg_widgets.engine.identity.script import native_script
from modulekg_widgets.engine.torch_runtime.modules import is_script, module_state, unwrapped

if TYPE_CHECKING:
    from modulekg_widgets.engine.identity.fingerprint import Fingerprint, Identities
    from modulekg_widgets.engine.identity.folding import Folded
    from modulekg_widgets.engine.identity.tensors import Place, Sizes

LEVELS = ("model", "stage", "block", "op")


class Walk(Paths):
    """The modules of a model beside their paths.

    Kept lean, with no object per module: a fingerprint of a million modules spends its time here.
    """

    def __init__(self) -> None:
        super().__init__()
        self.modules: list[nn.Module] = []
        self.states: list[dict[str, Any]] = []  # each module's __dict__

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

    def paths_alone(self) -> Paths:
        """The paths without the modules, for whoever must not keep a model alive."""
        paths = Paths()
        paths.names, paths.parents, paths.children, paths.irregular = (
            self.names, self.parents, self.children, self.irregular
        )  # fmt: skip
        return paths


def walk(model: nn.Module) -> Walk:
    """Walk `model` once, each module object once; raises `NotAModuleError` or `BrokenModuleError` naming the path."""
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
            slots = state.get("_modules")
            if slots and type(child) in ordinary:
                inside = out.children[count - 1] = []
                stack.append((count - 1, inside, iter(list(slots.items()))))
                break
            if slots is None and type(child) in ordinary:
                raise _not_initialised(child, out.path(count - 1))
        else:
            stack.pop()
    if not all(issubclass(kind, str) for kind in set(map(type, names))):
        raise _named_oddly(out)
    for parent in out.irregular:
        entries = list(states[parent]["_modules"].items())
        out.irregular[parent] = [(n, None if c is None else index_of[id(unwrapped(c))]) for n, c in entries]
    return out


def _checked_root(model: object) -> nn.Module:
    if issubclass(type(model), type):
        raise NotAModuleError(
            f"got the class {shown(type.__dict__['__name__'].__get__(model))}: pass an instance of it"
        )
    if not issubclass(type(model), nn.Module):
        raise NotAModuleError(f"got a {shown(type(model).__name__)}: pass an instance of torch.nn.Module")
    return model  # type: ignore[return-value]


def _checked_child(child: object, name: str, out: Walk, parent: int) -> nn.Module:
    if not issubclass(type(child), nn.Module):
        path = ".".join(filter(None, (out.path(parent), name)))
        kind = shown(type(child).__name__)
        raise NotAModuleError(f"the child {shown(path)!r} is a {kind}: only modules may stand in _modules")
    return unwrapped(child)  # type: ignore[arg-type]


def _named_oddly(out: Walk) -> BrokenModuleError:
    index = next(i for i, name in enumerate(out.names) if not issubclass(type(name), str))
    path, kind = out.path(out.parents[index]), type(out.names[index]).__name__
    return BrokenModuleError(f"a child of {shown(path) or '(root)'!r} is named by a {shown(kind)}: names are text")


def _not_initialised(module: nn.Module, path: str) -> BrokenModuleError:
    where = f" at {shown(path)!r}" if path else ""
    name = shown(type(module).__name__)
    return BrokenModuleError(f"{name}{where} has not run nn.Module.__init__: call super().__init__() in its __init__")


@dataclass(frozen=True, slots=True)
class ModuleRecord:
    """One module of a hierarchy: a light view whose figures are computed when asked for."""

    hierarchy: Hierarchy = field(repr=False)
    index: int

    @property
    def name(self) -> str:
        """The last segment of the path."""
        return self.hierarchy.walk.names[self.index]

    @property
    def path(self) -> str:
        """The dotted path as torch writes it; the root's is empty."""
        return self.hierarchy.walk.path(self.index)

    @property
    def module(self) -> nn.Module:
        return self.hierarchy.walk.modules[self.index]

    @property
    def class_name(self) -> str:
        return class_name(self.module)

    @property
    def depth(self) -> int:
        return self.hierarchy.walk.depths[self.index]

    @property
    def parent(self) -> ModuleRecord | None:
        parent = self.hierarchy.walk.parents[self.index]
        return None if parent < 0 else self.hierarchy[parent]

    @property
    def children(self) -> tuple[ModuleRecord, ...]:
        """The modules that have their place directly below this one, in order."""
        return tuple(self.hierarchy[i] for i in self.hierarchy.children(self.index))

    @property
    def level(self) -> str:
        """`model`, `stage`, `block` or `op`."""
        return self.hierarchy.level(self.index)

    @property
    def fingerprint(self) -> Fingerprint:
        return self.hierarchy.identities.fingerprint(self.index)

    @property
    def parameters(self) -> int:
        """The number of parameters in and below this module, each tensor counted once."""
        return self.hierarchy.sizes.params[self.index]

    def __repr__(self) -> str:
        return f"<{shown(self.path) or '(root)'}: {shown(self.class_name)}>"


class Hierarchy:
    """The modules of one model in the order of `modules()`; look one up by index or by dotted path."""

    def __init__(self, model: nn.Module) -> None:
        self.walk = walk(model)

    def __len__(self) -> int:
        return len(self.walk.modules)

    def __iter__(self) -> Iterator[ModuleRecord]:
        return (ModuleRecord(self, i) for i in range(len(self)))

    @overload
    def __getitem__(self, key: int) -> ModuleRecord: ...
    @overload
    def __getitem__(self, key: str) -> ModuleRecord: ...
    def __getitem__(self, key: int | str) -> ModuleRecord:
        if isinstance(key, int):
            return ModuleRecord(self, range(len(self))[key])
        if not isinstance(key, str):
            raise UnknownPathError(f"modules are looked up by path or index, got a {shown(type(key).__name__)}")
        index = self.find(key)
        if index is None:
            raise UnknownPathError(f"there is no module {shown(key)!r}: {nearest(key, self.walk.near(key))}")
        return ModuleRecord(self, index)

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and self.find(path) is not None

    @property
    def root(self) -> ModuleRecord:
        return self[0]

    def children(self, index: int) -> Sequence[int]:
        """The indices of the modules that have their place directly below module `index`, in order."""
        return self.walk.children.get(index, ())

    @cached_property
    def identities(self) -> Identities:
        """The structural fingerprints, computed once."""
        from modulekg_widgets.engine.identity.fingerprint import Identities

        return Identities(self.walk)

    @cached_property
    def sizes(self) -> Sizes:
        """Parameters and bytes per module, computed once."""
        from modulekg_widgets.engine.identity.tensors import sizes

        return sizes(self.walk)

    @cached_property
    def tied(self) -> list[list[Place]]:
        """The tensors that are registered under several names, each with all its places."""
        from modulekg_widgets.engine.identity.tensors import tied_tensors

        return tied_tensors(self.walk)

    @cached_property
    def shared_groups(self) -> list[list[int]]:
        """Modules that hold the same tensor, or a slot that leads to the same module."""
        groups = [[place.module for place in group] for group in self.tied]
        return groups + [[link.target, link.parent] for link in self.walk.links()]

    @cached_property
    def shared(self) -> set[int]:
        """The modules that several slots lead to, and those that hold a tensor that others hold too."""
        return {link.target for link in self.walk.links()} | {place.module for group in self.tied for place in group}

    def level(self, index: int) -> str:
        """The level of module `index`: model (the root), op (no children), stage (child of the root) or block."""
        if index == 0:
            return "model"
        if not self.children(index):
            return "op"
        return "stage" if self.walk.parents[index] == 0 else "block"

    def find(self, path: str) -> int | None:
        """The index of the module at a dotted path; a shared module is found under each of its paths."""
        return self.walk.find(path)

    def fold(self, families: bool = True) -> Folded:
        """What people read: runs of alike siblings become one row; the rows below the root, top to bottom.

        `families=False` folds only siblings of the same structure; otherwise also runs of one class and child skeleton
        whose sizes vary.
        """
        from modulekg_widgets.engine.identity.folding import fold

        return fold(self, families)

    def __repr__(self) -> str:
        return f"<Hierarchy of {shown(self.root.class_name)}: {len(self)} modules>"


def class_name(module: nn.Module) -> str:
    """The name of the nominal class; for TorchScript the name of the class that was compiled."""
    native = native_script(module_state(module)) if is_script(module) else None
    return nominal_class(module).__name__ if native is None else native._type().name()


def nominal_class(module: nn.Module) -> type:
    """The class a user knows the module by: `Linear` for a `ParametrizedLinear` or `FSDPLinear` that torch made."""
    cls = type(module)
    if class_names(cls)[0].startswith("torch.distributed.fsdp.") and len(cls.__bases__) == 2:
        return cls.__bases__[1]
    if class_names(cls)[0] == "torch.nn.utils.parametrize" and "parametrizations" in module_state(module)["_modules"]:
        return cls.__bases__[0]
    return cls


def hierarchy(model: nn.Module) -> Hierarchy:
    """The modules of `model` in the order of `modules()`, each object once; runs no code of the model.

    Raises `NotAModuleError` for anything that is no module instance and `BrokenModuleError` for a module that has not
    run `nn.Module.__init__`; both name the path.
    """
    return Hierarchy(model)
