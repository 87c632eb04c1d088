"""A model of a billion parameters: saving adds a tensor to its size, loading takes the size of what is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).with_name("memory_run.py")


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_a_billion_parameters_take_little_more_than_themselves(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    found = {}
    for what in ("save", "cut", "load"):
        command = [sys.executable, str(RUN), what, str(tmp_path / ("other" if what == "cut" else "folder"))]
        ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "MALLOC_ARENA_MAX": "2"})
        assert ended.returncode == 0, ended.stderr[-3000:]
        found[what] = json.loads(ended.stdout.splitlines()[-1])
        print(what, found[what])
    assert found["save"]["size"] > 2_000
    assert found["save"]["all"] < found["save"]["size"] + 1_000
    assert found["cut"]["all"] < found["cut"]["size"] + 1_000
    assert found["cut"]["left"] < 0.5 * found["cut"]["size"]
    assert found["save"]["plain"]
    assert found["cut"]["plain"]
    assert found["load"]["all"] < found["load"]["size"] + 500
