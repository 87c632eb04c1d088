"""Builders of models as they were before their cuts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from torch import nn

from modulekg_widgets.engine.errors import ModelFolderError, printable
from modulekg_widgets.engine.pruning.cut.edits import Edits, SizeValue


class SavedCut(NamedTuple):
    """One cut: its edits, a function that applies it, and its text in a file."""

    edits: Edits
    apply: Callable[[nn.Module], object]
    text: bytes


class Origin(Protocol):
    """Builds a model as it was before its cuts."""

    def document(self) -> dict[str, Any]:
        """The builder as JSON for the manifest."""
        ...

    def build(self) -> nn.Module:
        """Build the model by its library or class."""
        ...


class TrustedClasses:
    """The caller's classes and functions that a folder may name."""

    def __init__(self, classes: Sequence[Any] = ()) -> None:
        wrong = next((each for each in classes if not callable(each)), None)
        if wrong is not None:
            raise ModelFolderError(
                f"classes= has a {printable(type(wrong).__name__)}: pass classes, or functions that build a model"
            )
        self._by_path = {import_path(each): each for each in classes}

    def find(self, path: str) -> Any:
        """The object at a path, or None; nothing is imported."""
        return self._by_path.get(path)

    @property
    def names(self) -> list[str]:
        return sorted(self._by_path)


def import_path(value: Any) -> str:
    """The import path of a class or function."""
    return f"{value.__module__}:{value.__qualname__}"


def attributes_before_cuts(cuts: Sequence[SavedCut]) -> dict[str, SizeValue]:
    """The old values of all attributes that the cuts change."""
    found: dict[str, SizeValue] = {}
    for cut in cuts:
        for path, (before, _) in cut.edits.all_attributes.items():
            found.setdefault(path, before)
    return found


def deep_copied(document: Mapping[str, Any]) -> dict[str, Any]:
    """A deep copy of a document."""
    return copy.deepcopy(dict(document))
