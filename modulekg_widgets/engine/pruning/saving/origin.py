"""What a model was before its cuts, and how it is built anew."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from torch import nn

from modulekg_widgets.engine.errors import ModelFolderError, printable
from modulekg_widgets.engine.pruning.cut.edits import Edits, SizeValue


class SavedCut(NamedTuple):
    """One cut of a model: what it edits, how it is applied to another one, and its text for a file."""

    edits: Edits
    apply: Callable[[nn.Module], object]
    text: bytes


class Origin(Protocol):
    """How a model is built anew, as it was before its cuts."""

    def document(self) -> dict[str, Any]:
        """What the manifest tells of it, as JSON."""
        ...

    def build(self) -> nn.Module:
        """The model, by the code of its library or class."""
        ...


class TrustedClasses:
    """The classes and functions of the caller's that a folder may name."""

    def __init__(self, classes: Sequence[Any] = ()) -> None:
        wrong = next((each for each in classes if not callable(each)), None)
        if wrong is not None:
            raise ModelFolderError(
                f"classes= has a {printable(type(wrong).__name__)}: pass classes, or functions that build a model"
            )
        self._by_path = {import_path(each): each for each in classes}

    def find(self, path: str) -> Any:
        """What a path names, or None; nothing is imported."""
        return self._by_path.get(path)

    @property
    def names(self) -> list[str]:
        return sorted(self._by_path)


def import_path(value: Any) -> str:
    """The path by which a class or function is imported."""
    return f"{value.__module__}:{value.__qualname__}"


def attributes_before_cuts(cuts: Sequence[SavedCut]) -> dict[str, SizeValue]:
    """The attributes that cuts change, with what they were before the first of them."""
    found: dict[str, SizeValue] = {}
    for cut in cuts:
        for path, (before, _) in cut.edits.all_attributes.items():
            found.setdefault(path, before)
    return found


def deep_copied(document: Mapping[str, Any]) -> dict[str, Any]:
    """A deep copy of a document: a library may change what it is given."""
    return copy.deepcopy(dict(document))
