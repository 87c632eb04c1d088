"""Checkpoints of torch.distributed.checkpoint: a folder of shards, and the file `.metadata` that says what is in them.

A shard is one stream of `torch.save` after the other, each with a part of a tensor and without its name. So shards are
read by the metadata beside them, a pickle that is followed and not loaded.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from modulekg_widgets.engine.errors import ModelFileError, shown
from modulekg_widgets.engine.files.formats.pickle.pickle_machine import Key, LimitError, Made, Value
from modulekg_widgets.engine.files.formats.pickle.pickle_opcodes import Pickles, without_collecting
from modulekg_widgets.engine.files.formats.pickle.pickled import MOST_TENSORS, class_of, plain
from modulekg_widgets.engine.files.formats.pickle.pickled_tensors import dtype_word, sizes_of
from modulekg_widgets.engine.files.formats.pickle.torch_names import BITS, SAFE, code_warnings
from modulekg_widgets.engine.files.readers import file_reader
from modulekg_widgets.engine.files.records import Encoded, EncodedPart, FileContents, Plain, TensorRecord
from modulekg_widgets.engine.files.source import FileSource, is_plain_path

METADATA = ".metadata"
SHARD = ".distcp"
FORMAT = "dcp"
STREAM = "torch.save"
LARGEST_METADATA = 256 << 20  # bytes
MOST_LISTED = 5  # names in a message
LOADER = "torch.distributed.checkpoint.load"
_PLACE = "torch.distributed.checkpoint"
_TENSOR, _METADATA = f"{_PLACE}.metadata.TensorStorageMetadata", f"{_PLACE}.metadata.Metadata"
_OWN = "BytesStorageMetadata ChunkStorageMetadata MetadataIndex StorageMeta TensorProperties _MEM_FORMAT_ENCODING"
_SAFE = frozenset((
    *SAFE, _TENSOR, _METADATA, *(f"{_PLACE}.metadata.{name}" for name in _OWN.split()),
    f"{_PLACE}.filesystem._StorageInfo", "pathlib.Path", "pathlib.PosixPath", "pathlib.WindowsPath",
    "pathlib._local.Path", "pathlib._local.PosixPath", "pathlib._local.WindowsPath", "torch.layout", "torch.strided",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredPart:
    """Where a part of a tensor, or another object, is stored."""

    file: str
    start: int
    nbytes: int
    is_changed: bool  # by an extension, such as one that compresses


Parts = Mapping[tuple[str, tuple[int, ...]], StoredPart]  # by the tensor's name and where the part begins in it


@file_reader(METADATA)
def read_metadata(source: FileSource) -> FileContents:
    """The tensors of all shards, by the metadata beside them; those that are not there are a warning."""
    if source.size > LARGEST_METADATA:
        raise ModelFileError(
            f"{shown(source.name)} has {source.size:,} bytes, and at most {LARGEST_METADATA:,} are read: larger files "
            "are not opened"
        )
    with without_collecting():
        pickles = Pickles(source.read, source.size)
        try:
            return _contents(source, pickles, pickles.load())
        except LimitError as error:
            raise ModelFileError(f"{shown(source.name)}: {error}: larger files are not opened") from error


@file_reader(SHARD)
def read_shard(source: FileSource) -> FileContents:
    """The tensors of which a part lies in this shard."""
    if not source.has_beside(METADATA):
        raise ModelFileError(
            f"{shown(source.name)} is a shard of torch.distributed.checkpoint, and {METADATA}, which names what is in "
            "it, is not beside it: copy the whole folder, and open that"
        )
    with source.beside(METADATA) as metadata:
        contents = read_metadata(metadata)
    name = os.path.basename(source.name)
    here = [(each, [part for part in _parts_of(each) if part.file == name]) for each in contents.tensors]
    own = [each for each, parts in here if parts]
    if not own:
        raise ModelFileError(
            f"{shown(source.name)} has no tensors by the {METADATA} beside it: it has another name than when it was "
            "saved, or is of another checkpoint"
        )
    return replace(contents, tensors=tuple(own), warnings=(*_elsewhere(contents, here), *contents.warnings))


def _elsewhere(contents: FileContents, here: list[tuple[TensorRecord, list[EncodedPart]]]) -> Iterator[str]:
    """The warning for a shard that has not all of a checkpoint."""
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


def _contents(source: FileSource, pickles: Pickles, root: Value) -> FileContents:
    state = _attributes(root, _METADATA)
    listed = state.get("state_dict_metadata")
    if not isinstance(listed, dict):
        raise ModelFileError(
            f"{shown(source.name)} is not the metadata of torch.distributed.checkpoint: open the folder of a checkpoint"
        )
    stored = dict(_stored(source, state.get("storage_data")))
    optimizers = tuple(_before(name, "param_groups") for name in listed if type(name) is str and "param_groups" in name)
    optimizers = tuple(dict.fromkeys(prefix for prefix in optimizers if prefix is not None))
    tensors, objects = [], []
    for name, about in listed.items():
        if type(name) is not str:
            raise ModelFileError(f"{shown(source.name)} has an entry whose name is no text: it is forged")
        if type(about) is Made and class_of(about) == _TENSOR:
            tensors.append(_record(name, _attributes(about, _TENSOR), stored, optimizers))
        else:
            objects.append(name)
    if len(tensors) > MOST_TENSORS:
        raise ModelFileError(
            f"{shown(source.name)} has more than {MOST_TENSORS:,} tensors: larger files are not opened"
        )
    files = dict.fromkeys(part.file for part in stored.values())
    classes = sorted(each.path for each in pickles.globals.values())
    return FileContents(
        FORMAT,
        tuple(tensors),
        title=os.path.basename(os.path.dirname(source.path)),
        metadata=_told(state, len(files), objects),
        classes=tuple(classes),
        warnings=(*_absent(source, files), *_unstored(tensors), *code_warnings(classes, LOADER, _SAFE)),
    )


def _attributes(value: Value, kind: str) -> dict[Any, Value]:
    """The attributes of a plain object of a class; none for anything else."""
    is_one = type(value) is Made and class_of(value) == kind
    return value.state if is_one and isinstance(value.state, dict) else {}


def _stored(source: FileSource, entries: Value) -> Iterator[tuple[tuple[str, tuple[int, ...]], StoredPart]]:
    for key, value in entries.items() if isinstance(entries, dict) else ():
        index = key.value if type(key) is Key else None
        about = index.state if type(index) is Made and isinstance(index.state, dict) else {}
        place = value.state if type(value) is Made and isinstance(value.state, dict) else {}
        name, offset = about.get("fqn"), about.get("offset")
        file, start, nbytes = (place.get(each) for each in ("relative_path", "offset", "length"))
        if type(name) is not str or type(file) is not str or not is_plain_path(file):
            raise ModelFileError(
                f"{shown(source.name)} names {shown(repr(plain(file)))}, which is no file of its folder: it may lead "
                "anywhere, so it is not opened"
            )
        if type(start) is not int or type(nbytes) is not int or start < 0 or nbytes < 0:
            raise ModelFileError(f"{shown(source.name)} has a part of {shown(name)} that begins nowhere: it is forged")
        begin = () if offset is None else sizes_of(offset)
        yield (name, begin), StoredPart(file, start, nbytes, bool(place.get("transform_descriptors")))


def _record(name: str, about: Mapping[Any, Value], stored: Parts, optimizers: tuple[str, ...]) -> TensorRecord:
    shape, dtype = sizes_of(about.get("size")), _dtype(about.get("properties"))
    parts, changed = [], False
    chunks = about.get("chunks")
    for chunk in chunks if isinstance(chunks, list) else ():
        state = chunk.state if type(chunk) is Made and isinstance(chunk.state, dict) else {}
        offsets, sizes = sizes_of(state.get("offsets")), sizes_of(state.get("sizes"))
        part = stored.get((name, offsets))
        if part is not None:
            parts.append(EncodedPart(part.start, part.nbytes, part.file, offsets, sizes))
            changed = changed or part.is_changed
    form = f"{STREAM} that an extension has changed" if changed else STREAM
    is_of_optimizer = any(name.startswith(f"{prefix}state.") for prefix in optimizers)
    nbytes = -(-math.prod(shape) * BITS[dtype] // 8)
    role = "buffer" if is_of_optimizer else None
    return TensorRecord(name, shape, dtype, nbytes, role=role, encoded=Encoded(form, tuple(parts)))


def _dtype(properties: Value) -> str:
    state = properties.state if type(properties) is Made else None
    if isinstance(state, dict):
        return dtype_word(state.get("dtype"))
    return dtype_word(state[0] if isinstance(state, tuple) and state else None)


def _before(name: str, part: str) -> str | None:
    """The text before a part of a dotted name; None where it is none of its parts."""
    before, found, _ = f".{name}.".partition(f".{part}.")
    return f"{before[1:]}." * bool(before[1:]) if found else None


def _told(state: Mapping[Any, Value], files: int, objects: list[str]) -> dict[str, Plain]:
    told: dict[str, Plain] = {"files": files}
    version = state.get("version")
    if isinstance(version, str):
        told["version"] = plain(version)
    if objects:
        told["other entries"] = f"{len(objects):,}: {_some(objects)}"
    return told


def _absent(source: FileSource, files: Iterable[str]) -> Iterator[str]:
    missing = [name for name in files if not source.has_beside(name)]
    if missing:
        yield f"{len(missing):,} of the files are not there, so no values of theirs can be read: {_some(missing)}"


def _unstored(tensors: list[TensorRecord]) -> Iterator[str]:
    lost = [each.name for each in tensors if not _parts_of(each)]
    if lost:
        yield f"{len(lost):,} tensors are listed and stored nowhere: {_some(lost)}"


def _some(names: list[str]) -> str:
    return ", ".join(shown(name) for name in names[:MOST_LISTED]) + (", …" if len(names) > MOST_LISTED else "")
