"""Modules of a model as records, looked up by index or dotted path; the public `mk.hierarchy` and `mk.levels`.

A `Hierarchy` is made by one walk over `_modules`; no code of the model runs. It is a sequence of `ModuleRecord`,
light views with `path`, `module`, `class_name`, `parent`, `children`, `level`, `fingerprint` and `parameters`, which
are computed when they are read (statistics.py). `fold()` gives the outline that people read, `levels()` the stages
and blocks.

A module in several slots stands once, at the first; `find` knows it under each of its paths. A `ModelFile` is taken
in place of a model.

    >>> import modulekg_widgets as mk
    >>> from torch import nn
    >>> modules = mk.hierarchy(nn.Sequential(nn.Linear(4, 2), nn.ReLU()))
    >>> modules["0"].parameters
    10
"""

# pandas has no types
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, overload

from torch import nn

from modulekg_widgets.engine.errors import UnknownPathError, a_type, closest_match_hint, printable
from modulekg_widgets.engine.identity.fingerprint import Fingerprint
from modulekg_widgets.engine.identity.folding import FoldedHierarchy, fold
from modulekg_widgets.engine.identity.levels import LEVEL_METHODS
from modulekg_widgets.engine.identity.skeleton_source import ModelLike
from modulekg_widgets.engine.identity.statistics import ModuleStatistics
from modulekg_widgets.engine.identity.walk import class_name

if TYPE_CHECKING:
    import pandas as pd


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
        """`model`, `stage`, `block` or `op`, by what repeats in the model."""
        return self.hierarchy.level(self.index)

    @property
    def fingerprint(self) -> Fingerprint:
        return self.hierarchy.identities.fingerprint(self.index)

    @property
    def parameters(self) -> int:
        """The number of parameters in and below this module, each tensor counted once."""
        return self.hierarchy.sizes.params[self.index]

    def __repr__(self) -> str:
        return f"<{printable(self.path) or '(root)'}: {printable(self.class_name)}>"


class Hierarchy(ModuleStatistics):
    """The modules of one model in the order of `modules()`; look one up by index or by dotted path.

    Parameters
    ----------
    model : nn.Module
        The model; none of its code runs.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> from torch import nn
    >>> modules = mk.Hierarchy(nn.Sequential(nn.Linear(4, 2), nn.ReLU()))
    >>> modules["0"], len(modules), modules.root.parameters
    (<0: Linear>, 3, 10)
    """

    def __iter__(self) -> Iterator[ModuleRecord]:
        return (ModuleRecord(self, i) for i in range(len(self)))

    @overload
    def __getitem__(self, key: int) -> ModuleRecord: ...
    @overload
    def __getitem__(self, key: str) -> ModuleRecord: ...
    def __getitem__(self, key: object) -> ModuleRecord:
        if isinstance(key, int):
            return ModuleRecord(self, range(len(self))[key])
        if not isinstance(key, str):
            raise UnknownPathError(f"modules are looked up by path or index, got {a_type(key)}")
        index = self.find(key)
        if index is None:
            raise UnknownPathError(
                f"there is no module {printable(key)!r}: {closest_match_hint(key, self.walk.similar_paths(key))}"
            )
        return ModuleRecord(self, index)

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and self.find(path) is not None

    @property
    def root(self) -> ModuleRecord:
        """The model itself."""
        return self[0]

    def find(self, path: str) -> int | None:
        """The index of the module at a dotted path; a shared module is found under each of its paths.

        Parameters
        ----------
        path : str
            The path as torch writes it; the root's is empty.

        Returns
        -------
        int or None
            None where there is no such module.
        """
        return self.walk.find(path)

    def fold(self, families: bool = True) -> FoldedHierarchy:
        """Returns an outline in which runs of alike siblings are one row.

        Parameters
        ----------
        families : bool
            Whether runs of one class and child skeleton whose sizes vary become one row, too; else only siblings of the
            same structure do.

        Returns
        -------
        Folded
            The rows below the root, top to bottom; prints as an indented outline.
        """
        return fold(self, families)

    def __repr__(self) -> str:
        return f"<Hierarchy of {printable(self.root.class_name)}: {len(self)} modules>"


def hierarchy(model: ModelLike) -> Hierarchy:
    """The modules of `model` in the order of `modules()`, each object once; runs no code of the model.

    Parameters
    ----------
    model : nn.Module or ModelFile
        The model.

    Returns
    -------
    Hierarchy
        Its records, by index or dotted path.

    Raises
    ------
    NotAModuleError
        For anything that is not a module instance.
    BrokenModuleError
        For a module that has not run `nn.Module.__init__`; both name the path.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> from torch import nn
    >>> model = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(3)])
    >>> modules = mk.hierarchy(model)
    >>> [record.path for record in modules][:3], modules["1.0"].parameters
    (['', '0', '0.0'], 20)
    >>> print(modules.fold())
    Sequential
      0 Sequential ×3 · identical structure, separate weights
        0 Linear
        1 ReLU
    """
    return Hierarchy(model)


def levels(model: ModelLike) -> pd.DataFrame:
    """The level of each module of `model`: by what repeats in it, and by depth.

    Parameters
    ----------
    model : nn.Module
        The model; none of its code runs.

    Returns
    -------
    DataFrame
        In the order of `modules()`, as `path`, `class`, and "model", "stage", "block" or "op" by `repetition` and by
        `depth`. Runs of alike structures make the stages and blocks of papers, whatever is wrapped around them;
        engine/identity/levels.py has the rules. By depth a stage is a child of the root that has children, and a block
        whatever else has children.

    Raises
    ------
    NotAModuleError
        For anything that is not a module instance.
    BrokenModuleError
        For a module that has not run `nn.Module.__init__`; both name the path.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> from torch import nn
    >>> def block():
    ...     return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    >>> table = mk.levels(nn.Sequential(nn.Identity(), nn.Sequential(block(), block())))
    >>> print(table[table["repetition"] != "op"].to_string())
      path       class repetition  depth
    0       Sequential      model  model
    2    1  Sequential      stage  stage
    3  1.0  Sequential      block  block
    7  1.1  Sequential      block  block
    """
    import pandas as pd

    found = hierarchy(model)
    columns = {
        "path": [record.path for record in found],
        "class": [record.class_name for record in found],
        **{levelling: found.levels(levelling) for levelling in LEVEL_METHODS},
    }
    return pd.DataFrame(columns, dtype=object)  # no type for text: names may hold lone surrogates
