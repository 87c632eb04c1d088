"""Origins: what builds a model as it was before its cuts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from torch import nn

from modulekg_widgets.engine.errors import ModelFolderError, a_type
from modulekg_widgets.engine.json_types import JsonObject, JsonValue
from modulekg_widgets.engine.pruning.cut.edits import Edits, SizeValue

Builder: TypeAlias = "Callable[..., object]"  # a class or a function that builds a model, or a part of one


class SavedCut(NamedTuple):
    """One cut: its edits, a function that applies it, and its text in a file."""

    edits: Edits
    apply: Callable[[nn.Module], object]
    text: bytes


class Origin(Protocol):
    """Builds a model as it was before its cuts."""

    def document(self) -> dict[str, object]:
        """The builder as JSON for the manifest."""
        ...

    def build(self) -> nn.Module:
        """Build the model by its library or class."""
        ...


TrustedClasses = Mapping[str, Builder]  # by import path: the caller's classes and functions, which a folder may name


def trusted_classes(classes: Sequence[object]) -> TrustedClasses:
    """The caller's classes by import path; raises `ModelFolderError` for what cannot be called."""
    by_path: dict[str, Builder] = {}
    for each in classes:
        if not callable(each):
            raise ModelFolderError(f"classes= has {a_type(each)}: pass classes, or functions that build a model")
        by_path[import_path(each)] = each
    return by_path


def import_path(value: Builder) -> str:
    """The import path of a class or function."""
    return f"{value.__module__}:{value.__qualname__}"


def attributes_before_cuts(cuts: Sequence[SavedCut]) -> dict[str, SizeValue]:
    """The old values of all attributes that the cuts change."""
    before_cuts: dict[str, SizeValue] = {}
    for cut in cuts:
        for path, (before, _) in cut.edits.all_attributes.items():
            before_cuts.setdefault(path, before)
    return before_cuts


def deep_copied(document: Mapping[str, JsonValue]) -> JsonObject:
    """A deep copy of a document."""
    return copy.deepcopy(dict(document))
