"""Safetensors files: written tensor by tensor, and read after the header is checked."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BufferedReader
from typing import IO, NamedTuple

import torch

from modulekg_widgets.engine.errors import ModelFolderError, printable
from modulekg_widgets.engine.file_formats.format_tables import SAFETENSORS_DTYPES
from modulekg_widgets.engine.file_formats.safetensors_header import (
    LENGTH_BYTES,
    METADATA,
    HeaderEntry,
    HeaderError,
    read_header,
)
from modulekg_widgets.engine.json_types import JsonObject
from modulekg_widgets.engine.pruning.cut.derived_state import recomputed_values
from modulekg_widgets.engine.pruning.cut.edits import Edits, slicer
from modulekg_widgets.engine.pruning.saving.model_signature import ModelSignature
from modulekg_widgets.engine.safe_files import BINARY, NO_FOLLOW, NONBLOCKING, PATHLIKE

ALIGNMENT = 64  # bytes: where the widest registers begin
# the dtypes that torch has, and of which it counts whole elements
TORCH_DTYPES = {
    name: getattr(torch, word)
    for name, (word, bits) in SAFETENSORS_DTYPES.items()
    if bits >= 8 and hasattr(torch, word)
}
DTYPES_BY_NAME = {str(dtype).removeprefix("torch."): dtype for dtype in TORCH_DTYPES.values()}
FORMAT_NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}


class TensorWrite(NamedTuple):
    """A tensor to write; `make` returns its values when its turn comes."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    make: Callable[[], torch.Tensor]


