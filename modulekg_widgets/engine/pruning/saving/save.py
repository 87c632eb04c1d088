"""Saving: the model is built anew without weights and cut alike, compared, and written with what builds it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.errors import CutError, ModelFolderError, shown
from modulekg_widgets.engine.pruning.cut.edits import Edits, TensorEdit, slices
from modulekg_widgets.engine.pruning.saving.config_search import Fit, fitting_config
from modulekg_widgets.engine.pruning.saving.empty import built_empty
from modulekg_widgets.engine.pruning.saving.folder import MANIFEST, Writer, checked_folder, write_folder
from modulekg_widgets.engine.pruning.saving.manifest import (
    CONFIG_FILE,
    EXTRA_FILE,
    GENERATION_FILE,
    TENSOR_FILE,
    manifest_of,
    plan_file,
)
from modulekg_widgets.engine.pruning.saving.origin import Origin, SavedCut
from modulekg_widgets.engine.pruning.saving.origins import origins_of
from modulekg_widgets.engine.pruning.saving.tensor_file import ToWrite, write_tensors
from modulekg_widgets.engine.pruning.saving.transformers_origin import TransformersOrigin
from modulekg_widgets.engine.pruning.saving.twins import (
    Anatomy,
    can_be_set,
    described,
    different,
    dotted,
    is_left_by_forward,
)
from modulekg_widgets.engine.torch_runtime.state import unwrapped


@dataclass(frozen=True)
class SavedModel:
    """What was written, and who can read it.

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
        return shown(f"{self.folder}: {how} loads it ({self.reason})", 500)


def save(
    model: nn.Module, folder: Any, cuts: Sequence[SavedCut], arguments: Any = None, builder: Any = None
) -> SavedModel:
    """Save a model that `cuts` have been made to, or, where there is one cut, may still be made to.

    `arguments` and `builder` say how a model of plain torch is built. Raises `ModelFolderError` for a model that is
    something else than its origin cut so, and where the folder cannot be written; nothing is written then.
    """
    target = checked_folder(folder)
    model = unwrapped(model)
    whole = len(cuts) == 1 and _is_whole(model, cuts[0].edits)
    found = Anatomy.of(model)
    _check_savable(found)
    origins = origins_of(model, () if whole else cuts, arguments, builder)
    origin, twin, attributes = _built_anew(origins, cuts, found, whole)
    fit = Fit(None, "its class and the plan build it")
    if attributes:
        fit = Fit(None, f"{next(iter(attributes))} is not as it is built")
    elif isinstance(origin, TransformersOrigin):
        values = _values(found, cuts[0].edits if whole else None)
        fit = fitting_config(origin, Anatomy.of(twin), values)
    if fit.origin is not None:
        origin, cuts_in_folder = fit.origin, ()
    else:
        cuts_in_folder = cuts
    files = _files(found, origin, cuts_in_folder, cuts[0].edits if whole else None)
    content = manifest_of(
        origin, list(files), len(cuts_in_folder), fit.origin is not None, fit.reason, found.first_names, attributes
    )
    files[MANIFEST] = _json(content)
    write_folder(target, files)
    return SavedModel(target, fit.origin is not None, fit.reason)


def _is_whole(model: nn.Module, edits: Edits) -> bool:
    """Whether the model is as it was before a cut."""
    shapes = {name: tuple(tensor.shape) for name, tensor in (*model.named_parameters(), *model.named_buffers())}
    known = [edit for edit in edits.tensors if edit.names[0] in shapes and edit.shape != edit.shape_after]
    return bool(known) and all(shapes[edit.names[0]] == edit.shape for edit in known)


def _check_savable(found: Anatomy) -> None:
    for module in found.walked.modules:
        if type(module).get_extra_state is not nn.Module.get_extra_state:
            raise ModelFolderError(
                f"{shown(type(module).__name__)} has a state of its own (get_extra_state), which no safetensors holds"
            )
    missing = next((held.name for held in found.held if held.tensor.is_meta), None)
    if missing is not None:
        raise ModelFolderError(f"{shown(missing)} is on the meta device and has no values: load the model first")


