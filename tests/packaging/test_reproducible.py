"""The packages of one commit are made twice, in two folders, at two times, for two umasks: the bytes are the same."""

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from project_file import ROOT


def digests(folder: Path, umask: str) -> dict[str, str]:
    """What a fresh clone builds: the digest of each package."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    script = f'umask {umask} && git clone -q "$1" "$2" && "$3" "$2/.ci/release.py" build --borrow --untried'
    command = ["bash", "-c", script, "bash", str(ROOT), str(folder), sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in (folder / "dist").iterdir()}


@pytest.mark.nightly  # the front end is built from nothing, twice: test_build.py and test_npm_package.py have parts
@pytest.mark.timeout(3_000)
def test_one_commit_gives_the_same_packages_twice(tmp_path: Path, require: Callable[..., None]) -> None:
    require("$npm", "$git", "$bash", "build", "hatchling", "hatch_jupyter_builder", "jupyter_builder")
    first = digests(tmp_path / "first", "022")
    second = digests(tmp_path / "a" / "longer" / "way" / "to" / "second", "077")
    assert len(first) == 3
    assert first == second
