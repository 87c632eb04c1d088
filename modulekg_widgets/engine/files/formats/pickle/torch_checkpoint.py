"""Checkpoints of torch.save, torch.jit.save and torch.export.save, and other pickles, without loading them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from modulekg_widgets.engine.errors import ModelFileError, printable
from modulekg_widgets.engine.file_formats.format_tables import TORCH_BITS
from modulekg_widgets.engine.files.formats.pickle.pickle_contents import (
    MAX_TENSORS,
    SCRIPT_PREFIX,
    PickleContents,
    ScriptedClass,
    object_class,
)
from modulekg_widgets.engine.files.formats.pickle.pickle_machine import (
    GlobalReference,
    LimitError,
    ObjectRecord,
    PersistentReference,
    PickleValue,
)
from modulekg_widgets.engine.files.formats.pickle.pickle_opcodes import PickleStream, gc_paused
from modulekg_widgets.engine.files.formats.pickle.pickled_tensors import (
    StorageRecord,
    TensorRebuilder,
    class_path,
    first_bytes,
    storage_dtype,
)
from modulekg_widgets.engine.files.formats.pickle.torch_names import (
    INLINE_STORAGE,
    SAFE_GLOBALS,
    SCRIPT_TYPES,
    code_warnings,
)
from modulekg_widgets.engine.files.formats.pt2 import is_pt2, read_pt2
from modulekg_widgets.engine.files.readers import file_reader
from modulekg_widgets.engine.files.records import FileContents, PlainValue
from modulekg_widgets.engine.files.source import FileSource
from modulekg_widgets.engine.files.zip_archive import ZipArchive

# -------------------- TorchScript classes from the code in an archive: names of parameters and buffers, and constants


MAX_FILE_BYTES = 4 << 20  # bytes of one file
MAX_CODE_BYTES = 8 << 20  # of all that are read
MAX_NAME_LIST = 1 << 16  # characters of the names of a class's parameters or buffers
MAX_CONSTANTS = 200
MAX_CONSTANT = 200

_CLASS = re.compile(r"^class (?P<name>\w+)\(", re.MULTILINE)
_TENSORS = re.compile(rf"^  __(?P<kind>parameters|buffers)__ = \[(?P<names>.{{0,{MAX_NAME_LIST}}})\]$", re.MULTILINE)
_CONSTANT = re.compile(rf"^  (?P<name>\w+) : Final\[\w+\] = (?P<value>.{{1,{MAX_CONSTANT}}})$", re.MULTILINE)
_TEXT = re.compile(r'"([^"\\]*)"')
_MARK = re.compile(r"___torch_mangle_\d+\.")  # tells apart classes of one name


class ScriptedClasses:
    """Looks up classes by their globals in the pickle; each code file is read once."""

    def __init__(self, archive: ZipArchive) -> None:
        self._archive, self._left = archive, MAX_CODE_BYTES
        self._known: dict[str, ScriptedClass] = {}
        self._files: dict[str, dict[str, str]] = {}

    def __call__(self, maker: PickleValue) -> ScriptedClass:
        if type(maker) is not GlobalReference:
            return ScriptedClass("")
        if maker.path not in self._known:
            self._known[maker.path] = self._read(maker)
        return self._known[maker.path]

    def _read(self, maker: GlobalReference) -> ScriptedClass:
        name = _MARK.sub("", maker.path.removeprefix(SCRIPT_PREFIX))
        text = self._bodies(f"code/{maker.module.replace('.', '/')}.py").get(maker.path[len(maker.module) + 1 :])
        if text is None:
            return ScriptedClass(name)
        tensors = {
            found["kind"]: frozenset(_TEXT.findall(found["names"])) for found in islice(_TENSORS.finditer(text), 2)
        }
        constants = tuple(
            (found["name"], _constant(found["value"])) for found in islice(_CONSTANT.finditer(text), MAX_CONSTANTS)
        )
        return ScriptedClass(
            name, tensors.get("parameters", frozenset()), tensors.get("buffers", frozenset()), constants
        )

    def _bodies(self, file: str) -> dict[str, str]:
        """The text of each class in a code file."""
        if file not in self._files:
            size = self._archive.size(file) if file in self._archive else 0
            self._left -= size
            readable = 0 < size <= MAX_FILE_BYTES and self._left >= 0
            text = self._archive.read(file, max_bytes=MAX_FILE_BYTES).decode("utf-8", "replace") if readable else ""
            starts = list(_CLASS.finditer(text))
            ends = [*(found.start() for found in starts), len(text)][1:]
            self._files[file] = {
                found["name"]: text[found.start() : end] for found, end in zip(starts, ends, strict=True)
            }
        return self._files[file]


def _constant(text: str) -> PlainValue:
    if text in ("True", "False"):
        return text == "True"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text.strip('"')


# ----------------------------------------


ZIP_MAGIC = b"PK\x03\x04"
PICKLE_MAGIC = b"\x80"  # of protocol 2 and later
LEGACY_MAGIC, LEGACY_VERSION = 0x1950A86A20F9469CFC6C, 1001  # MAGIC_NUMBER, PROTOCOL_VERSION of torch/serialization.py
INLINE_PICKLE_COST = 16  # opcodes in the time that a pickle in a pickle takes besides its own
SCRIPT_FORMAT = "torchscript"
LOADER = "torch.load(weights_only=False)"
SCRIPT_WARNING = "torch.jit.load keeps the code in this file, and a call of the model runs it"


@file_reader(".pt2", ".bin", ".ptl", ".jit", magic=(ZIP_MAGIC, PICKLE_MAGIC))
def read_torch(source: FileSource) -> FileContents:
    """Reads a zip archive or a pickle of torch."""
    with gc_paused():
        try:
            return _read(source)
        except LimitError as error:
            raise ModelFileError(f"{printable(source.name)}: {error}: larger files are not opened") from error


def _read(source: FileSource) -> FileContents:
    if source.size < 4 or source.read(0, 4) != ZIP_MAGIC:
        return _read_pickle(source)
    archive = ZipArchive(source)
    if archive.begin > 0:  # the bytes before begin as those of an archive do
        raise ModelFileError(
            f"{printable(source.name)} is several archives in a row, of which only the last would be read: a shard of "
            "torch.distributed.checkpoint is, so open its folder with the .metadata in it; else split the file"
        )
    if is_pt2(archive):
        return read_pt2(archive, source)
    if is_package(archive):
        raise ModelFileError(
            f"{printable(source.name)} is an archive of torch.package, which holds a model with its code: load it with "
            "torch.package.PackageImporter(path).load_pickle(package, resource), if you trust its source, and "
            "pass the model, or save its state_dict"
        )
    if "data.pkl" not in archive:
        listed = ", ".join(printable(name) for name in archive.names[:6])
        raise ModelFileError(
            f"{printable(source.name)} is a zip archive without data.pkl, so torch has not written it: it has {listed}"
        )
    return _read_script(source, archive) if "constants.pkl" in archive else _read_checkpoint(source, archive)


@file_reader(".pt", ".pth", ".pth.tar", ".pt.tar", ".ckpt", ".pkl", ".pickle")
def read_any_pickle(source: FileSource) -> FileContents:
    """Reads the same, and pickles of protocols 0 and 1, which have no magic bytes."""
    return read_torch(source)


def is_package(archive: ZipArchive) -> bool:
    """True for an archive of `torch.package`, by its list of external modules."""
    return ".data/extern_modules" in archive


def _no_script_class(maker: PickleValue) -> ScriptedClass:
    return ScriptedClass(class_path(maker))


def _read_checkpoint(source: FileSource, archive: ZipArchive) -> FileContents:
    pickles = _member(source, archive, "data.pkl")
    root = pickles.load()
    inventory = PickleContents(TensorRebuilder(ArchiveStorages(archive, "data", pickles).find), _no_script_class)
    inventory.add(root)
    return _contents("checkpoint", root, pickles, inventory)


def _read_script(source: FileSource, archive: ZipArchive) -> FileContents:
    pickles = _member(source, archive, "data.pkl")
    root = pickles.load()
    inventory = PickleContents(
        TensorRebuilder(ArchiveStorages(archive, "data", pickles).find), ScriptedClasses(archive)
    )
    inventory.add(root)
    contents = _contents(SCRIPT_FORMAT, root, pickles, inventory)
    constants = _script_constants(source, archive, pickles.steps, inventory.budget)
    return _with_constants(contents, constants)


def _script_constants(source: FileSource, archive: ZipArchive, steps: Iterator[int], left: int) -> PickleContents:
    """The tensors that TorchScript code names CONSTANTS.c0 etc."""
    pickles = _member(source, archive, "constants.pkl", steps)
    inventory = PickleContents(
        TensorRebuilder(ArchiveStorages(archive, "constants", pickles).find), _no_script_class, left
    )
    values = pickles.load()
    for index, value in enumerate(values if type(values) in (tuple, list) else ()):
        inventory.add(value, f"CONSTANTS.c{index}", "constant")
    return inventory


def _with_constants(contents: FileContents, constants: PickleContents) -> FileContents:
    return FileContents(
        contents.format,
        contents.tensors + tuple(constants.tensors),
        title=contents.title,
        metadata=contents.metadata,
        modules=contents.modules,
        classes=contents.classes,
        warnings=(SCRIPT_WARNING, *contents.warnings),
    )


def _member(source: FileSource, archive: ZipArchive, name: str, steps: Iterator[int] | None = None) -> PickleStream:
    """The pickle of a member, read in parts if it is not compressed."""
    place = archive.data_offset(name)
    if place is None:
        return PickleStream.of(archive.read(name), steps)
    return PickleStream(lambda offset, length: source.read(place + offset, length), archive.size(name), steps)


@dataclass
class ArchiveStorages:
    """Storages of an archive: members of one folder, named by their keys."""

    archive: ZipArchive
    folder: str
    pickles: PickleStream
    known: dict[tuple[str, str], StorageRecord] = field(default_factory=dict)

    def __post_init__(self) -> None:
        order = self.archive.read("byteorder", max_bytes=16) if "byteorder" in self.archive else b"little"
        self.as_they_are = order.strip() != b"big"
        self.find_inline = inline_storages(self.pickles)

    def find(self, value: PickleValue) -> StorageRecord:
        if type(value) is ObjectRecord:
            return self.find_inline(value)
        kind, key, _ = storage_id(value)
        dtype = storage_dtype(kind)
        if (dtype, key) not in self.known:
            name = f"{self.folder}/{key}"
            size = self.archive.size(name)
            self.known[dtype, key] = StorageRecord(
                dtype, size, self.archive.data_offset(name) if self.as_they_are else None
            )
        return self.known[dtype, key]


def storage_id(value: PickleValue) -> tuple[PickleValue, str, tuple[PickleValue, ...]]:
    """Returns class, key and further fields of a storage; raises `ValueError` for other values."""
    key = value.key if type(value) is PersistentReference else None
    if type(key) is not tuple or not 5 <= len(key) <= 16 or key[0] != "storage" or type(key[2]) is not str:
        raise ValueError("a tensor has no storage that torch could find")
    return key[1], key[2], key[3:]


def inline_storages(pickles: PickleStream) -> Callable[[PickleValue], StorageRecord]:
    """Returns a function that finds a storage embedded in a plain pickle; each is parsed once."""
    known: dict[int, tuple[PickleValue, StorageRecord]] = {}  # the values are held, so that no other has their id

    def find(value: PickleValue) -> StorageRecord:
        if type(value) is not ObjectRecord:
            raise ValueError("a tensor is stored outside of the pickle")
        if id(value) not in known:
            known[id(value)] = value, _inline_storage(value, pickles.steps)
        return known[id(value)][1]

    return find


def _inline_storage(made: ObjectRecord, steps: Iterator[int]) -> StorageRecord:
    """A storage embedded as a file of the legacy format."""
    head = first_bytes(made.args[0]) if class_path(made.maker) == INLINE_STORAGE else None
    if head is None:
        raise ValueError("a tensor has no storage that torch could find")
    pickles = PickleStream.of(head, steps)
    pickles.spend(INLINE_PICKLE_COST)
    if pickles.load() != LEGACY_MAGIC:
        raise ValueError("a tensor is stored in bytes that torch does not know")
    _, _, storage = pickles.load(), pickles.load(), pickles.load()
    kind, _, rest = storage_id(storage)
    dtype = storage_dtype(kind)
    return StorageRecord(dtype, _storage_bytes(dtype, rest[1]))


def _storage_bytes(dtype: str, elements: PickleValue) -> int:
    if type(elements) is not int or not 0 <= elements < 1 << 60:
        raise ValueError("a storage has no number of elements")
    return elements * max(TORCH_BITS[dtype], 8) // 8


def _read_pickle(source: FileSource) -> FileContents:
    pickles = PickleStream(source.read, source.size)
    start = source.read(0, min(8, source.size))
    try:
        root = pickles.load()
    except ValueError as error:
        if start.startswith(PICKLE_MAGIC) or isinstance(error, LimitError):
            raise
        raise ModelFileError(
            f"{printable(source.name)} begins with {start!r}, and no pickle or zip archive does, which is what torch "
            "writes"
        ) from error
    if type(root) is int and root == LEGACY_MAGIC:
        return _read_legacy(source, pickles)
    inventory = PickleContents(TensorRebuilder(inline_storages(pickles)), _no_script_class)
    inventory.add(root)
    return _contents("pickle", root, pickles, inventory)


def _read_legacy(source: FileSource, pickles: PickleStream) -> FileContents:
    """Reads the legacy format: magic number, version, system, object, storage keys, storages."""
    version, system = pickles.load(), pickles.load()
    if version != LEGACY_VERSION:
        raise ModelFileError(
            f"{printable(source.name)} is of another version of torch's old format than {LEGACY_VERSION}"
        )
    root, referred = pickles.load(), list(pickles.persistent)
    little = not isinstance(system, dict) or system.get("little_endian") is not False
    places = _legacy_storages(source, pickles, _legacy_types(referred), little)
    find_inline = inline_storages(pickles)

    def find(value: PickleValue) -> StorageRecord:
        return find_inline(value) if type(value) is ObjectRecord else _legacy_storage(places, value)

    inventory = PickleContents(TensorRebuilder(find), _no_script_class)
    inventory.add(root)
    return _contents("checkpoint", root, pickles, inventory)


def _legacy_types(referred: list[PersistentReference]) -> dict[str, str]:
    """The dtypes of storages by key."""
    types: dict[str, str] = {}
    for persistent in referred:
        if type(persistent.key) is tuple and persistent.key[:1] == ("storage",):
            kind, key, _ = storage_id(persistent)
            types.setdefault(key, storage_dtype(kind))
    return types


def _legacy_storages(
    source: FileSource, pickles: PickleStream, types: dict[str, str], little: bool
) -> dict[str, StorageRecord]:
    keys = pickles.load()
    at = pickles.position
    places: dict[str, StorageRecord] = {}
    if type(keys) is not list or len(keys) > MAX_TENSORS:
        raise ModelFileError(f"{printable(source.name)} has no list of storages, or one beyond any model: it is forged")
    for key in keys:
        if type(key) is not str or key not in types or key in places:
            raise ModelFileError(
                f"{printable(source.name)} has a storage that no tensor, or two, belong to: it is forged"
            )
        elements = int.from_bytes(source.read(at, 8), "little" if little else "big")
        nbytes = _storage_bytes(types[key], elements)
        at += 8
        if nbytes > source.size - at:
            raise ModelFileError(
                f"{printable(source.name)} ends within the bytes of its tensors: it is cut off or forged, download "
                "or copy "
                "it again"
            )
        places[key] = StorageRecord(types[key], nbytes, at if little else None)
        at += nbytes
    return places


def _legacy_storage(storages: Mapping[str, StorageRecord], value: PickleValue) -> StorageRecord:
    """Returns a storage of a file in the legacy format, where some are views of others."""
    kind, key, rest = storage_id(value)
    if key not in storages:
        raise ValueError(f"a tensor is in the storage {printable(key)}, which the file does not have")
    whole = storages[key]
    part = rest[2] if len(rest) > 2 else None
    if type(part) is not tuple or len(part) != 3:
        return StorageRecord(storage_dtype(kind), whole.nbytes, whole.offset)
    start, nbytes = _storage_bytes(whole.dtype, part[1]), _storage_bytes(whole.dtype, part[2])
    if start + nbytes > whole.nbytes:
        raise ValueError(f"a tensor is beyond the end of the storage {printable(key)}")
    return StorageRecord(storage_dtype(kind), nbytes, None if whole.offset is None else whole.offset + start)


def _contents(format_name: str, root: PickleValue, pickles: PickleStream, inventory: PickleContents) -> FileContents:
    safe = SAFE_GLOBALS | SCRIPT_TYPES if format_name == SCRIPT_FORMAT else SAFE_GLOBALS
    classes = sorted(named.path for named in pickles.globals.values() if not f"{named.path}.".startswith(SCRIPT_PREFIX))
    title = ""
    if type(root) is ObjectRecord and inventory.modules and inventory.modules[0].path == "":
        title = inventory.modules[0].class_name.rpartition(".")[2] or object_class(root)
    return FileContents(
        format_name,
        tuple(inventory.tensors),
        title=title,
        metadata=inventory.metadata,
        modules=tuple(inventory.modules),
        classes=tuple(classes),
        warnings=(*code_warnings(classes, LOADER, safe), *inventory.warnings),
    )
