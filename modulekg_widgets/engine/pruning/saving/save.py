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
from typing import IO, NamedTuple

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
    Manifest,
    Writer,
    checked_folder,
    plan_file_name,
    write_folder,
)
from modulekg_widgets.engine.pruning.saving.model_signature import (
    Facts,
    ModelSignature,
    attribute_path,
    can_be_set,
    describe_fact,
    differing_facts,
    is_set_by_forward,
)
from modulekg_widgets.engine.pruning.saving.origin import Origin, SavedCut
from modulekg_widgets.engine.pruning.saving.tensor_file import (
    TensorsToSave,
    all_tensors,
    remaining_slices,
    write_tensors,
)
from modulekg_widgets.engine.residuals.module_removal import paths_after
from modulekg_widgets.engine.torch_runtime.modules import unwrapped


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
    model: nn.Module, folder: object, cuts: Sequence[SavedCut], arguments: object = None, builder: object = None
) -> SavedModel:
    """Save a model that was cut by `cuts`, or that is still whole with one cut given.

    `arguments` and `builder` say how a model of plain torch is built. Raises `ModelFolderError` for a model that is
    something else than its origin cut so, and where the folder cannot be written; nothing is written then.
    """
    target = checked_folder(folder)
    model = unwrapped(model)
    signature = ModelSignature.of(model)
    _check_savable(signature)
    origin, rebuilt = _rebuild_model(model, signature, cuts, arguments, builder)
    fit = ConfigFit(None, "its class and the plan build it")
    if rebuilt.attributes:
        fit = ConfigFit(None, f"{next(iter(rebuilt.attributes))} is not as it is built")
    elif isinstance(origin, TransformersOrigin):
        fit = fitting_config(origin, rebuilt.signature, rebuilt.tensors.value_of)
    if fit.origin is not None:
        origin, cuts_in_folder = fit.origin, ()
    else:
        cuts_in_folder = cuts
    files = _files(rebuilt.tensors, origin, cuts_in_folder)
    first_names = rebuilt.tensors.signature.first_names
    tied = {name: first for name, first in first_names.items() if name != first}
    plain = fit.origin is not None
    manifest = Manifest(
        origin.document(), frozenset(files), len(cuts_in_folder), tied, rebuilt.attributes, plain, fit.reason
    )
    files[MANIFEST] = _json(manifest.document())
    write_folder(target, files)
    return SavedModel(target, plain, fit.reason)


def _check_savable(signature: ModelSignature) -> None:
    for module in signature.walked.modules:
        if type(module).get_extra_state is not nn.Module.get_extra_state:
            raise ModelFolderError(
                f"{printable(type(module).__name__)} has extra state (get_extra_state), which safetensors cannot store"
            )
    missing = next((held.name for held in signature.tensors if held.tensor.is_meta), None)
    if missing is not None:
        raise ModelFolderError(f"{printable(missing)} is on the meta device and has no values: load the model first")


class _RebuiltModel(NamedTuple):
    """The rebuilt and cut model without weights, and the tensors to save."""

    signature: ModelSignature
    tensors: TensorsToSave
    attributes: dict[str, object]  # those that are others in the model that is saved


def _rebuild_model(
    model: nn.Module, signature: ModelSignature, cuts: Sequence[SavedCut], arguments: object, builder: object
) -> tuple[Origin, _RebuiltModel]:
    """The first builder that reproduces the model; raises `ModelFolderError` if there is none."""
    refusal: ModelFolderError | None = None
    for whole in _possibly_uncut(model, cuts):
        for origin in possible_origins(model, () if whole else cuts, arguments, builder):
            try:
                return origin, _rebuild_and_cut(origin, cuts, signature, whole)
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


def _rebuild_and_cut(origin: Origin, cuts: Sequence[SavedCut], signature: ModelSignature, whole: bool) -> _RebuiltModel:
    """The rebuilt and cut model; raises `ModelFolderError` if it differs."""
    model = build_with_empty_weights(origin.build)
    changed = _changed_attributes(signature, ModelSignature.of(model)) if whole else {}
    moved = paths_after(walk(model), cuts[0].edits.removal) if whole else {}
    try:
        for cut in cuts:
            cut.apply(model)
    except CutError as error:
        raise ModelFolderError(
            f"{printable(type(signature.model).__name__)}, built anew, cannot be cut as this model was ({error}): "
            "where it was cut several times, pass all receipts in turn, mk.save_model(model, folder, [first, second])"
        ) from error
    cut_signature = ModelSignature.of(model)
    if not whole:
        changed = _changed_attributes(signature, cut_signature)
        attributes = {attribute_path(key): value for key, value in changed.items()}
        return _RebuiltModel(cut_signature, all_tensors(signature), attributes)
    remaining = {}
    for key, value in changed.items():
        kind, path, name = map(str, key)
        if path in moved:
            remaining[attribute_path((kind, moved[path], name))] = value
    return _RebuiltModel(cut_signature, remaining_slices(signature, cut_signature, cuts[0].edits, moved), remaining)


def _changed_attributes(signature: ModelSignature, rebuilt: ModelSignature) -> Facts:
    """The attributes that were set after construction; raises `ModelFolderError` for other differences."""
    others = differing_facts(signature.facts, rebuilt.facts)
    attributes = {key: signature.facts[key] for key in others if can_be_set(key, signature.facts, rebuilt.facts)}
    others = [key for key in others if key not in attributes and not is_set_by_forward(key, rebuilt.facts)]
    if others:
        more = f", and {len(others) - 1} more differences" if len(others) > 1 else ""
        raise ModelFolderError(
            f"{printable(type(signature.model).__name__)} cannot be saved so that it loads again: "
            f"{describe_fact(others[0], signature.facts, rebuilt.facts)}{more}. Where the model was cut, pass the "
            "receipts of all "
            "cuts; where it was built with other arguments, pass arguments={…}; undo what changed it otherwise"
        )
    return attributes


def _files(saved: TensorsToSave, origin: Origin, cuts: Sequence[SavedCut]) -> dict[str, Writer]:
    files: dict[str, Writer] = {}
    for name, unsaved in ((TENSOR_FILE, False), (EXTRA_FILE, True)):
        tensors = list(saved.writes(unsaved))
        if tensors or not unsaved:
            files[name] = partial(write_tensors, tensors=tensors, metadata={"format": "pt"})
    if isinstance(origin, TransformersOrigin):
        files[CONFIG_FILE] = _json(origin.config, indent=2)
        if origin.generation is not None:
            files[GENERATION_FILE] = _json(origin.generation, indent=2)
    for at, cut in enumerate(cuts):
        files[plan_file_name(at)] = partial(_write, content=cut.text)
    return files


def _json(document: Mapping[str, object], indent: int | None = None) -> Writer:
    return partial(_write, content=json.dumps(document, indent=indent, sort_keys=True, allow_nan=False).encode())


def _write(file: IO[bytes], content: bytes) -> None:
    file.write(content)
