"""What is in the packages of a release: their files, what these state, and how they differ from those of a commit."""

from __future__ import annotations

import email
import fnmatch
import hashlib
import json
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

WHEEL, SDIST, NPM = "wheel", "sdist", "npm package"
PATTERNS = {WHEEL: "*.whl", SDIST: "*.tar.gz", NPM: "*.tgz"}
METADATA = "*.dist-info/METADATA"
# what no commit has, for a build writes it
BUILT = {
    WHEEL: ("modulekg_widgets-", "modulekg_widgets/static/"),
    SDIST: ("PKG-INFO", *(f"modulekg_widgets/{folder}/" for folder in ("labextension", "nbextension", "static"))),
    NPM: ("LICENSE", "dist/", "lib/"),
}


class UnreadableError(Exception):
    """A file is no archive, or a damaged one."""


@dataclass(frozen=True)
class Package:
    """A package in dist/: its files by their path, without the folder that sdists and npm put all in."""

    kind: str
    name: str
    files: dict[str, bytes]

    def file(self, pattern: str) -> bytes | None:
        """The file whose path is like this; None where there is none."""
        found = fnmatch.filter(self.files, pattern)
        return self.files[found[0]] if found else None


def opened(kind: str, archive: Path) -> Package:
    """The package in an archive."""
    try:
        return Package(kind, archive.name, of_zip(archive) if kind == WHEEL else of_tar(archive))
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError) as error:
        raise UnreadableError(str(error)) from error


def of_zip(archive: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as content:
        return {info.filename: content.read(info) for info in content.infolist() if not info.is_dir()}


def of_tar(archive: Path) -> dict[str, bytes]:
    files = {}
    with tarfile.open(archive) as content:
        for member in content:
            if file := content.extractfile(member):
                files[member.name.partition("/")[2]] = file.read()
    return files


def version_in(content: bytes) -> str:
    """The version that a package.json or the metadata of Python states; empty where there is none."""
    if not content.startswith(b"{"):
        return str(email.message_from_bytes(content)["Version"] or "")
    try:
        return str(json.loads(content).get("version", ""))
    except ValueError:
        return ""


def description(package: Package) -> str:
    """What PyPI will show of a wheel."""
    message = email.message_from_bytes(package.file(METADATA) or b"")
    return str(message.get_payload())


def other_sources(package: Package, committed: dict[str, str]) -> list[str]:
    """The files of a package that a commit has not, or has otherwise, and those that are missing in it.

    A commit is the id that Git has for each of its files.
    """
    placed = {place: id for path, id in committed.items() if (place := place_in(package.kind, path))}
    # npm's package has a part of js/, which package.json names
    wanted = {place: id for place, id in placed.items() if package.kind != NPM or place in package.files}
    found = {
        path: git_id(content) for path, content in package.files.items() if not path.startswith(BUILT[package.kind])
    }
    return sorted(path for path in wanted.keys() | found.keys() if wanted.get(path) != found.get(path))


def place_in(kind: str, path: str) -> str | None:
    """Where a file of the repository stands in a package; None where it has no place in it."""
    if kind == SDIST:
        return path
    if kind == NPM:
        return path.removeprefix("js/") if path.startswith("js/") else None
    if path.startswith("notebooks/"):
        return f"modulekg_widgets/{path}"
    return path if path.startswith("modulekg_widgets/") else None


def git_id(content: bytes) -> str:
    """The name that Git has for a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
