"""Model folders, written as a whole or not at all, and their files read within limits."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

from modulekg_widgets.engine.errors import ModelFolderError, a_type, printable
from modulekg_widgets.engine.json_types import JsonValue
from modulekg_widgets.engine.safe_files import atomic_writer, parse_json, read_bounded

MANIFEST = "modulekg.json"
MAX_JSON_SIZE = 256 << 20  # bytes; plans of the largest models have a third of it
MAX_PARTS = 1_000_000
# weights and code that other loaders would take in the place of what was saved, or run
FOREIGN_SUFFIXES = (
    ".bin",
    ".pt",
    ".pth",
    ".pkl",
    ".pickle",
    ".ckpt",
    ".h5",
    ".msgpack",
    ".py",
    ".pyc",
    ".so",
    ".safetensors",
    ".safetensors.index.json",
    "adapter_config.json",
)
Writer = Callable[[IO[bytes]], object]


def checked_folder(folder: object) -> str:
    """The absolute path of a folder; raises `ModelFolderError` for anything else."""
    if not isinstance(folder, str | os.PathLike) or not isinstance(os.fspath(folder), str):
        raise ModelFolderError(f"a model is saved in a folder, got {a_type(folder)}: pass its path")
    path = os.fspath(folder)
    if not path or "\0" in path:
        raise ModelFolderError(f"{printable(path)!r} is not a path of a folder")
    return os.path.abspath(path)


def write_folder(folder: str, files: Mapping[str, Writer]) -> None:
    """Write a folder with these files at once, and replace an earlier saved model.

    What others put there, as a tokenizer's files, stays. Raises `ModelFolderError` for a folder that holds anything
    else, and where it cannot be written; what was there stays then.
    """
    _check_target(folder)
    parent, name = os.path.split(folder)
    scratch = os.path.join(parent, f"{name[:40]}.{secrets.token_hex(6)}.part")
    try:
        os.makedirs(parent, exist_ok=True)
        os.mkdir(scratch)
        for file_name, write in files.items():
            with atomic_writer(os.path.join(scratch, file_name)) as file:
                write(file)
        _move_into_place(scratch, folder, set(files))
    except OSError as error:
        reason = printable(error.strerror or str(error))
        raise ModelFolderError(
            f"{printable(folder)} cannot be written ({reason}): name a folder on a disk with room, where you may write"
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _check_target(folder: str) -> None:
    if os.path.islink(folder) or (os.path.lexists(folder) and not os.path.isdir(folder)):
        raise ModelFolderError(f"{printable(folder)} exists and is not a folder: name another one")
    existing = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    if existing and MANIFEST not in existing:
        raise ModelFolderError(
            f"{printable(folder)} is not empty ({printable(', '.join(existing[:3]))}), and no model was saved there "
            "before: "
            "name a new folder"
        )


def _move_into_place(scratch: str, folder: str, written: set[str]) -> None:
    if not os.path.isdir(folder):
        os.rename(scratch, folder)
        return
    old = f"{scratch}.old"
    os.rename(folder, old)
    try:
        os.rename(scratch, folder)
    except OSError:
        os.rename(old, folder)
        raise
    saved = _saved_files(old)
    for name in os.listdir(old):
        if name not in written and name not in saved:
            with suppress(OSError):
                os.rename(os.path.join(old, name), os.path.join(folder, name))
    shutil.rmtree(old, ignore_errors=True)


def _saved_files(folder: str) -> set[str]:
    """The files that an earlier save has written."""
    try:
        document = read_json(folder, MANIFEST)
    except ModelFolderError:
        return set()
    files = document.get("files") if isinstance(document, dict) else None
    return {name for name in files if isinstance(name, str)} if isinstance(files, list) else set()


def read_bytes(folder: str, name: str) -> bytes:
    """The content of a file; raises `ModelFolderError` if it is missing, too large or a link."""
    try:
        return read_bounded(os.path.join(folder, name), MAX_JSON_SIZE, links=False)
    except FileNotFoundError:
        raise ModelFolderError(
            f"{printable(folder)} has no {name}: it is not the folder of a saved model, or incomplete; "
            "save one with receipt.save_pretrained(folder)"
        ) from None
    except (OSError, ValueError) as error:
        raise ModelFolderError(f"{name} in {printable(folder)} cannot be read: {printable(str(error))}") from error


def read_json(folder: str, name: str) -> JsonValue:
    """The JSON document in a file; raises `ModelFolderError` for anything else."""
    content = read_bytes(folder, name)
    try:
        return parse_json(content, ValueError, MAX_PARTS, unique=True, doubles=True)
    except (ValueError, RecursionError) as error:
        raise ModelFolderError(f"{name} in {printable(folder)} is not JSON: {printable(str(error))}") from error


def check_foreign_files(folder: str, files: set[str]) -> None:
    """Raise `ModelFolderError` for weights or code that were not saved with the model."""
    for name in sorted(os.listdir(folder)):
        if name not in files and name.lower().endswith(FOREIGN_SUFFIXES):
            raise ModelFolderError(
                f"{printable(folder)} holds {printable(name)}, weights or code that were not saved with the model: "
                "nothing was loaded; take the file out"
            )


def check_exists(folder: str) -> None:
    """Raise `ModelFolderError` if there is no such folder."""
    if not os.path.isdir(folder):
        raise ModelFolderError(
            f"there is no folder {printable(folder)}: nothing is looked for elsewhere, or downloaded"
        )


def exists(folder: str, name: str) -> bool:
    """True if a folder has a file of this name."""
    return os.path.lexists(os.path.join(folder, name))


# -------------------- The manifest of a model folder: builder, cuts and files


FORMAT, VERSION = "modulekg-model", 1
TENSOR_FILE, EXTRA_FILE = "model.safetensors", "modulekg.safetensors"
CONFIG_FILE, GENERATION_FILE = "config.json", "generation_config.json"
MAX_CUTS = 1_000


def plan_file_name(at: int) -> str:
    """The file name of a plan."""
    return f"plan-{at}.json"


@dataclass(frozen=True)
class Manifest:
    """The manifest of a folder: its files, and what builds the model."""

    origin: Mapping[str, object]
    files: frozenset[str]
    cuts: int
    tied: Mapping[str, str]  # by each further name of a tensor its first
    attributes: Mapping[str, object]  # numbers, texts and flags that the model has set since it was built
    plain: bool = False  # whether the library's own `from_pretrained` loads the folder
    reason: str = ""  # why not

    def document(self) -> dict[str, object]:
        """The manifest as JSON."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "origin": self.origin,
            "files": sorted([*self.files, MANIFEST]),
            "cuts": self.cuts,
            "from_pretrained": self.plain,
            "reason": self.reason,
            "tied": dict(self.tied),
            "attributes": dict(self.attributes),
        }


