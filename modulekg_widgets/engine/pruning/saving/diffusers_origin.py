"""Models of diffusers, built by their class from the arguments that the library registers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from torch import nn

from modulekg_widgets.engine.errors import MissingPackageError, ModelFolderError, shown
from modulekg_widgets.engine.identity.walk import nominal_class
from modulekg_widgets.engine.pruning.saving.class_origin import checked_arguments
from modulekg_widgets.engine.pruning.saving.origin import fresh

LIBRARY = "diffusers"
REGISTERED = "_internal_dict"  # what the library keeps of the call of a constructor
ADDRESSES = ("pretrained", "_name_or_path", "auto_map", "quantization_config")  # lead to other files, or to code


@dataclass(frozen=True)
class DiffusersOrigin:
    """A model class of the library and the arguments of its constructor."""

    cls: type
    arguments: Mapping[str, Any]

    def document(self) -> dict[str, Any]:
        return {"library": LIBRARY, "class": self.cls.__name__, "arguments": dict(self.arguments)}

    def build(self) -> nn.Module:
        return self.cls(**fresh(self.arguments))


def diffusers_origin(model: nn.Module) -> DiffusersOrigin | None:
    """The origin of a model of the library, None for any other; a cut changes nothing of what is registered."""
    library = sys.modules.get(LIBRARY)
    cls = nominal_class(model)
    registered = vars(model).get(REGISTERED)
    if library is None or not isinstance(registered, Mapping) or not issubclass(cls, library.ModelMixin):
        return None
    if getattr(library, cls.__name__, None) is not cls:
        return None  # a class of the user's, which its path finds
    given = {name: value for name, value in registered.items() if not name.startswith("_")}
    return DiffusersOrigin(cls, _checked(checked_arguments(_as_lists(given))))


def read_diffusers_origin(manifest: Mapping[str, Any]) -> DiffusersOrigin:
    """The origin that a folder tells of; raises `ModelFolderError` for what is no model class of the library."""
    try:
        library = import_module(LIBRARY)
    except ImportError as error:
        raise MissingPackageError("the folder holds a model of diffusers: pip install diffusers") from error
    name = manifest.get("class")
    named = isinstance(name, str) and name.isidentifier() and not name.startswith("_")
    cls = getattr(library, name, None) if named else None  # type: ignore[arg-type]
    if not (isinstance(cls, type) and issubclass(cls, library.ModelMixin)):
        raise ModelFolderError(f"{shown(repr(name), 60)} is no model class of diffusers {library.__version__}")
    return DiffusersOrigin(cls, _checked(checked_arguments(manifest.get("arguments"))))


def _checked(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    wrong = next((name for name, value in arguments.items() if name.startswith(ADDRESSES) and value), None)
    if wrong is not None:
        raise ModelFolderError(f"the argument {shown(wrong)!r} leads diffusers to other files: leave it out")
    return arguments


def _as_lists(value: Any) -> Any:
    """Tuples as JSON has them."""
    if isinstance(value, Mapping):
        return {key: _as_lists(part) for key, part in value.items()}
    return [_as_lists(part) for part in value] if isinstance(value, list | tuple) else value
