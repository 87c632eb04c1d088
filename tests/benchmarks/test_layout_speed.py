"""The layout of 2,000 cards in the worker; run with `pytest -m nightly tests/benchmarks/test_layout_speed.py -s`.

The figures are printed, and written to $MODULEKG_BENCHMARKS (default: layout_speed.json in the temporary folder).
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks.figures import Goal, collected

SCRIPT = Path(__file__).parents[2] / "js" / "scripts" / "layout_speed.mjs"
CASES = {
    "mixture": "2,000 cards: chains, branches, frames",
    "chain": "2,000 cards: one chain",
    "skips": "2,000 cards: a flat graph with skips",
    "skips of any length": "2,000 cards: skips of any length",
    "branches": "400 branches beside each other",
    "dense": "60 cards that read all before them",
}
GOALS: dict[str, Goal] = dict.fromkeys(CASES.values(), ("ms", 1000, True))


@pytest.mark.nightly
def test_layout_of_2000_cards_takes_no_more_than_a_second() -> None:
    node = shutil.which("node")
    if node is None or not (SCRIPT.parents[1] / "node_modules").exists():
        pytest.skip("needs node and the packages of the front end")
    done = subprocess.run([node, str(SCRIPT)], capture_output=True, text=True, check=True, timeout=300)
    times = json.loads(done.stdout)
    for measured in collected(GOALS, "layout_speed"):
        measured.update({CASES[name]: time for name, time in times.items()})
        assert all(time <= GOALS[CASES[name]][1] for name, time in times.items()), times
