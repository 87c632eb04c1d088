"""safetensors: one file, and the index of a model that is spread over several."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from modulekg_widgets.engine.errors import ModelFileError, shown
from modulekg_widgets.engine.files.readers import file_reader
from modulekg_widgets.engine.files.records import FileContents, Plain, TensorRecord
from modulekg_widgets.engine.files.source import FileSource, is_plain_name
from modulekg_widgets.engine.safe_files import parse_json
from modulekg_widgets.engine.safetensors_header import MOST_TENSORS, HeaderError, read_header

LARGEST_INDEX = 64 << 20  # bytes
MOST_SHARDS = 5_000
MOST_LISTED = 5  # names in a message


@file_reader(".safetensors")
def read_safetensors(source: FileSource) -> FileContents:
    """The tensors of one file."""
    tensors, metadata = _tensors(source)
    return FileContents("safetensors", tensors, metadata=metadata)


@file_reader(".safetensors.index.json")
def read_index(source: FileSource) -> FileContents:
    """The tensors of all the files that an index names; those of files that are not there are a warning."""
    index = _index(source)
    listed: Mapping[str, str] = index["weight_map"]
    tensors: dict[str, TensorRecord] = {}
    metadata: dict[str, Plain] = {}
    missing: list[str] = []
    for shard in dict.fromkeys(listed.values()):
        if not is_plain_name(shard) or os.path.lexists(_beside(source, shard)):
            with source.beside(shard) as file:
                found, texts = _tensors(file, shard)
            metadata = {**texts, **metadata}
            _add(tensors, found, shard)
        else:
            missing.append(shard)
    warnings = [*_absent(missing), *_disagreement(listed, tensors, set(missing))]
    metadata |= {key: value for key, value in _plain(index.get("metadata")) if key not in metadata}
    ordered = [tensors.pop(name) for name in listed if name in tensors]
    return FileContents("safetensors", (*ordered, *tensors.values()), metadata=metadata, warnings=tuple(warnings))


def _tensors(source: FileSource, file: str = "") -> tuple[tuple[TensorRecord, ...], dict[str, str]]:
    try:
        stored, metadata = read_header(source.read, source.size)
    except (ValueError, RecursionError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"{shown(source.name)} is no safetensors file: {shown(str(error), 300)}") from error
    # in the order of the bytes: a header is often sorted by name, and who writes a model goes through it in order
    placed = sorted(stored.items(), key=lambda pair: pair[1].start)
    return tuple(TensorRecord(n, e.shape, e.dtype, e.nbytes, e.start, file) for n, e in placed), metadata


def _index(source: FileSource) -> dict[str, Any]:
    if source.size > LARGEST_INDEX:
        raise ModelFileError(f"{shown(source.name)} has {source.size:,} bytes, and an index has at most 64 MB")
    index = parse_json(source.read(), HeaderError, MOST_TENSORS, unique=True)
    listed = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(listed, dict) or not all(isinstance(shard, str) for shard in listed.values()):
        raise ModelFileError(f"{shown(source.name)} has no weight_map from the names of tensors to those of files")
    shards = len(set(listed.values()))
    if len(listed) > MOST_TENSORS or shards > MOST_SHARDS:
        raise ModelFileError(f"{shown(source.name)} names {len(listed):,} tensors in {shards:,} files: it is forged")
    return index


def _beside(source: FileSource, name: str) -> str:
    return os.path.join(os.path.dirname(source.path), name)


def _add(tensors: dict[str, TensorRecord], found: tuple[TensorRecord, ...], shard: str) -> None:
    for each in found:
        if each.name in tensors:
            raise ModelFileError(f"{shown(each.name)} stands in {shown(tensors[each.name].file)} and in {shown(shard)}")
        tensors[each.name] = each
    if len(tensors) > MOST_TENSORS:
        raise ModelFileError(f"the files that the index names have more than {MOST_TENSORS:,} tensors")


def _absent(missing: list[str]) -> Iterator[str]:
    if missing:
        yield f"{len(missing):,} of the files are not there, so their tensors are not shown: {_some(missing)}"


def _disagreement(listed: Mapping[str, str], tensors: Mapping[str, TensorRecord], missing: set[str]) -> Iterator[str]:
    """Where the index says otherwise than the files."""
    lost = [name for name, shard in listed.items() if shard not in missing and name not in tensors]
    elsewhere = [name for name, shard in listed.items() if name in tensors and tensors[name].file != shard]
    unlisted = [name for name in tensors if name not in listed]
    for names, what in ((lost, "are in no file"), (elsewhere, "are in another file"), (unlisted, "are not listed")):
        if names:
            yield f"the index does not agree with the files: {len(names):,} tensors {what}: {_some(names)}"


def _some(names: list[str]) -> str:
    return ", ".join(shown(name) for name in names[:MOST_LISTED]) + (", …" if len(names) > MOST_LISTED else "")


def _plain(values: Any) -> Iterator[tuple[str, Plain]]:
    if isinstance(values, dict):
        yield from ((key, value) for key, value in values.items() if isinstance(value, Plain))