def _built_anew(
    origins: Iterable[Origin], cuts: Sequence[SavedCut], found: Anatomy, whole: bool
) -> tuple[Origin, nn.Module, dict[str, Any]]:
    """The first origin that leads to this model, what it leads to, and the attributes that are others in the model.

    Raises `ModelFolderError` where none does.
    """
    refusal: ModelFolderError | None = None
    for origin in origins:
        try:
            return origin, *_twin(origin, cuts, found, whole)
        except ModelFolderError as error:
            refusal = refusal or error
        except Exception as error:  # noqa: BLE001 - of the code that builds it
            refusal = refusal or ModelFolderError(
                f"{shown(type(found.model).__name__)} cannot be built anew ({type(error).__name__}: "
                f"{shown(str(error), 200)}): say by arguments={{…}} or builder=… how it was built"
            )
    assert refusal is not None
    raise refusal


def _twin(origin: Origin, cuts: Sequence[SavedCut], found: Anatomy, whole: bool) -> tuple[nn.Module, dict[str, Any]]:
    """The model built anew and cut, without weights; raises `ModelFolderError` where it is another one."""
    twin = built_empty(origin.build)
    attributes = _compare(found, twin) if whole else {}
    try:
        for cut in cuts:
            cut.apply(twin)
    except CutError as error:
        raise ModelFolderError(
            f"{shown(type(found.model).__name__)}, built anew, cannot be cut as this model was ({error}): "
            "where it was cut several times, pass all receipts in turn, mk.save_model(model, folder, [first, second])"
        ) from error
    return twin, attributes if whole else _compare(found, twin)


def _compare(found: Anatomy, twin: nn.Module) -> dict[str, Any]:
    """The attributes that the model has set since it was built; raises `ModelFolderError` for any other difference."""
    anew = Anatomy.of(twin)
    others = different(found.facts, anew.facts)
    attributes = {key: found.facts[key] for key in others if can_be_set(key, found.facts, anew.facts)}
    others = [key for key in others if key not in attributes and not is_left_by_forward(key, anew.facts)]
    if others:
        more = f", and {len(others) - 1} more differences" if len(others) > 1 else ""
        raise ModelFolderError(
            f"{shown(type(found.model).__name__)} cannot be saved so that it loads again: "
            f"{described(others[0], found.facts, anew.facts)}{more}. Where the model was cut, pass the receipts of all "
            "cuts; where it was built with other arguments, pass arguments={…}; undo what changed it otherwise"
        )
    return {dotted(key): value for key, value in attributes.items()}


def _values(found: Anatomy, edits: Edits | None) -> Callable[[str], torch.Tensor]:
    """The tensors by name, or what stays of them."""
    if edits is None:
        return lambda name: found.by_name[name].tensor
    by_name = {name: edit for edit in edits.tensors for name in edit.names}
    slice_of = slices(edits, lambda name: found.by_name[name].tensor.detach())
    return lambda name: slice_of(by_name[name]) if name in by_name else found.by_name[name].tensor


def _files(found: Anatomy, origin: Origin, cuts: Sequence[SavedCut], edits: Edits | None) -> dict[str, Writer]:
    shapes = {name: edit for edit in (edits.tensors if edits else ()) for name in edit.names}
    value_of = _values(found, edits)
    files: dict[str, Writer] = {}
    for name, unsaved in ((TENSOR_FILE, False), (EXTRA_FILE, True)):
        tensors = list(_tensors(found, unsaved, shapes, value_of))
        if tensors or not unsaved:
            files[name] = partial(write_tensors, tensors=tensors, metadata={"format": "pt"})
    if isinstance(origin, TransformersOrigin):
        files[CONFIG_FILE] = _json(origin.config, indent=2)
        if origin.generation is not None:
            files[GENERATION_FILE] = _json(origin.generation, indent=2)
    for at, cut in enumerate(cuts):
        files[plan_file(at)] = partial(_write, content=cut.text)
    return files


def _tensors(
    found: Anatomy, unsaved: bool, edits: Mapping[str, TensorEdit], value_of: Callable[[str], torch.Tensor]
) -> Iterator[ToWrite]:
    for held in found.held:
        if (held.name in found.unsaved) is unsaved and found.first_names[held.name] == held.name:
            edit = edits.get(held.name)
            shape = tuple(held.tensor.shape) if edit is None else edit.shape_after
            yield ToWrite(held.name, shape, held.tensor.dtype, partial(value_of, held.name))


def _json(document: Mapping[str, Any], indent: int | None = None) -> Writer:
    return partial(_write, content=json.dumps(document, indent=indent, sort_keys=True, allow_nan=False).encode())


def _write(file: Any, content: bytes) -> None:
    file.write(content)
