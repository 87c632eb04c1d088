"""safetensors, one file: its header alone is read."""

from __future__ import annotations

import re

from modulekg_widgets.engine.errors import ModelFileError, shown
from modulekg_widgets.engine.files.readers import file_reader
from modulekg_widgets.engine.files.records import FileContents, TensorRecord
from modulekg_widgets.engine.files.source import FileSource
from modulekg_widgets.engine.safetensors_header import LARGEST_HEADER, LENGTH, read_header

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
