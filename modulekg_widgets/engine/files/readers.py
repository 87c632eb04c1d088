"""Registry of model file readers: selection by extension or magic bytes, and uniform errors.

For new formats: a reader is a function from `FileSource` (size, `read(offset, length)`, files beside it) to
`FileContents`, registered by `@mk.file_reader`. `read_contents` picks the reader by the longest known extension; if
the magic bytes do not match, by those. It turns every exception that malformed bytes cause into `ModelFileError`, and
recognises files that are no models: Git LFS pointers, HTML error pages, tar and other compressed files, unfinished
downloads. A reader must not run or import anything from the file, and must check sizes before it allocates memory.

    @mk.file_reader(".names")
    def names(source):
        ...
        return FileContents("names", tensors)
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Callable, Mapping

from modulekg_widgets.engine.errors import (
    MissingReaderError,
    ModelFileError,
    ModuleKGError,
    UnknownNameError,
    a_type,
    closest_match_hint,
    printable,
)
from modulekg_widgets.engine.files.records import FileContents
from modulekg_widgets.engine.files.source import FileSource
from modulekg_widgets.engine.registry import Registry

Reader = Callable[[FileSource], FileContents]
READERS: Registry[Reader] = Registry("reader of files")
_MAGIC: dict[str, tuple[bytes, ...]] = {}  # by extension: what such a file begins with

MAX_ELEMENTS = 1 << 60  # elements of a tensor
MAX_NAME = 10_000  # characters
MAGIC_BYTES = 64  # bytes that tell what a file is
_PAGE = "a web page and not a model: download it again, signed in if need be"
_UNPACK = "unpack it, and open the file that is in it"
# what stands in the place of a model after a download that went wrong, by what it begins with, in small letters
DOWNLOAD_ERRORS = {
    b"version https://git-lfs": "a pointer of Git LFS and not the file itself: run git lfs pull in its folder",
    b"<!doctype": _PAGE,
    b"<html": _PAGE,
    b"<head": _PAGE,
    b"<body": _PAGE,
}
# what files begin with that are no models, where no reader of ours can read them
FOREIGN_FORMATS = {
    b"<?xml": "a text in XML and not a model, as servers send errors: download it again, signed in if need be",
    b"<!--": _PAGE,
    b"\0" * MAGIC_BYTES: "empty at its beginning: its download has not been finished, so download it again",
    b"\x1f\x8b\x08": f"compressed by gzip: {_UNPACK}",
    b"BZh": f"compressed by bzip2: {_UNPACK}",
    b"\xfd7zXZ\0": f"compressed by xz: {_UNPACK}",
    b"\x28\xb5\x2f\xfd": f"compressed by zstd: {_UNPACK}",
}
MAX_ERROR_TEXT_BYTES, MIN_WORDS = 4_096, 2  # bytes and least words of a text that stands in the place of a model
TEXT_EXTENSIONS = (".json",)  # of extensions
TAR_MAGIC, TAR_MAGIC_OFFSET = b"ustar", 257
PARTIAL_DOWNLOAD_EXTENSIONS = (".incomplete", ".part", ".partial", ".crdownload", ".download", ".aria2")  # of names
# what bytes that are not what they should be make of Python's own parsers
MALFORMED = (
    ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RuntimeError, EOFError, StopIteration,
)  # fmt: skip
MALFORMED_BEYOND_VALUES = (struct.error, OSError, MemoryError, NotImplementedError)


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
    UnknownNameError
        For an extension that is no text, and for a magic that is no bytes.
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
    odd = next((one for one in extensions if not isinstance(one, str)), None)
    if odd is not None:
        raise UnknownNameError(f"file_reader takes the ends of file names, as '.safetensors': {a_type(odd)} was passed")
    if not isinstance(magic, bytes | tuple):
        raise UnknownNameError(f"magic= is the first bytes of a file, as b'GGUF': {a_type(magic)} was passed")
    names = [extension.lower() for extension in extensions]

    def decorate(reader: Reader) -> Reader:
        READERS.register(*names)(reader)
        _MAGIC.update(dict.fromkeys(names, (magic,) if isinstance(magic, bytes) else tuple(magic)))
        return reader

    return decorate


def read_contents(source: FileSource) -> FileContents:
    """Returns the contents of a file from its reader; raises `ModelFileError` for any invalid bytes."""
    start = source.read(0, min(MAGIC_BYTES, source.size))
    if not start:
        raise ModelFileError(f"{printable(source.name)} is empty: make it or copy it again")
    if what := _description_of(DOWNLOAD_ERRORS, start):
        raise ModelFileError(f"{printable(source.name)} is {what}")
    try:
        return _checked(_reader_of(source, start)(source))
    except MissingReaderError:
        raise
    except ModelFileError as error:
        if what := _foreign_description(source, start):
            raise ModelFileError(f"{printable(source.name)} is {what}") from error
        raise
    except ModuleKGError:
        raise
    except (*MALFORMED, *MALFORMED_BEYOND_VALUES) as error:
        if what := _foreign_description(source, start):
            raise ModelFileError(f"{printable(source.name)} is {what}") from error
        reason = printable(str(error), 300) or type(error).__name__
        raise ModelFileError(f"{printable(source.name)} is malformed: {reason}") from error


def _checked(contents: FileContents) -> FileContents:
    """Raise `ModelFileError` for duplicate names of tensors or operators, and for impossible sizes."""
    tensors = {each.name for each in contents.tensors}
    if len(tensors) != len(contents.tensors):
        again = next(name for name, count in Counter(each.name for each in contents.tensors).items() if count > 1)
        raise ModelFileError(
            f"the tensor {printable(again)!r} stands in it twice: it is forged, or was written by mistake"
        )
    for each in contents.tensors:
        if len(each.name) > MAX_NAME:
            raise ModelFileError(f"the name of a tensor, {printable(each.name)}, has {len(each.name):,} characters")
        if not 0 <= each.nbytes < 1 << 63 or not _is_shape(each.shape):
            raise ModelFileError(
                f"{printable(each.name)} has the shape {printable(str(list(each.shape)))}: it is forged"
            )
    operators = contents.graph.operators if contents.graph is not None else ()
    if len({each.name for each in operators}) != len(operators):
        raise ModelFileError("two of its operators have one name: the reader has to tell them apart")
    return contents


def _is_shape(shape: tuple[int, ...]) -> bool:
    """True if torch could have such a tensor: strides fit in 64 bits, also if it is empty."""
    if not all(type(size) is int and size >= 0 for size in shape):
        return False
    return math.prod(max(size, 1) for size in shape) < MAX_ELEMENTS


def extension_of(name: str) -> str:
    """Returns the longest known extension of a file name, as it is spelled there; "" if none."""
    lower = name.lower()
    length = max((len(extension) for extension in READERS if lower.endswith(extension)), default=0)
    return name[len(name) - length :]


def _reader_of(source: FileSource, start: bytes) -> Reader:
    name = source.name.lower()
    named = extension_of(name) or None
    if named is not None and (not _MAGIC[named] or start.startswith(_MAGIC[named])):
        return READERS[named]
    for extension in READERS:
        if _MAGIC[extension] and start.startswith(_MAGIC[extension]):
            return READERS[extension]
    if named is not None:
        raise ModelFileError(
            f"{printable(source.name)} begins with {start[:8]!r}, and no {named} file does: its name or its bytes "
            "are wrong"
        )
    raise ModelFileError(
        f"{printable(source.name)} has an unsupported format: "
        f"{closest_match_hint(name[name.find('.') :], READERS)}; "
        "@mk.file_reader adds one"
    )


def _description_of(known: Mapping[bytes, str], start: bytes) -> str:
    """Returns the description of a file by its first bytes, after white space; "" if unknown."""
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return next((what for begin, what in known.items() if text.startswith(begin) or start.startswith(begin)), "")


def _foreign_description(source: FileSource, start: bytes) -> str:
    """Describes a file that no built-in reader reads, with advice; "" if it is not recognised."""
    named = extension_of(source.name).lower()
    is_ours = not named or getattr(READERS[named], "__module__", "").startswith(f"{__name__.partition('.')[0]}.")
    if not is_ours or named.endswith(TEXT_EXTENSIONS):
        return ""
    if source.size > TAR_MAGIC_OFFSET + len(TAR_MAGIC) and source.read(TAR_MAGIC_OFFSET, len(TAR_MAGIC)) == TAR_MAGIC:
        return f"an archive of tar: {_UNPACK}"
    if source.name.lower().endswith(PARTIAL_DOWNLOAD_EXTENSIONS):
        return "a download that has not been finished: download it again"
    if what := _description_of(FOREIGN_FORMATS, start):
        return what
    text = _text_of(source)
    errors = (
        f"a text and not a model, as servers send errors ({printable(repr(text))}): download it again, signed "
        "in if need be"
    )
    return errors if text else ""


def _text_of(source: FileSource) -> str:
    """Returns the text of a small file that reads like a message; "" for any other."""
    if source.size > MAX_ERROR_TEXT_BYTES:
        return ""
    try:
        text = source.read().decode().strip()
    except UnicodeDecodeError:
        return ""
    is_text = " ".join(text.split()).isprintable()
    return text if is_text and (text.startswith(("<", "{")) or text.count(" ") >= MIN_WORDS - 1) else ""
