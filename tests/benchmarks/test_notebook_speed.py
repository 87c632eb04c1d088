"""Seconds of *Run All* of each notebook; run with `pytest -m nightly tests/benchmarks/test_notebook_speed.py -s`.

The figures are printed, and written to $MODULEKG_BENCHMARKS (default: notebook_speed.json in the temporary folder).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.figures import collected
from modulekg_widgets import cli

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
OTHERS = {"04_pruning": 60, "08_prune_and_recover": 300}  # seconds on two cores
GOALS = {path.stem: ("s", float(OTHERS.get(path.stem, 90)), True) for path in NOTEBOOKS}


@pytest.fixture(scope="module")
def figures() -> Iterator[dict[str, float]]:
    """Measured values by name; a table at the end."""
    yield from collected(GOALS, "notebook_speed")


@pytest.mark.parametrize("name", GOALS)
def test_run_all(name: str, figures: dict[str, float], tmp_path: Path) -> None:
    copies, _ = cli.copy_notebooks(tmp_path)
    (notebook,) = [path for path in copies if path.stem == name]
    begin = time.perf_counter()
    assert cli.first_error(notebook) is None
    figures[name] = time.perf_counter() - begin
    assert figures[name] <= GOALS[name][1]
