"""Files of every format that were tampered with: named errors, in little time and memory, and nothing of them runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from files.exports import OTHER_WRITERS, WRITERS, written
from sampling import sampled

PROGRAM = Path(__file__).with_name("hostile_files.py")
SECONDS, BYTES = 2.0, 500 << 20


@pytest.fixture(scope="module", params=[*WRITERS, *OTHER_WRITERS])
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written("tied", request.param, tmp_path_factory.mktemp("files"))[1]


def outcome(file: Path, count: int, seed: int) -> dict:
    command = [sys.executable, str(PROGRAM), str(file), str(count), str(seed)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1200)
    return json.loads(ended.stdout)


@pytest.mark.parametrize("count", sampled([12, 1000], [12]))
def test_tampered_files_are_read_or_refused(file: Path, count: int) -> None:
    found = outcome(file, count, seed=count)
    assert found["wrong"] == []
    assert found["seen"] == []  # no import, no code, no process, no file elsewhere
    assert found["read"] + found["refused"] == count
    assert found["refused"] > count / 4, found
    assert found["slowest"] <= SECONDS, found
    assert found["memory"] <= BYTES, found


def test_the_watch_sees_what_a_loader_does(tmp_path: Path) -> None:
    """Else a reader that imports would pass."""
    program = (
        f"import sys; sys.path.insert(0, {str(PROGRAM.parent)!r})\n"
        "import hostile_files, pickle, os\n"
        "watch = hostile_files.Watch(); watch.folder = '/nowhere'\n"
        "pickle.loads(b'cxml.dom.minidom\\nparse\\n.'); open(os.devnull).close(); eval('1')\n"
        "watch.folder = None; print(watch.seen)\n"
    )
    seen = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert all(word in seen for word in ("pickle.find_class", "import", "open", "exec", "compile"))
