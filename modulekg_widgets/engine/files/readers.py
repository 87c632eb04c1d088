"""The readers of model files by extension: which of them a file is given to, and what becomes of its failures."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Callable

from modulekg_widgets.engine.errors import ModelFileError, ModuleKGError, nearest, shown
from modulekg_widgets.engine.files.records import FileContents
from modulekg_widgets.engine.files.source import FileSource
from modulekg_widgets.engine.registry import Registry

Reader = Callable[[FileSource], FileContents]
READERS: Registry[Reader] = Registry("reader of files")
_MAGIC: dict[str, tuple[bytes, ...]] = {}  # by extension: what such a file begins with

LARGEST = 1 << 60  # elements of a tensor
LONGEST_NAME = 10_000  # characters
# what stands in the place of a model after a download that went wrong
NO_MODELS = {
    b"version https://git-lfs": "a pointer of Git LFS and not the file itself: run git lfs pull in its folder",
    b"<!doctype": "a web page and not a model: download it again, signed in if need be",
    b"<html": "a web page and not a model: download it again, signed in if need be",
}
# what bytes that are not what they should be make of Python's own parsers
MALFORMED = (
    ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RuntimeError, EOFError, StopIteration,
)  # fmt: skip
ALSO_MALFORMED = (struct.error, OSError, MemoryError, NotImplementedError)


def file_reader(*extensions: str, magic: bytes | tuple[bytes, ...] = ()) -> Callable[[Reader], Reader]:
    """Register a function that reads a format of model files: `FileSource` → `FileContents`.

    Parameters
    ----------
    *extensions : str
        What the names of such files end with, as ".safetensors".
    magic : bytes or tuple of bytes, optional
        What such a file begins with. A file of another name that begins so is read by it, too, and one of this
        extension that does not is refused.

    Returns
    -------
    Callable
        The decorator. The function gets a `FileSource` (`.size`, `.read(offset, length)`, `.beside(name)`), runs
        nothing of what is in the file, and raises `ModelFileError`, or `ValueError` for bytes that make no sense.

    Raises
    ------
    DuplicateNameError
        For an extension that is taken.
    NotAFunctionError
        For what cannot be called.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> from modulekg_widgets.engine.files.records import FileContents, TensorRecord
    >>> @mk.file_reader(".names")
    ... def names(source):
    ...     lines = source.read().decode().split()
    ...     return FileContents("names", tuple(TensorRecord(line, (1,), "float32", 4) for line in lines))
    """
    names = [extension.lower() for extension in extensions]

    def decorate(reader: Reader) -> Reader:
        READERS.register(*names)(reader)
        _MAGIC.update(dict.fromkeys(names, (magic,) if isinstance(magic, bytes) else tuple(magic)))
        return reader

    return decorate


def read(source: FileSource) -> FileContents:
    """What the reader of a file tells of it; raises `ModelFileError`, whatever the bytes."""
    reader = _reader_of(source)
    try:
        return _checked(reader(source))
    except ModuleKGError:
        raise
    except (*MALFORMED, *ALSO_MALFORMED) as error:
        reason = shown(str(error)) or type(error).__name__
        raise ModelFileError(f"{shown(source.name)} is malformed: {reason}") from error


def _checked(contents: FileContents) -> FileContents:
    """Raise `ModelFileError` where two tensors or operators have one name, or a size is none."""
    tensors = {each.name for each in contents.tensors}
    if len(tensors) != len(contents.tensors):
        again = next(name for name, count in Counter(each.name for each in contents.tensors).items() if count > 1)
        raise ModelFileError(f"the tensor {shown(again)!r} stands in it twice: it is forged, or was written by mistake")
    for each in contents.tensors:
        if len(each.name) > LONGEST_NAME:
            raise ModelFileError(f"the name of a tensor, {shown(each.name)}, has {len(each.name):,} characters")
        if not 0 <= each.nbytes < 1 << 63 or not _is_shape(each.shape):
            raise ModelFileError(f"{shown(each.name)} has the shape {shown(str(list(each.shape)))}: it is forged")
    operators = contents.graph.operators if contents.graph is not None else ()
    if len({each.name for each in operators}) != len(operators):
        raise ModelFileError("two of its operators have one name: the reader has to tell them apart")
    return contents


def _is_shape(shape: tuple[int, ...]) -> bool:
    """Whether torch could have such a tensor: its strides are numbers of 64 bits, also where it is empty."""
    if not all(type(size) is int and size >= 0 for size in shape):
        return False
    return math.prod(max(size, 1) for size in shape) < LARGEST


def extension_of(name: str) -> str:
    """The longest known extension that a file's name has, as it is written there; "" for none."""
    lower = name.lower()
    length = max((len(extension) for extension in READERS if lower.endswith(extension)), default=0)
    return name[len(name) - length :]


def _reader_of(source: FileSource) -> Reader:
    start = source.read(0, min(64, source.size))
    if what := next((what for beginning, what in NO_MODELS.items() if start.lower().startswith(beginning)), None):
        raise ModelFileError(f"{shown(source.name)} is {what}")
    if not start:
        raise ModelFileError(f"{shown(source.name)} is empty: make it or copy it again")
    name = source.name.lower()
    named = extension_of(name) or None
    if named is not None and (not _MAGIC[named] or start.startswith(_MAGIC[named])):
        return READERS[named]
    for extension in READERS:
        if _MAGIC[extension] and start.startswith(_MAGIC[extension]):
            return READERS[extension]
    if named is not None:
        raise ModelFileError(
            f"{shown(source.name)} begins with {start[:8]!r}, and no {named} file does: its name or its bytes are wrong"
        )
    raise ModelFileError(
        f"{shown(source.name)} is of no format that is known: {nearest(name[name.find('.') :], READERS)}; "
        "@mk.file_reader adds one"
    )
