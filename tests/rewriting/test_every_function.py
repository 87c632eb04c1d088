"""Every function that torch's own tests know becomes a module, and gives what it gave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_every_function_of_torch() -> None:
    program = [sys.executable, str(TESTS / "rewriting" / "every_function.py")]
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))}
    ended = subprocess.run(program, env=given, capture_output=True, text=True, check=True, timeout=280)
    problems: dict[str, list[str]] = json.loads(ended.stdout.splitlines()[-1])
    names = {title.partition(" ")[0] for title in problems}
    assert len(problems) > 600
    assert {"nn.functional.relu", "nn.functional.conv2d", "add", "cat", "matmul", "linalg.svd", "__getitem__"} <= names
    assert {title: what for title, what in problems.items() if what} == {}
