"""The manifest of a folder: what builds the model, which cuts follow, and which files belong to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from modulekg_widgets.engine.errors import ModelFolderError, shown
from modulekg_widgets.engine.pruning.saving.folder import MANIFEST, read_json
from modulekg_widgets.engine.pruning.saving.origin import Origin

FORMAT, VERSION = "modulekg-model", 1
TENSOR_FILE, EXTRA_FILE = "model.safetensors", "modulekg.safetensors"
CONFIG_FILE, GENERATION_FILE = "config.json", "generation_config.json"
MOST_CUTS = 1_000


def plan_file(at: int) -> str:
    """The name of the file of a plan, by its turn."""
    return f"plan-{at}.json"


@dataclass(frozen=True)
class Manifest:
    """What a folder says of itself."""

    origin: Mapping[str, Any]
    files: frozenset[str]
    cuts: int
    tied: Mapping[str, str]  # by each further name of a tensor its first
    attributes: Mapping[str, Any]  # numbers, texts and flags that the model has set since it was built


def manifest_of(
    origin: Origin,
    files: Sequence[str],
    cuts: int,
    plain: bool,
    reason: str,
    first_names: Mapping[str, str],
    attributes: Mapping[str, Any],
) -> dict[str, Any]:
    """The document of a manifest."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "origin": origin.document(),
        "files": sorted([*files, MANIFEST]),
        "cuts": cuts,
        "from_pretrained": plain,
        "reason": reason,
        "tied": {name: first for name, first in first_names.items() if name != first},
        "attributes": dict(attributes),
    }


def read_manifest(folder: str) -> Manifest:
    """The manifest of a folder; raises `ModelFolderError` for anything else."""
    document = read_json(folder, MANIFEST)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ModelFolderError(f"{MANIFEST} is no manifest of a saved model: save one with receipt.save_pretrained")
    version = document.get("version")
    if type(version) is not int or version != VERSION:
        raise ModelFolderError(f"{MANIFEST} is of version {shown(repr(version), 20)}, this release reads {VERSION}")
    origin, files, cuts, tied = (
        document.get("origin"),
        document.get("files"),
        document.get("cuts"),
        document.get("tied"),
    )
    attributes = document.get("attributes", {})
    if not isinstance(origin, dict) or not isinstance(files, list) or not isinstance(tied, dict):
        raise _incomplete()
    if not isinstance(attributes, dict) or not isinstance(cuts, int) or not 0 <= cuts <= MOST_CUTS:
        raise _incomplete()
    if not _are_texts((*files, *tied.values())):
        raise _incomplete()
    known = {TENSOR_FILE, EXTRA_FILE, CONFIG_FILE, GENERATION_FILE, MANIFEST, *map(plan_file, range(cuts))}
    other = next((name for name in files if name not in known), None)
    if other is not None:
        raise ModelFolderError(f"{MANIFEST} names the file {shown(repr(other))}, which is none of a saved model")
    return Manifest(origin, frozenset(files), cuts, tied, attributes)


def _incomplete() -> ModelFolderError:
    return ModelFolderError(f"{MANIFEST} lacks what it should say, or says something else: save the model again")


def _are_texts(values: Iterable[Any]) -> bool:
    return all(isinstance(each, str) for each in values)
