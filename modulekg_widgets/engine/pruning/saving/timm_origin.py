"""Models of timm, built by the name of their architecture."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from torch import nn

from modulekg_widgets.engine.errors import MissingPackageError, ModelFolderError, shown
from modulekg_widgets.engine.pruning.saving.class_origin import checked_arguments
from modulekg_widgets.engine.pruning.saving.origin import SavedCut, before_cuts, fresh
from modulekg_widgets.engine.torch_runtime.state import module_state

LIBRARY = "timm"
RECORDED = ("num_classes", "in_chans", "global_pool", "img_size")  # arguments that many models keep
REFUSED = ("pretrained", "checkpoint", "cache", "model_name", "scriptable", "kwargs")  # lead to other files


@dataclass(frozen=True)
class TimmOrigin:
    """An architecture of the library and the arguments of `timm.create_model`."""

    architecture: str
    arguments: Mapping[str, Any]

    def document(self) -> dict[str, Any]:
        return {"library": LIBRARY, "architecture": self.architecture, "arguments": dict(self.arguments)}

    def build(self) -> nn.Module:
        return import_module(LIBRARY).create_model(self.architecture, pretrained=False, **fresh(self.arguments))


def timm_origins(model: nn.Module, cuts: Sequence[SavedCut], arguments: Any) -> Iterator[TimmOrigin]:
    """How a model of the library may have been built; none for any other."""
    library = sys.modules.get(LIBRARY)
    state = module_state(model)
    config = state.get("pretrained_cfg", state.get("default_cfg"))
    name = config.get("architecture") if isinstance(config, dict) else getattr(config, "architecture", None)
    own = type(model).__module__.partition(".")[0] == LIBRARY
    if library is None or not own or not isinstance(name, str) or not library.is_model(name):
        return
    if arguments is not None:
        yield TimmOrigin(name, checked_timm_arguments(checked_arguments(arguments)))
        return
    yield TimmOrigin(name, {})
    before = before_cuts(cuts)
    kept = {key: before.get(key, state.get(key)) for key in RECORDED}
    found = {key: value for key, value in kept.items() if isinstance(value, int | str)}
    yield TimmOrigin(name, {key: value for key, value in found.items() if key == "num_classes"})
    yield TimmOrigin(name, found)


def read_timm_origin(manifest: Mapping[str, Any]) -> TimmOrigin:
    """The origin that a folder tells of; raises `ModelFolderError` for what timm would not build by itself."""
    try:
        library = import_module(LIBRARY)
    except ImportError as error:
        raise MissingPackageError("the folder holds a model of timm: pip install timm") from error
    name, arguments = manifest.get("architecture"), manifest.get("arguments")
    if not isinstance(name, str) or not name.isidentifier() or not library.is_model(name):
        raise ModelFolderError(f"{shown(repr(name))} is no architecture of timm {library.__version__}")
    return TimmOrigin(name, checked_timm_arguments(checked_arguments(arguments)))


def checked_timm_arguments(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Arguments of `timm.create_model`; raises `ModelFolderError` for those by which it opens or fetches something."""
    wrong = next((name for name in arguments if name.startswith(REFUSED)), None)
    if wrong is not None:
        raise ModelFolderError(f"the argument {shown(wrong)!r} leads timm to other files: leave it out")
    return arguments
