"""Indices of sharded models: safetensors or torch checkpoints in several files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from modulekg_widgets.engine.errors import ModelFileError, printable
from modulekg_widgets.engine.file_formats.safetensors_header import (
    LENGTH_BYTES,
    MAX_HEADER_BYTES,
    MAX_TENSORS,
    HeaderError,
    read_header,
)
from modulekg_widgets.engine.files.formats.pickle.torch_checkpoint import read_torch
from modulekg_widgets.engine.files.readers import MALFORMED, MALFORMED_BEYOND_VALUES, file_reader
from modulekg_widgets.engine.files.records import FileContents, PlainValue, TensorRecord
from modulekg_widgets.engine.files.source import FileSource, is_safe_name
from modulekg_widgets.engine.safe_files import parse_json

# -------------------- safetensors files: the header is read, and no tensor


_END = re.compile(rb'"data_offsets"\s*:\s*\[\s*\d{1,18}\s*,\s*(\d{1,18})\s*\]')


@file_reader(".safetensors")
def read_safetensors(source: FileSource) -> FileContents:
    """Reads the tensors and metadata of one file."""
    try:
        stored, metadata = read_header(source.read, source.size)
    except (ValueError, RecursionError) as error:
        if isinstance(error, ModelFileError):
            raise
        reason = printable(str(error), 300)
        if _is_cut_off(source):
            reason += ": it is cut off, download or copy it again"
        raise ModelFileError(f"{printable(source.name)} is not a safetensors file: {reason}") from error
    # in the order of the bytes: a header is often sorted by name, and who writes a model goes through it in order
    placed = sorted(stored.items(), key=lambda pair: pair[1].start)
    shapes = {each.shape: each.shape for _, each in placed}  # each once: a model has few
    tensors = tuple(TensorRecord(name, shapes[e.shape], e.dtype, e.nbytes, e.start) for name, e in placed)
    return FileContents("safetensors", tensors, metadata=metadata)


def _is_cut_off(source: FileSource) -> bool:
    """True for a truncated file: it ends within its header, or before the last tensor."""
    length = int.from_bytes(source.read(0, min(LENGTH_BYTES, source.size)), "little")
    if source.size < LENGTH_BYTES or not 2 <= length <= MAX_HEADER_BYTES:
        return source.size < LENGTH_BYTES
    if length > source.size - LENGTH_BYTES:
        return source.read(LENGTH_BYTES, min(1, source.size - LENGTH_BYTES)) in (b"", b"{")
    ends = _END.findall(source.read(LENGTH_BYTES, length))
    return bool(ends) and max(map(int, ends)) > source.size - LENGTH_BYTES - length


# ----------------------------------------


MAX_INDEX_BYTES = 64 << 20  # bytes
MAX_SHARDS = 5_000
MAX_LISTED = 5  # names in a message
MAX_WARNINGS = 10  # of the files


@file_reader(".safetensors.index.json")
def read_index(source: FileSource) -> FileContents:
    """Reads the tensors of all safetensors files that an index names."""
    return _read_shards(source, "safetensors", read_safetensors)


@file_reader(".bin.index.json")
def read_checkpoint_index(source: FileSource) -> FileContents:
    """Reads the tensors of all checkpoints that an index names."""
    return _read_shards(source, "checkpoint", read_torch)


@dataclass(slots=True)
class ShardContents:
    """Merged contents of the shards, by tensor name and metadata key; the first one counts."""

    tensors: dict[str, TensorRecord] = field(default_factory=dict)
    metadata: dict[str, PlainValue] = field(default_factory=dict)
    classes: set[str] = field(default_factory=set)
    warnings: dict[str, None] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def add(self, shard: str, contents: FileContents) -> None:
        """Add the contents of a shard; raises `ModelFileError` for a duplicate tensor."""
        for each in contents.tensors:
            if each.name in self.tensors:
                first = self.tensors[each.name].file
                raise ModelFileError(f"{printable(each.name)} stands in {printable(first)} and in {printable(shard)}")
            self.tensors[each.name] = replace(each, file=shard)
        if len(self.tensors) > MAX_TENSORS:
            raise ModelFileError(
                f"the files that the index names have more than {MAX_TENSORS:,} tensors: larger models are not opened"
            )
        self.metadata = {**contents.metadata, **self.metadata}
        self.classes.update(contents.classes)
        self.warnings.update(dict.fromkeys(contents.warnings))


def _read_shards(source: FileSource, kind: str, read: Callable[[FileSource], FileContents]) -> FileContents:
    """Reads all shards of an index; missing ones are a warning."""
    index = _index(source)
    listed: Mapping[str, str] = index["weight_map"]
    shards = dict.fromkeys(listed.values())
    for shard in shards:
        if not is_safe_name(shard):
            raise ModelFileError(
                f"{printable(source.name)} names {printable(repr(shard))}, which is not a file of its folder: it "
                "may lead "
                "anywhere, so it is not opened"
            )
    found = ShardContents()
    for shard in shards:
        if source.has_beside(shard):
            found.add(shard, _read_shard(source, shard, read))
        else:
            found.missing.append(shard)
    own = {key: value for key, value in _plain(index.get("metadata")) if key not in found.metadata}
    ordered = [found.tensors[name] for name in listed if name in found.tensors]
    return FileContents(
        kind,
        (*ordered, *(tensor for name, tensor in found.tensors.items() if name not in listed)),
        metadata=found.metadata | own,
        classes=tuple(sorted(found.classes)),
        warnings=(
            *_missing_shard_warning(found.missing),
            *_disagreement(listed, found.tensors, set(found.missing)),
            *list(found.warnings)[:MAX_WARNINGS],
        ),
    )


def _read_shard(source: FileSource, shard: str, read: Callable[[FileSource], FileContents]) -> FileContents:
    with source.beside(shard) as file:
        try:
            return read(file)
        except (*MALFORMED, *MALFORMED_BEYOND_VALUES) as error:
            if isinstance(error, ModelFileError):
                raise
            reason = printable(str(error)) or type(error).__name__
            raise ModelFileError(f"{printable(shard)} is malformed: {reason}") from error


def _index(source: FileSource) -> dict[str, Any]:
    if source.size > MAX_INDEX_BYTES:
        raise ModelFileError(f"{printable(source.name)} has {source.size:,} bytes, and an index has at most 64 MB")
    index = parse_json(source.read(), HeaderError, MAX_TENSORS, unique=True)
    listed = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(listed, dict) or not all(isinstance(shard, str) for shard in listed.values()):
        raise ModelFileError(f"{printable(source.name)} has no weight_map from the names of tensors to those of files")
    shards = len(set(listed.values()))
    if len(listed) > MAX_TENSORS or shards > MAX_SHARDS:
        raise ModelFileError(
            f"{printable(source.name)} names {len(listed):,} tensors in {shards:,} files, and {MAX_TENSORS:,} in "
            f"{MAX_SHARDS:,} are the most: larger files are not opened"
        )
    return index


def _missing_shard_warning(missing: list[str]) -> Iterator[str]:
    if missing:
        yield f"{len(missing):,} of the files are not there, so their tensors are not shown: {_abbreviated(missing)}"


def _disagreement(listed: Mapping[str, str], tensors: Mapping[str, TensorRecord], missing: set[str]) -> Iterator[str]:
    """Warnings for tensors whose file in the index is not the real one."""
    lost = [name for name, shard in listed.items() if shard not in missing and name not in tensors]
    elsewhere = [name for name, shard in listed.items() if name in tensors and tensors[name].file != shard]
    unlisted = [name for name in tensors if name not in listed]
    for names, what in ((lost, "are in no file"), (elsewhere, "are in another file"), (unlisted, "are not listed")):
        if names:
            yield f"the index does not agree with the files: {len(names):,} tensors {what}: {_abbreviated(names)}"


def _abbreviated(names: list[str]) -> str:
    return ", ".join(printable(name) for name in names[:MAX_LISTED]) + (", …" if len(names) > MAX_LISTED else "")


def _plain(values: object) -> Iterator[tuple[str, PlainValue]]:
    if isinstance(values, dict):
        yield from ((key, value) for key, value in values.items() if isinstance(value, PlainValue))
