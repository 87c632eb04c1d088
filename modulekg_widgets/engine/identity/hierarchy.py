"""The modules of a model as records, looked up by index or path, with what was computed of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import overload

from torch import nn

from modulekg_widgets.engine.errors import UnknownPathError, nearest, shown
from modulekg_widgets.engine.identity.figures import Figures
from modulekg_widgets.engine.identity.fingerprint import Fingerprint
from modulekg_widgets.engine.identity.folding import Folded, fold
from modulekg_widgets.engine.identity.walk import class_name


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


class Hierarchy(Figures):
    """The modules of one model in the order of `modules()`; look one up by index or by dotted path."""

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

    def find(self, path: str) -> int | None:
        """The index of the module at a dotted path; a shared module is found under each of its paths."""
        return self.walk.find(path)

    def fold(self, families: bool = True) -> Folded:
        """What people read: runs of alike siblings become one row; the rows below the root, top to bottom.

        `families=False` folds only siblings of the same structure; otherwise also runs of one class and child skeleton
        whose sizes vary.
        """
        return fold(self, families)

    def __repr__(self) -> str:
        return f"<Hierarchy of {shown(self.root.class_name)}: {len(self)} modules>"


def hierarchy(model: nn.Module) -> Hierarchy:
    """The modules of `model` in the order of `modules()`, each object once; runs no code of the model.

    Raises `NotAModuleError` for anything that is no module instance and `BrokenModuleError` for a module that has not
    run `nn.Module.__init__`; both name the path.
    """
    return Hierarchy(model)
