"""Saves a cut model as a folder that loads without the original.

The model is rebuilt with empty weights by its library, class or a given builder (library_origins.py), cut
by the same plans, and compared with the model in all names, shapes, ties and attributes
(`model_signature`). If a configuration of transformers can express the new sizes, it is written and the
library's own `from_pretrained` loads the folder; otherwise the plans are stored and replayed by
`mk.load_pretrained`. Only safetensors and JSON are written, as a whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from torch import nn

from modulekg_widgets.engine.errors import CutError, ModelFolderError, printable
from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.pruning.saving.config_numbers import ConfigFit, fitting_config
from modulekg_widgets.engine.pruning.saving.empty_weights import build_with_empty_weights
from modulekg_widgets.engine.pruning.saving.library_origins import TransformersOrigin, possible_origins
from modulekg_widgets.engine.pruning.saving.model_folder import (
    CONFIG_FILE,
    EXTRA_FILE,
    GENERATION_FILE,
    MANIFEST,
    TENSOR_FILE,
    Writer,
    checked_folder,
    manifest_document,
    plan_file_name,
    write_folder,
)
from modulekg_widgets.engine.pruning.saving.model_signature import (
    ModelSignature,
    attribute_path,
    can_be_set,
    describe_fact,
    differing_facts,
    is_set_by_forward,
)
from modulekg_widgets.engine.pruning.saving.origin import Origin, SavedCut
from modulekg_widgets.engine.pruning.saving.tensor_file import SavedContent, cut_content, full_content, write_tensors
from modulekg_widgets.engine.residuals.module_removal import paths_after
from modulekg_widgets.engine.torch_runtime.state import unwrapped


@dataclass(frozen=True)
class SavedModel:
    """The result of a save: the folder, and who can load it.

    Attributes
    ----------
    folder : str
        The folder.
    plain : bool
        Whether the library's own `from_pretrained` loads it, for the configuration says all sizes.
    reason : str
        Why not, or which keys of the configuration changed.
    """

    folder: str
    plain: bool
    reason: str

    def __str__(self) -> str:
        how = "from_pretrained of its library, and mk.load_pretrained," if self.plain else "mk.load_pretrained"
        return printable(f"{self.folder}: {how} loads it ({self.reason})", 500)


def save(
    model: nn.Module, folder: Any, cuts: Sequence[SavedCut], arguments: Any = None, builder: Any = None
) -> SavedModel:
    """Save a model that was cut by `cuts`, or that is still whole with one cut given.

    `arguments` and `builder` say how a model of plain torch is built. Raises `ModelFolderError` for a model that is
    something else than its origin cut so, and where the folder cannot be written; nothing is written then.
    """
    target = checked_folder(folder)
    model = unwrapped(model)
    found = ModelSignature.of(model)
    _check_savable(found)
    origin, twin = _rebuild_model(model, found, cuts, arguments, builder)
    fit = ConfigFit(None, "its class and the plan build it")
    if twin.attributes:
        fit = ConfigFit(None, f"{next(iter(twin.attributes))} is not as it is built")
    elif isinstance(origin, TransformersOrigin):
        fit = fitting_config(origin, twin.signature, twin.content.value_of)
    if fit.origin is not None:
        origin, cuts_in_folder = fit.origin, ()
    else:
        cuts_in_folder = cuts
    files = _files(twin.content, origin, cuts_in_folder)
    manifest = manifest_document(
        origin,
        list(files),
        len(cuts_in_folder),
        fit.origin is not None,
        fit.reason,
        twin.content.signature.first_names,
        twin.attributes,
    )
    files[MANIFEST] = _json(manifest)
    write_folder(target, files)
    return SavedModel(target, fit.origin is not None, fit.reason)


def _check_savable(found: ModelSignature) -> None:
    for module in found.walked.modules:
        if type(module).get_extra_state is not nn.Module.get_extra_state:
            raise ModelFolderError(
                f"{printable(type(module).__name__)} has a state of its own (get_extra_state), which no safetensors "
                "holds"
            )
    missing = next((held.name for held in found.tensors if held.tensor.is_meta), None)
    if missing is not None:
        raise ModelFolderError(f"{printable(missing)} is on the meta device and has no values: load the model first")


class _RebuiltModel(NamedTuple):
    """The rebuilt and cut model without weights, and the content to save."""

    signature: ModelSignature
    content: SavedContent
    attributes: dict[str, Any]  # those that are others in the model that is saved


def _rebuild_model(
    model: nn.Module, found: ModelSignature, cuts: Sequence[SavedCut], arguments: Any, builder: Any
) -> tuple[Origin, _RebuiltModel]:
    """The first builder that reproduces the model; raises `ModelFolderError` if there is none."""
    refusal: ModelFolderError | None = None
    for whole in _possibly_uncut(model, cuts):
        for origin in possible_origins(model, () if whole else cuts, arguments, builder):
            try:
                return origin, _rebuild_and_cut(origin, cuts, found, whole)
            except ModelFolderError as error:
                refusal = refusal or error
            except Exception as error:  # noqa: BLE001 - of the code that builds it
                refusal = refusal or ModelFolderError(
                    f"{printable(type(model).__name__)} cannot be built anew ({type(error).__name__}: "
                    f"{printable(str(error), 200)}): say by arguments={{…}} or builder=… how it was built"
                )
    assert refusal is not None
    raise refusal


def _possibly_uncut(model: nn.Module, cuts: Sequence[SavedCut]) -> tuple[bool, ...]:
    """True if the model may still be uncut; both values if its tensors do not tell."""
    if len(cuts) != 1:
        return (False,)
    edits = cuts[0].edits
    shapes = {name: tuple(tensor.shape) for name, tensor in (*model.named_parameters(), *model.named_buffers())}
    changed = [edit for edit in edits.tensors if edit.names[0] in shapes and edit.shape != edit.shape_after]
    likely = bool(changed) and all(shapes[edit.names[0]] == edit.shape for edit in changed)
    # where modules went, others may have moved up to their names
    return (likely, not likely) if edits.removal else (likely,)


def _rebuild_and_cut(origin: Origin, cuts: Sequence[SavedCut], found: ModelSignature, whole: bool) -> _RebuiltModel:
    """The rebuilt and cut model; raises `ModelFolderError` if it differs."""
    twin = build_with_empty_weights(origin.build)
    others = _changed_attributes(found, ModelSignature.of(twin)) if whole else {}
    moved = paths_after(walk(twin), cuts[0].edits.removal) if whole else {}
    try:
        for cut in cuts:
            cut.apply(twin)
    except CutError as error:
        raise ModelFolderError(
            f"{printable(type(found.model).__name__)}, built anew, cannot be cut as this model was ({error}): "
            "where it was cut several times, pass all receipts in turn, mk.save_model(model, folder, [first, second])"
        ) from error
    cut_twin = ModelSignature.of(twin)
    if not whole:
        attributes = {attribute_path(key): value for key, value in _changed_attributes(found, cut_twin).items()}
        return _RebuiltModel(cut_twin, full_content(found), attributes)
    stay = {
        attribute_path((kind, moved[path], name)): value
        for (kind, path, name), value in others.items()
        if path in moved
    }
    return _RebuiltModel(cut_twin, cut_content(found, cut_twin, cuts[0].edits, moved), stay)


def _changed_attributes(found: ModelSignature, rebuilt: ModelSignature) -> dict[tuple[Any, ...], Any]:
    """The attributes that were set after construction; raises `ModelFolderError` for other differences."""
    others = differing_facts(found.facts, rebuilt.facts)
    attributes = {key: found.facts[key] for key in others if can_be_set(key, found.facts, rebuilt.facts)}
    others = [key for key in others if key not in attributes and not is_set_by_forward(key, rebuilt.facts)]
    if others:
        more = f", and {len(others) - 1} more differences" if len(others) > 1 else ""
        raise ModelFolderError(
            f"{printable(type(found.model).__name__)} cannot be saved so that it loads again: "
            f"{describe_fact(others[0], found.facts, rebuilt.facts)}{more}. Where the model was cut, pass the "
            "receipts of all "
            "cuts; where it was built with other arguments, pass arguments={…}; undo what changed it otherwise"
        )
    return attributes


def _files(content: SavedContent, origin: Origin, cuts: Sequence[SavedCut]) -> dict[str, Writer]:
    files: dict[str, Writer] = {}
    for name, unsaved in ((TENSOR_FILE, False), (EXTRA_FILE, True)):
        tensors = list(content.tensors(unsaved))
        if tensors or not unsaved:
            files[name] = partial(write_tensors, tensors=tensors, metadata={"format": "pt"})
    if isinstance(origin, TransformersOrigin):
        files[CONFIG_FILE] = _json(origin.config, indent=2)
        if origin.generation is not None:
            files[GENERATION_FILE] = _json(origin.generation, indent=2)
    for at, cut in enumerate(cuts):
        files[plan_file_name(at)] = partial(_write, content=cut.text)
    return files


def _json(document: Mapping[str, Any], indent: int | None = None) -> Writer:
    return partial(_write, content=json.dumps(document, indent=indent, sort_keys=True, allow_nan=False).encode())


def _write(file: Any, content: bytes) -> None:
    file.write(content)
