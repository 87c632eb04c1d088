"""The comparison of docs/comparison.md on two models, from end to end, and what its parts make of known cases."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.rivals import alone, drawing, models, pruning, runner, table, watching
from benchmarks.rivals.results import Results
from benchmarks.rivals.tools import LISTED, TOOLS

MODELS = ("shared", "U-Net")
OURS = LISTED[0].name
ROOT = Path(__file__).resolve().parents[3]
MODULES = ("torchvista", "torchview", "torchlens", "model_explorer", "netron", "onnxscript", "tensorboard")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, require: Callable[..., None]) -> dict[str, Any]:
    """All that is measured of the pages of two models, once each."""
    require(*MODULES, "torch_pruning", "wandb", "playwright", "$dot", "$chromium")
    from playwright.sync_api import sync_playwright

    folder = tmp_path_factory.mktemp("rivals")
    results = Results(folder / "comparison.json")
    runner.write_versions(LISTED, results)
    runner.run_kernels(LISTED, MODELS, folder, results, times=1)
    runner.run_drawings(LISTED, MODELS, folder, results)
    with sync_playwright() as playwright:
        runner.run_pages(playwright, LISTED, MODELS, folder, results, times=1)
    return json.loads(results.path.read_text("utf-8"))


@pytest.mark.timeout(1800)
def test_every_tool_opens_both_models(kept: dict[str, Any]) -> None:
    for tool in TOOLS:
        for model in MODELS:
            assert "error" not in kept["kernel"][tool][model][0], (tool, model)
            assert kept["page"][tool][model][0]["painted"] > 0, (tool, model)


@pytest.mark.timeout(1800)
def test_all_draw_the_skips_of_a_unet(kept: dict[str, Any]) -> None:
    assert kept["drawn"]["truth"]["U-Net"][0]["cat"] == 4
    assert {tool: kept["drawn"][tool]["U-Net"][0]["cat"] for tool in TOOLS} == dict.fromkeys(TOOLS, 4)


@pytest.mark.timeout(1800)
def test_ours_names_a_shared_layer_opens_boxes_and_loads_less_than_other_pages(kept: dict[str, Any]) -> None:
    assert kept["drawn"][OURS]["shared"][0] | {"shared": 2, "relu": 1, "cat": 1} == kept["drawn"][OURS]["shared"][0]
    page = kept["page"][OURS]["U-Net"][0]
    assert len(page["opening"]) > 0
    interactive = [tool.name for tool in LISTED[1:] if tool.clicks]
    assert all(page["loaded"] < kept["page"][tool]["U-Net"][0]["loaded"] for tool in interactive)


def test_the_truth_counts_what_a_forward_joins() -> None:
    assert drawing.joins(*models.build("resnet18"))["add"] == 8
    assert drawing.joins(*models.build("shared"))["cat"] == 1
    assert drawing.joins(*models.build("2,000 operators"))["add"] == 400


def test_joins_are_counted_by_different_sources() -> None:
    names = {"a": "Conv2d", "b": "Conv2d", "c": "aten::add_", "d": "__iadd__", "e": "adder"}
    drawn = drawing.Drawing(names, frozenset({("a", "c"), ("b", "c"), ("a", "d"), ("a", "e"), ("b", "e")}))
    assert drawn.boxes("add") == ["c", "d"]
    assert drawn.joins("add") == 1


def endless() -> dict[str, Any]:
    while True:
        pass


def test_what_takes_too_long_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alone, "LIMIT", 1)
    assert alone.alone(endless) == {"error": "over 1 s"}


def test_an_error_is_that_of_its_cause() -> None:
    def failing() -> dict[str, Any]:
        try:
            raise KeyError("what is wrong")
        except KeyError as error:
            raise ValueError("wrapped") from error

    assert alone.alone(failing) == {"error": "KeyError: 'what is wrong'"}


def test_half_a_model_is_cut_and_comes_back(require: Callable[..., None]) -> None:
    require("torch_pruning")
    found = pruning.cut_alone(OURS, "resnet18")
    assert found["same outputs"]
    assert found["undone"]
    assert found["left"] < 0.3
    assert not pruning.cut_alone("Torch-Pruning", "resnet18")["same outputs"]


def test_our_monitor_changes_nothing(tmp_path: Path) -> None:
    losses, state = watching.trained(watching.WAYS["nothing"], tmp_path)
    own_losses, own_state = watching.trained(watching.WAYS["mk.Monitor, three norms"], tmp_path)
    assert own_losses == losses
    assert all(map(torch.equal, own_state, state))


def test_the_tables_are_those_of_the_figures() -> None:
    document = ROOT / "docs" / "comparison.md"
    kept = json.loads(document.with_suffix(".json").read_text("utf-8"))
    text = document.read_text("utf-8")
    assert table.written(text, kept) == text
    assert set(table.PLACE.findall(text)) == set(table.TABLES)
