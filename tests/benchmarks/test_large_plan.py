"""A Llama of 8 B parameters on meta: trace and plan with blocks, uniform layers and a target within seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).with_name("large_plan_run.py")
MOST_SECONDS, MOST_MB = 5.0, 1200


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_eight_billion_parameters_are_planned_within_seconds() -> None:
    pytest.importorskip("transformers")
    quiet = {"OMP_NUM_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error", "MALLOC_ARENA_MAX": "2"}
    ended = subprocess.run([sys.executable, str(RUN)], capture_output=True, text=True, env={**os.environ, **quiet})
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = json.loads(ended.stdout.splitlines()[-1])
    print(found)
    assert found["parameters"] > 8e9
    assert found["flops"] == pytest.approx(0.5, abs=0.01)
    assert found["notes"] == []  # the configuration says it all
    assert found["seconds"] <= MOST_SECONDS
    assert found["peak"] < MOST_MB
