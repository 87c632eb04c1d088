"""Checkpoints of torch.distributed.checkpoint: a folder of shards, and `.metadata`, which lists their tensors.

A shard is one stream of `torch.save` after the other, each with a part of a tensor and without its name. So shards are
read by the metadata beside them, a pickle that is followed and not loaded.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from modulekg_widgets.engine.errors import ModelFileError, printable
from modulekg_widgets.engine.file_formats.format_tables import TORCH_BITS
from modulekg_widgets.engine.files.formats.pickle.pickle_contents import MAX_TENSORS, object_class, plain_value
from modulekg_widgets.engine.files.formats.pickle.pickle_machine import (
    IdentityKey,
    LimitError,
    ObjectRecord,
    PickleValue,
)
from modulekg_widgets.engine.files.formats.pickle.pickle_opcodes import PickleStream, gc_paused
from modulekg_widgets.engine.files.formats.pickle.pickled_tensors import dtype_word, sizes_from
from modulekg_widgets.engine.files.formats.pickle.torch_names import SAFE_GLOBALS, code_warnings
from modulekg_widgets.engine.files.readers import file_reader
from modulekg_widgets.engine.files.records import EncodedPart, EncodedValues, FileContents, PlainValue, TensorRecord
from modulekg_widgets.engine.files.source import FileSource, is_safe_path

METADATA = ".metadata"
SHARD_EXTENSION = ".distcp"
FORMAT = "dcp"
STREAM = "torch.save"
MAX_METADATA_BYTES = 256 << 20  # bytes
MAX_LISTED = 5  # names in a message
LOADER = "torch.distributed.checkpoint.load"
_TORCH_MODULE = "torch.distributed.checkpoint"
_TENSOR, _METADATA = f"{_TORCH_MODULE}.metadata.TensorStorageMetadata", f"{_TORCH_MODULE}.metadata.Metadata"
_METADATA_CLASSES = (
    "BytesStorageMetadata ChunkStorageMetadata MetadataIndex StorageMeta TensorProperties _MEM_FORMAT_ENCODING"
)
_MEMORY_FORMATS = frozenset(
    f"{_TORCH_MODULE}.metadata._MEM_FORMAT_ENCODING.TORCH_{name}"
    for name in ("CONTIGUOUS_FORMAT", "CHANNELS_LAST", "PRESERVE_FORMAT")
)
_SAFE = frozenset((
    *SAFE_GLOBALS, _TENSOR, _METADATA, *(f"{_TORCH_MODULE}.metadata.{name}" for name in _METADATA_CLASSES.split()),
    f"{_TORCH_MODULE}.filesystem._StorageInfo", "pathlib.Path", "pathlib.PosixPath", "pathlib.WindowsPath",
    "pathlib._local.Path", "pathlib._local.PosixPath", "pathlib._local.WindowsPath", "torch.layout", "torch.strided",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredPart:
    """The location of a part of a tensor, or of another object: file, offset and bytes."""

    file: str
    start: int
    nbytes: int
    is_changed: bool  # by an extension, such as one that compresses


StoredParts = Mapping[tuple[str, tuple[int, ...]], StoredPart]  # by the tensor's name and where the part begins in it


@file_reader(METADATA)
def read_metadata(source: FileSource) -> FileContents:
    """Reads `.metadata`: the tensors of all shards; missing shards are a warning."""
    if source.size > MAX_METADATA_BYTES:
        raise ModelFileError(
            f"{printable(source.name)} has {source.size:,} bytes, and at most {MAX_METADATA_BYTES:,} are read: "
            "larger files "
            "are not opened"
        )
    with gc_paused():
        pickles = PickleStream(source.read, source.size, members=_MEMORY_FORMATS)
        try:
            return _contents(source, pickles, pickles.load())
        except LimitError as error:
            raise ModelFileError(f"{printable(source.name)}: {error}: larger files are not opened") from error


@file_reader(SHARD_EXTENSION)
def read_shard(source: FileSource) -> FileContents:
    """Reads one shard: the tensors with a part in it."""
    if not source.has_beside(METADATA):
        raise ModelFileError(
            f"{printable(source.name)} is a shard of torch.distributed.checkpoint, and {METADATA}, which names what "
            "is in "
            "it, is not in its folder: copy the whole folder, and open that"
        )
    with source.beside(METADATA) as metadata:
        contents = read_metadata(metadata)
    name = os.path.basename(source.name)
    here = [(each, [part for part in _parts_of(each) if part.file == name]) for each in contents.tensors]
    own = [each for each, parts in here if parts]
    if not own:
        raise ModelFileError(
            f"{printable(source.name)} has no tensors in the {METADATA} of its folder: it has another name than "
            "when it "
            "was "
            "saved, or is of another checkpoint"
        )
    return replace(
        contents, tensors=tuple(own), warnings=(*_incomplete_shard_warning(contents, here), *contents.warnings)
    )


def _incomplete_shard_warning(
    contents: FileContents, here: list[tuple[TensorRecord, list[EncodedPart]]]
) -> Iterator[str]:
    """The warning for a shard that has only a part of the checkpoint."""
    others = sum(not parts for _, parts in here)
    divided = sum(0 < len(parts) < len(_parts_of(each)) for each, parts in here)
    found = [f"{others:,} other tensors"] * (others > 0) + [f"parts of {divided:,} that are listed"] * (divided > 0)
    if found:
        yield (
            f"this is one of {contents.metadata.get('files')} files of a distributed checkpoint, and "
            f"{' and '.join(found)} lie in the others: open the folder"
        )


def _parts_of(record: TensorRecord) -> tuple[EncodedPart, ...]:
    return record.encoded.parts if record.encoded is not None else ()


def _contents(source: FileSource, pickles: PickleStream, root: PickleValue) -> FileContents:
    state = _attributes(root, _METADATA)
    listed = state.get("state_dict_metadata")
    if not isinstance(listed, dict):
        raise ModelFileError(
            f"{printable(source.name)} is not the metadata of torch.distributed.checkpoint: open the folder of a "
            "checkpoint"
        )
    stored = dict(_stored_parts(source, state.get("storage_data")))
    optimizers = tuple(
        _prefix_before(name, "param_groups") for name in listed if type(name) is str and "param_groups" in name
    )
    optimizers = tuple(dict.fromkeys(prefix for prefix in optimizers if prefix is not None))
    tensors, objects = [], []
    for name, about in listed.items():
        if type(name) is not str:
            raise ModelFileError(f"{printable(source.name)} has an entry whose name is not text: it is forged")
        if type(about) is ObjectRecord and object_class(about) == _TENSOR:
            tensors.append(_record(name, _attributes(about, _TENSOR), stored, optimizers))
        else:
            objects.append(name)
    if len(tensors) > MAX_TENSORS:
        raise ModelFileError(
            f"{printable(source.name)} has more than {MAX_TENSORS:,} tensors: larger files are not opened"
        )
    files = dict.fromkeys(part.file for part in stored.values())
    classes = pickles.paths
    return FileContents(
        FORMAT,
        tuple(tensors),
        title=os.path.basename(os.path.dirname(source.path)),
        metadata=_metadata_entries(state, len(files), objects),
        classes=tuple(classes),
        warnings=(
            *_missing_file_warning(source, files),
            *_missing_tensor_warning(tensors),
            *code_warnings(classes, LOADER, _SAFE),
        ),
    )


def _attributes(value: PickleValue, kind: str) -> dict[PickleValue, PickleValue]:
    """The attributes of an object of class `kind`; an empty dict for anything else."""
    is_one = type(value) is ObjectRecord and object_class(value) == kind
    return value.state if is_one and isinstance(value.state, dict) else {}


def _stored_parts(source: FileSource, entries: PickleValue) -> Iterator[tuple[tuple[str, tuple[int, ...]], StoredPart]]:
    for key, value in entries.items() if isinstance(entries, dict) else ():
        index = key.value if type(key) is IdentityKey else None
        about = index.state if type(index) is ObjectRecord and isinstance(index.state, dict) else {}
        place = value.state if type(value) is ObjectRecord and isinstance(value.state, dict) else {}
        name, offset = about.get("fqn"), about.get("offset")
        file, start, nbytes = (place.get(each) for each in ("relative_path", "offset", "length"))
        if type(name) is not str or type(file) is not str or not is_safe_path(file):
            raise ModelFileError(
                f"{printable(source.name)} names {printable(repr(plain_value(file)))}, which is not a file of its "
                "folder: it may lead "
                "anywhere, so it is not opened"
            )
        if type(start) is not int or type(nbytes) is not int or start < 0 or nbytes < 0:
            raise ModelFileError(
                f"{printable(source.name)} has a part of {printable(name)} that begins nowhere: it is forged"
            )
        begin = () if offset is None else sizes_from(offset)
        yield (name, begin), StoredPart(file, start, nbytes, bool(place.get("transform_descriptors")))


def _record(
    name: str, about: Mapping[PickleValue, PickleValue], stored: StoredParts, optimizers: tuple[str, ...]
) -> TensorRecord:
    shape, dtype = sizes_from(about.get("size")), _dtype(about.get("properties"))
    parts, changed = [], False
    chunks = about.get("chunks")
    for chunk in chunks if isinstance(chunks, list) else ():
        state = chunk.state if type(chunk) is ObjectRecord and isinstance(chunk.state, dict) else {}
        offsets, sizes = sizes_from(state.get("offsets")), sizes_from(state.get("sizes"))
        part = stored.get((name, offsets))
        if part is not None:
            parts.append(EncodedPart(part.start, part.nbytes, part.file, offsets, sizes))
            changed = changed or part.is_changed
    form = f"{STREAM} that an extension has changed" if changed else STREAM
    is_of_optimizer = any(name.startswith(f"{prefix}state.") for prefix in optimizers)
    nbytes = -(-math.prod(shape) * TORCH_BITS[dtype] // 8)
    role = "buffer" if is_of_optimizer else None
    return TensorRecord(name, shape, dtype, nbytes, role=role, encoded=EncodedValues(form, tuple(parts)))


def _dtype(properties: PickleValue) -> str:
    state = properties.state if type(properties) is ObjectRecord else None
    if isinstance(state, dict):
        return dtype_word(state.get("dtype"))
    return dtype_word(state[0] if isinstance(state, tuple) and state else None)


def _prefix_before(name: str, part: str) -> str | None:
    """The part of a dotted name before a component; None if it has no such component."""
    before, found, _ = f".{name}.".partition(f".{part}.")
    return f"{before[1:]}." * bool(before[1:]) if found else None


def _metadata_entries(
    state: Mapping[PickleValue, PickleValue], files: int, objects: list[str]
) -> dict[str, PlainValue]:
    told: dict[str, PlainValue] = {"files": files}
    version = state.get("version")
    if isinstance(version, str):
        told["version"] = plain_value(version)
    if objects:
        told["other entries"] = f"{len(objects):,}: {_abbreviated(objects)}"
    return told


def _missing_file_warning(source: FileSource, files: Iterable[str]) -> Iterator[str]:
    missing = [name for name in files if not source.has_beside(name)]
    if missing:
        yield (
            f"{len(missing):,} of the files are not there, so no values of theirs can be read: {_abbreviated(missing)}"
        )


def _missing_tensor_warning(tensors: list[TensorRecord]) -> Iterator[str]:
    lost = [each.name for each in tensors if not _parts_of(each)]
    if lost:
        yield f"{len(lost):,} tensors are listed and stored nowhere: {_abbreviated(lost)}"


def _abbreviated(names: list[str]) -> str:
    return ", ".join(printable(name) for name in names[:MAX_LISTED]) + (", …" if len(names) > MAX_LISTED else "")
