"""safetensors, one file: its header alone is read."""

from __future__ import annotations

from modulekg_widgets.engine.errors import ModelFileError, shown
from modulekg_widgets.engine.files.readers import file_reader
from modulekg_widgets.engine.files.records import FileContents, TensorRecord
from modulekg_widgets.engine.files.source import FileSource
from modulekg_widgets.engine.safetensors_header import read_header


@file_reader(".safetensors")
def read_safetensors(source: FileSource) -> FileContents:
    """The tensors of one file."""
    try:
        stored, metadata = read_header(source.read, source.size)
    except (ValueError, RecursionError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"{shown(source.name)} is no safetensors file: {shown(str(error), 300)}") from error
    # in the order of the bytes: a header is often sorted by name, and who writes a model goes through it in order
    placed = sorted(stored.items(), key=lambda pair: pair[1].start)
    shapes = {each.shape: each.shape for _, each in placed}  # each once: a model has few
    tensors = tuple(TensorRecord(name, shapes[e.shape], e.dtype, e.nbytes, e.start) for name, e in placed)
    return FileContents("safetensors", tensors, metadata=metadata)
