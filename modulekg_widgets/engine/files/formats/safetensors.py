"""The index of a model that is spread over several files, of safetensors or checkpoints of torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from modulekg_widgets.engine.errors import ModelFileError, shown
from modulekg_widgets.engine.files.formats.pickle.torch_zip import read_torch
from modulekg_widgets.engine.files.readers import ALSO_MALFORMED, MALFORMED, file_reader
from modulekg_widgets.engine.files.records import FileContents, Plain, TensorRecord
from modulekg_widgets.engine.files.source import FileSource, is_plain_name
from modulekg_widgets.engine.safe_files import parse_json
from modulekg_widgets.engine.safetensors_header import LARGEST_HEADER, LENGTH, MOST_TENSORS, HeaderError, read_header

# -------------------- safetensors, one file: its header alone is read


_END = re.compile(rb'"data_offsets"\s*:\s*\[\s*\d{1,18}\s*,\s*(\d{1,18})\s*\]')


@file_reader(".safetensors")
def read_safetensors(source: FileSource) -> FileContents:
    """The tensors of one file."""
    try:
        stored, metadata = read_header(source.read, source.size)
    except (ValueError, RecursionError) as error:
        if isinstance(error, ModelFileError):
            raise
        reason = shown(str(error), 300)
        if _is_cut_off(source):
            reason += ": it is cut off, download or copy it again"
        raise ModelFileError(f"{shown(source.name)} is no safetensors file: {reason}") from error
    # in the order of the bytes: a header is often sorted by name, and who writes a model goes through it in order
    placed = sorted(stored.items(), key=lambda pair: pair[1].start)
    shapes = {each.shape: each.shape for _, each in placed}  # each once: a model has few
    tensors = tuple(TensorRecord(name, shapes[e.shape], e.dtype, e.nbytes, e.start) for name, e in placed)
    return FileContents("safetensors", tensors, metadata=metadata)


def _is_cut_off(source: FileSource) -> bool:
    """True for a file that ends within its header, or before the tensors that are listed there."""
    length = int.from_bytes(source.read(0, min(LENGTH, source.size)), "little")
    if source.size < LENGTH or not 2 <= length <= LARGEST_HEADER:
        return source.size < LENGTH
    if length > source.size - LENGTH:
        return source.read(LENGTH, min(1, source.size - LENGTH)) in (b"", b"{")
    ends = _END.findall(source.read(LENGTH, length))
    return bool(ends) and max(map(int, ends)) > source.size - LENGTH - length


# ----------------------------------------


LARGEST_INDEX = 64 << 20  # bytes
MOST_SHARDS = 5_000
MOST_LISTED = 5  # names in a message
MOST_WARNINGS = 10  # of the files


@file_reader(".safetensors.index.json")
def read_index(source: FileSource) -> FileContents:
    """The tensors of all the files of safetensors that an index names."""
    return _all_files(source, "safetensors", read_safetensors)


@file_reader(".bin.index.json")
def read_checkpoint_index(source: FileSource) -> FileContents:
    """The tensors of all the checkpoints that an index names."""
    return _all_files(source, "checkpoint", read_torch)


@dataclass(slots=True)
class FoundShards:
    """What the files of an index have, by the names of tensors and keys of the metadata; the first one counts."""

    tensors: dict[str, TensorRecord] = field(default_factory=dict)
    metadata: dict[str, Plain] = field(default_factory=dict)
    classes: set[str] = field(default_factory=set)
    warnings: dict[str, None] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def add(self, shard: str, contents: FileContents) -> None:
        """Add what a file has; raises `ModelFileError` for a tensor that another one has, too."""
        for each in contents.tensors:
            if each.name in self.tensors:
                first = self.tensors[each.name].file
                raise ModelFileError(f"{shown(each.name)} stands in {shown(first)} and in {shown(shard)}")
            self.tensors[each.name] = replace(each, file=shard)
        if len(self.tensors) > MOST_TENSORS:
            raise ModelFileError(
                f"the files that the index names have more than {MOST_TENSORS:,} tensors: larger models are not opened"
            )
        self.metadata = {**contents.metadata, **self.metadata}
        self.classes.update(contents.classes)
        self.warnings.update(dict.fromkeys(contents.warnings))


def _all_files(source: FileSource, kind: str, read: Callable[[FileSource], FileContents]) -> FileContents:
    """What the files of an index have; those that are not there are a warning."""
    index = _index(source)
    listed: Mapping[str, str] = index["weight_map"]
    shards = dict.fromkeys(listed.values())
    for shard in shards:
        if not is_plain_name(shard):
            raise ModelFileError(
                f"{shown(source.name)} names {shown(repr(shard))}, which is no file of its folder: it may lead "
                "anywhere, so it is not opened"
            )
    found = FoundShards()
    for shard in shards:
        if source.has_beside(shard):
            found.add(shard, _read(source, shard, read))
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
            *_absent(found.missing),
            *_disagreement(listed, found.tensors, set(found.missing)),
            *list(found.warnings)[:MOST_WARNINGS],
        ),
    )


def _read(source: FileSource, shard: str, read: Callable[[FileSource], FileContents]) -> FileContents:
    with source.beside(shard) as file:
        try:
            return read(file)
        except (*MALFORMED, *ALSO_MALFORMED) as error:
            if isinstance(error, ModelFileError):
                raise
            reason = shown(str(error)) or type(error).__name__
            raise ModelFileError(f"{shown(shard)} is malformed: {reason}") from error


def _index(source: FileSource) -> dict[str, Any]:
    if source.size > LARGEST_INDEX:
        raise ModelFileError(f"{shown(source.name)} has {source.size:,} bytes, and an index has at most 64 MB")
    index = parse_json(source.read(), HeaderError, MOST_TENSORS, unique=True)
    listed = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(listed, dict) or not all(isinstance(shard, str) for shard in listed.values()):
        raise ModelFileError(f"{shown(source.name)} has no weight_map from the names of tensors to those of files")
    shards = len(set(listed.values()))
    if len(listed) > MOST_TENSORS or shards > MOST_SHARDS:
        raise ModelFileError(
            f"{shown(source.name)} names {len(listed):,} tensors in {shards:,} files, and {MOST_TENSORS:,} in "
            f"{MOST_SHARDS:,} are the most: larger files are not opened"
        )
    return index


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
