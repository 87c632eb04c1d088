"""The figures of docs/comparison.md: all of its tables are those of the JSON beside it, which the benchmark wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.research.rivals import table

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "comparison.md"


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    return json.loads(DOCUMENT.with_suffix(".json").read_text("utf-8"))


def test_the_tables_are_those_of_the_figures(kept: dict[str, Any]) -> None:
    text = DOCUMENT.read_text("utf-8")
    assert table.written(text, kept) == text
    assert sorted(table.PLACE.findall(text)) == sorted(table.TABLES)


@pytest.mark.parametrize("part", ["kernel", "page", "pruning"])
def test_all_of_a_row_are_compared_by_equally_many_repetitions(part: str, kept: dict[str, Any]) -> None:
    cut = table.equal(kept)[part]
    for model in kept["models"]:
        cells = [cells.get(model, []) for cells in cut.values()]
        assert len({len(cell) for cell in cells if cell and not table.error_of(cell)}) <= 1, model


def test_a_run_that_was_stopped_favors_none() -> None:
    failed = [{"error": "over 60 s"}]
    part = {"a": {"net": [{"cpu": 1}, {"cpu": 2}]}, "b": {"net": [{"cpu": 3}]}, "c": {"net": failed}}
    cut = table.equal({"kernel": part, "page": {}, "pruning": {}})["kernel"]
    assert cut == {"a": {"net": [{"cpu": 1}]}, "b": {"net": [{"cpu": 3}]}, "c": {"net": failed}}


def test_what_failed_has_no_figures(kept: dict[str, Any]) -> None:
    cells = [cell for part in ("kernel", "page", "pruning") for of in kept[part].values() for cell in of.values()]
    assert all(set(one) == {"error"} for cell in cells for one in cell if "error" in one)


def test_every_model_in_which_something_joins_has_a_row(kept: dict[str, Any]) -> None:
    rows = table.drawn(kept)
    for model in kept["models"]:
        for key, label in (("add", "+"), ("cat", "cat")):
            joined = kept["drawn"]["truth"][model][0].get(key, 0)
            assert (f"| {model}: `{label}` with arrows from two or more boxes | {joined} |" in rows) == (joined > 0)


def test_figures_of_repetitions_are_told_with_their_range() -> None:
    assert table.ranged([1.0, 2.0, 4.0]) == "2.0 (1.0 … 4.0)"
    assert table.ranged([1.0, 1.01]) == "1.0"
    assert table.ranged([500.0], 1e-3) == "0.50"


def test_a_cell_says_how_long_one_would_wait_and_else_that_it_failed() -> None:
    assert table.figure([{"error": "over 60 s"}], str) == "> 60"
    assert table.figure([{"error": "the process died by SIGKILL"}], str) == "fails"
    assert table.figure([], str) == table.NO_FIGURE