class StoredTensor(NamedTuple):
    """A tensor in a file."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    start: int  # in the file
    nbytes: int


def write_tensors(file: IO[bytes], tensors: Iterable[TensorWrite], metadata: Mapping[str, str]) -> None:
    """Write tensors one by one; raises `ModelFolderError` for unsupported dtypes."""
    every = sorted(tensors, key=_alignment_order)
    header: JsonObject = {METADATA: dict(metadata)}
    end = 0
    for each in every:
        if each.dtype not in FORMAT_NAMES:
            raise ModelFolderError(
                f"{printable(each.name)} is {each.dtype}, which safetensors does not support: convert it first"
            )
        start, end = end, end + math.prod(each.shape) * each.dtype.itemsize
        header[each.name] = {"dtype": FORMAT_NAMES[each.dtype], "shape": list(each.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + LENGTH_BYTES) % ALIGNMENT)
    file.write(len(text).to_bytes(LENGTH_BYTES, "little"))
    file.write(text)
    for each in every:
        file.write(_tensor_bytes(each))


def _alignment_order(each: TensorWrite) -> tuple[bool, int]:
    """Sort key that aligns each tensor to its item size, and to `ALIGNMENT` bytes where possible.

    Whoever maps the file into memory computes as fast, and to the last bit the same, as with tensors of his own.
    """
    return math.prod(each.shape) * each.dtype.itemsize % ALIGNMENT != 0, -each.dtype.itemsize


def _tensor_bytes(each: TensorWrite) -> memoryview:
    tensor = each.make().detach().resolve_conj().resolve_neg()
    if tuple(tensor.shape) != each.shape or tensor.dtype is not each.dtype or tensor.is_meta:
        raise ModelFolderError(f"{printable(each.name)} has no values, or changed while it was saved: save again")
    return _memory_view(tensor.cpu().contiguous())


def _memory_view(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous tensor on the CPU."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data


class TensorFile:
    """An open safetensors file with a checked header."""

    def __init__(self, file: BufferedReader, stored: dict[str, StoredTensor], metadata: dict[str, str]) -> None:
        self._file, self.stored, self.metadata = file, stored, metadata

    def read(self, name: str) -> torch.Tensor:
        """Read a tensor into memory of its own."""
        stored = self.stored[name]
        with torch.inference_mode(False):
            tensor = torch.empty(stored.shape, dtype=stored.dtype, device="cpu")
        self._file.seek(stored.start)
        if stored.nbytes and self._file.readinto(_memory_view(tensor)) != stored.nbytes:
            raise ModelFolderError(f"the file ends within {printable(name)}: it changed while it was read")
        return tensor


@contextmanager
def open_tensors(path: PATHLIKE) -> Iterator[TensorFile]:
    """Open a safetensors file; raises `ModelFolderError` for anything else."""
    name = os.path.basename(path)
    if os.path.islink(path):
        raise ModelFolderError(
            f"{printable(name)} is a link, which may lead out of the folder: put the file itself there"
        )
    try:
        handle = os.open(path, os.O_RDONLY | BINARY | NONBLOCKING | NO_FOLLOW)
    except (OSError, ValueError) as error:
        reason = printable(getattr(error, "strerror", None) or str(error))
        raise ModelFolderError(f"{printable(name)} cannot be read ({reason}): save the model again") from error
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise ModelFolderError(f"{printable(name)} is not a regular file: save the model again")
    with os.fdopen(handle, "rb") as file:
        try:
            entries, metadata = read_header(lambda offset, length: _read_range(file, offset, length), status.st_size)
            yield TensorFile(file, {key: _stored_tensor(key, entry) for key, entry in entries.items()}, metadata)
        except HeaderError as error:
            raise ModelFolderError(f"{printable(name)} is not a safetensors file: {error}") from error
        except (ValueError, RecursionError, OSError) as error:
            if isinstance(error, ModelFolderError):
                raise
            raise ModelFolderError(f"{printable(name)} is not a safetensors file: {printable(str(error))}") from error


def _read_range(file: BufferedReader, offset: int, length: int) -> bytes:
    file.seek(offset)
    return file.read(length)


def _stored_tensor(name: str, entry: HeaderEntry) -> StoredTensor:
    dtype = DTYPES_BY_NAME.get(entry.dtype)
    if dtype is None:
        raise HeaderError(f"{printable(name)} is of the dtype {entry.dtype}, which this version of torch does not have")
    return StoredTensor(entry.shape, dtype, entry.start, entry.nbytes)


# -------------------- The tensors of a saved model by name, shape and tie


@dataclass(frozen=True)
class TensorsToSave:
    """The tensors to save: of a cut model, or slices of a whole one, read one by one."""

    signature: ModelSignature  # of the cut model: its own, or that of one without weights
    tensor_of: Callable[[str], torch.Tensor]  # as it is in the model that is saved
    value_of: Callable[[str], torch.Tensor]  # as the folder has it

    def writes(self, unsaved: bool) -> Iterator[TensorWrite]:
        """Each tensor once under its first name, in the state_dict or outside of it."""
        for held in self.signature.tensors:
            name = held.name
            if (name in self.signature.unsaved) is unsaved and self.signature.first_names[name] == name:
                yield TensorWrite(
                    name, tuple(held.tensor.shape), self.tensor_of(name).dtype, partial(self.value_of, name)
                )


def all_tensors(signature: ModelSignature) -> TensorsToSave:
    """The tensors of a model as they are."""

    def tensor_of(name: str) -> torch.Tensor:
        return signature.by_name[name].tensor

    return TensorsToSave(signature, tensor_of, tensor_of)


def remaining_slices(
    signature: ModelSignature, cut: ModelSignature, edits: Edits, new_paths: Mapping[str, str]
) -> TensorsToSave:
    """The remaining slices of a whole model; `cut` is the signature of the cut model without weights."""
    paths = {now: before for before, now in new_paths.items()}
    names = {held.name: _renamed(held.name, paths) for held in cut.tensors}
    by_name = {name: edit for edit in edits.tensors for name in edit.names}
    slice_of = slicer(edits, lambda name: signature.by_name[name].tensor.detach())
    derived = recomputed_values(signature.walked, edits)

    def tensor_of(name: str) -> torch.Tensor:
        return signature.by_name[names[name]].tensor

    def value_of(name: str) -> torch.Tensor:
        if names[name] in derived:
            return derived[names[name]].tensor
        edit = by_name.get(names[name])
        return tensor_of(name) if edit is None else slice_of(edit)

    return TensorsToSave(cut, tensor_of, value_of)


def _renamed(name: str, paths: Mapping[str, str]) -> str:
    """The name of a tensor whose module has moved to another path."""
    path = name.rpartition(".")[0]
    while path not in paths:
        path = path.rpartition(".")[0]
    within = name[len(path) + 1 :] if path else name
    return f"{paths[path]}.{within}" if paths[path] else within
