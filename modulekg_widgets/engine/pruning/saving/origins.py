"""Which library a model is of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from modulekg_widgets.engine.errors import ModelFolderError, shown
from modulekg_widgets.engine.pruning.saving.class_origin import class_origins, read_class_origin
from modulekg_widgets.engine.pruning.saving.diffusers_origin import diffusers_origin, read_diffusers_origin
from modulekg_widgets.engine.pruning.saving.folder import exists, read_json
from modulekg_widgets.engine.pruning.saving.manifest import CONFIG_FILE, GENERATION_FILE, Manifest
from modulekg_widgets.engine.pruning.saving.origin import Origin, SavedCut, Trusted
from modulekg_widgets.engine.pruning.saving.timm_origin import read_timm_origin, timm_origins
from modulekg_widgets.engine.pruning.saving.transformers_origin import read_transformers_origin, transformers_origin


def origins_of(model: nn.Module, cuts: Sequence[SavedCut], arguments: Any, builder: Any) -> Iterator[Origin]:
    """How a model may have been built, the likeliest first; raises `ModelFolderError` where nobody can tell."""
    known = False
    if arguments is None and builder is None and (origin := transformers_origin(model, cuts)) is not None:
        yield origin
        known = True
    if arguments is None and builder is None and (of_diffusers := diffusers_origin(model)) is not None:
        yield of_diffusers
        known = True
    for each in timm_origins(model, cuts, arguments) if builder is None else ():
        yield each
        known = True
    if not known:
        yield from class_origins(model, cuts, arguments, builder)


def read_origin(manifest: Manifest, folder: str, trusted: Trusted) -> Origin:
    """The origin that a folder tells of; raises `ModelFolderError` where it names what is not trusted."""
    document = manifest.origin
    library = document.get("library")
    if library == "transformers":
        generation = read_json(folder, GENERATION_FILE) if exists(folder, GENERATION_FILE) else None
        return read_transformers_origin(document, read_json(folder, CONFIG_FILE), generation, trusted)
    if library == "timm":
        return read_timm_origin(document)
    if library == "diffusers":
        return read_diffusers_origin(document)
    if library == "torch":
        return read_class_origin(document, trusted)
    raise ModelFolderError(f"the manifest names the library {shown(repr(library), 60)}, which is none that is known")