def read_manifest(folder: str) -> Manifest:
    """The manifest of a folder; raises `ModelFolderError` for anything else."""
    document = read_json(folder, MANIFEST)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ModelFolderError(f"{MANIFEST} is not a manifest of a saved model: save one with receipt.save_pretrained")
    version = document.get("version")
    if type(version) is not int or version != VERSION:
        raise ModelFolderError(f"{MANIFEST} is of version {printable(repr(version), 20)}, this release reads {VERSION}")
    origin, files, cuts, tied = (
        document.get("origin"),
        document.get("files"),
        document.get("cuts"),
        document.get("tied"),
    )
    attributes = document.get("attributes", {})
    if not isinstance(origin, dict) or not isinstance(files, list) or not isinstance(tied, dict):
        raise _incomplete_error()
    if not isinstance(attributes, dict) or not isinstance(cuts, int) or not 0 <= cuts <= MAX_CUTS:
        raise _incomplete_error()
    names, ties = _texts(files), dict(zip(tied, _texts(tied.values()), strict=True))
    known = {TENSOR_FILE, EXTRA_FILE, CONFIG_FILE, GENERATION_FILE, MANIFEST, *map(plan_file_name, range(cuts))}
    other = next((name for name in names if name not in known), None)
    if other is not None:
        raise ModelFolderError(f"{MANIFEST} names the file {printable(repr(other))}, which is none of a saved model")
    return Manifest(origin, frozenset(names), cuts, ties, attributes)


def _incomplete_error() -> ModelFolderError:
    return ModelFolderError(f"{MANIFEST} lacks what it should say, or says something else: save the model again")


def _texts(values: Iterable[JsonValue]) -> list[str]:
    texts = []
    for value in values:
        if not isinstance(value, str):
            raise _incomplete_error()
        texts.append(value)
    return texts
