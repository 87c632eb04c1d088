"""All cases by subject, the golden files that they are compared with, and the versions that those were written with."""

from __future__ import annotations

import importlib
import json
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from goldens.digests import Case

FOLDER = Path(__file__).parent / "golden"
SUBJECTS = ("plans", "results", "payloads", "fingerprints", "knowledge", "files", "commands", "monitoring")
# whose releases may change an output
LIBRARIES = ("torch", "torchvision", "timm", "transformers", "numpy", "pandas", "networkx", "ipywidgets", "SQLAlchemy")


def cases_of(subject: str) -> dict[str, Case]:
    """The cases of a subject by name."""
    return importlib.import_module(f"goldens.{subject}").cases()


def all_cases() -> dict[tuple[str, str], Case]:
    """All cases by subject and name."""
    return {(subject, name): case for subject in SUBJECTS for name, case in cases_of(subject).items()}


def versions() -> dict[str, str]:
    """The versions of Python and of the libraries that outputs depend on."""
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for library in LIBRARIES:
        try:
            found[library] = version(library).partition("+")[0]
        except PackageNotFoundError:
            found[library] = "none"
    return found


def read(subject: str) -> dict[str, Any]:
    """The golden file of a subject."""
    return json.loads((FOLDER / f"{subject}.json").read_text("utf-8"))


def write(subject: str, outputs: dict[str, Any]) -> None:
    """Write the golden file of a subject, sorted, a line for each line of an output."""
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps(outputs, ensure_ascii=True, indent=0, sort_keys=True)
    (FOLDER / f"{subject}.json").write_text(text + "\n", "utf-8")


def changed_versions() -> str:
    """A sentence about the versions that are others than when the files were written; empty if all are the same."""
    before, now = read("versions"), versions()
    pairs: Iterable[str] = (
        f"{name} {before.get(name)} → {now.get(name)}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    )
    listed = ", ".join(pairs)
    return f"The golden files were written with other versions, which may be why: {listed}." if listed else ""
