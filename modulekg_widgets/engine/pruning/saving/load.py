"""Loads a model folder: everything is checked before a tensor is read."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

import torch
from torch import nn

from modulekg_widgets.engine.errors import ModelFolderError, ModuleKGError, printable
from modulekg_widgets.engine.pruning.cut.edits import Edits
from modulekg_widgets.engine.pruning.cut.transaction import apply_edits
from modulekg_widgets.engine.pruning.saving.empty_weights import build_with_empty_weights
from modulekg_widgets.engine.pruning.saving.library_origins import read_origin
from modulekg_widgets.engine.pruning.saving.model_folder import (
    EXTRA_FILE,
    TENSOR_FILE,
    Manifest,
    check_exists,
    check_foreign_files,
    checked_folder,
    plan_file_name,
    read_bytes,
    read_manifest,
)
from modulekg_widgets.engine.pruning.saving.model_signature import ModelSignature, set_attributes
from modulekg_widgets.engine.pruning.saving.origin import Origin, trusted_classes
from modulekg_widgets.engine.pruning.saving.tensor_file import StoredTensor, TensorFile, open_tensors
from modulekg_widgets.engine.torch_runtime.isolation.sandbox import Sandbox

ApplyPlan = Callable[[bytes, nn.Module], object]  # cuts a model by the text of a plan
EXTRA_NUMBERS = 1 << 25  # what a model without weights may compute beside its tensors: tables, masks
CALLS_PER_TENSOR, EXTRA_CALLS = 100, 100_000


def load(folder: object, classes: Sequence[object], apply_plan: ApplyPlan) -> nn.Module:
    """The model of a folder in eval mode; raises `ModelFolderError` for anything else."""
    path = checked_folder(folder)
    trusted = trusted_classes(classes)
    check_exists(path)
    manifest = read_manifest(path)
    check_foreign_files(path, set(manifest.files))
    origin = read_origin(manifest, path, trusted)
    plans = [read_bytes(path, plan_file_name(at)) for at in range(manifest.cuts)]
    with ExitStack() as stack:
        files = [stack.enter_context(open_tensors(os.path.join(path, name)))
                 for name in (TENSOR_FILE, EXTRA_FILE) if name in manifest.files or name == TENSOR_FILE]  # fmt: skip
        model = _build_cut_model(origin, plans, apply_plan, [each for file in files for each in file.stored.values()])
        signature = ModelSignature.of(model)
        sources = _tensor_sources(signature, files, manifest)
        set_attributes(signature, manifest.attributes)
        values = {name: file.read(name) for name, file in sources.items()}
    return _with_tensors(signature, values)


def _build_cut_model(
    origin: Origin, plans: Sequence[bytes], apply_plan: ApplyPlan, stored: Sequence[StoredTensor]
) -> nn.Module:
    """The model without weights, cut as saved."""
    numbers = 4 * sum(each.nbytes // each.dtype.itemsize for each in stored) + EXTRA_NUMBERS
    calls = CALLS_PER_TENSOR * len(stored) + EXTRA_CALLS
    try:
        model = build_with_empty_weights(origin.build, numbers, calls)
        for text in plans:
            apply_plan(text, model)
    except ModelFolderError:
        raise
    except ModuleKGError as error:
        raise ModelFolderError(f"the plan in the folder is none of the model there: {error}") from error
    except Exception as error:
        raise ModelFolderError(
            f"the model cannot be built from what the folder says ({type(error).__name__}: "
            f"{printable(str(error), 200)}): "
            "it was saved with another release of its library, or changed since"
        ) from error
    return model


def _tensor_sources(
    signature: ModelSignature, files: Sequence[TensorFile], manifest: Manifest
) -> dict[str, TensorFile]:
    """The file of each tensor; raises `ModelFolderError` if model and files do not match."""
    firsts = signature.first_names
    tied = {name: first for name, first in firsts.items() if name != first}
    if tied != dict(manifest.tied):
        raise ModelFolderError("the folder ties other tensors than the model does: it is of another model or release")
    sources: dict[str, TensorFile] = {}
    for file in files:
        for name, stored in file.stored.items():
            _check_tensor(name, stored, signature, sources)
            sources[name] = file
    for name, first in firsts.items():
        if first not in sources:
            raise ModelFolderError(
                f"the folder has no tensor {printable(name)!r}, which the model has: the folder is incomplete"
            )
    return sources


def _check_tensor(
    name: str, stored: StoredTensor, signature: ModelSignature, sources: Mapping[str, TensorFile]
) -> None:
    if name in sources or signature.first_names.get(name) != name:
        raise ModelFolderError(
            f"the folder has a tensor {printable(name)!r}, which the model does not have: it belongs to another model"
        )
    tensor = signature.by_name[name].tensor
    if tuple(tensor.shape) != stored.shape:
        raise ModelFolderError(
            f"{printable(name)} in the folder has the shape {list(stored.shape)}, and in the model "
            f"{list(tensor.shape)}: "
            "the tensors are those of another model, or of another cut"
        )
    alike = tensor.is_floating_point() == stored.dtype.is_floating_point
    if not alike or (tensor.dtype != stored.dtype and not tensor.is_floating_point()):
        raise ModelFolderError(f"{printable(name)} in the folder is {stored.dtype}, and in the model {tensor.dtype}")


def _with_tensors(signature: ModelSignature, values: Mapping[str, torch.Tensor]) -> nn.Module:
    by_name = {name: values[first] for name, first in signature.first_names.items()}
    sandbox = Sandbox(signature.walked.modules, None, None)
    apply_edits(signature.walked, sandbox, Edits(()), lambda edit, tensor: tensor, by_name)
    return signature.model.eval()
