"""The comparison of docs/comparison.md on two models, from end to end, and what its parts make of known cases."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.research.rivals import alone, drawing, models, pruning, runner, watching
from benchmarks.research.rivals.results import Results
from benchmarks.research.rivals.tools import LISTED, TOOLS
from modulekg_widgets.engine.monitoring.metrics import histograms

MODELS = ("shared", "U-Net")
OURS = LISTED[0].name
MODULES = ("torchvista", "torchview", "torchlens", "model_explorer", "netron", "onnxscript", "tensorboard")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, require: Callable[..., None]) -> dict[str, Any]:
    """All that is measured of the pages of two models, once each."""
    require(*MODULES, "torch_pruning", "wandb", "playwright", "$dot", "$chromium")
    from playwright.sync_api import sync_playwright

    folder = tmp_path_factory.mktemp("rivals")
    results = Results(folder / "comparison.json")
    runner.write_names(LISTED, results)
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
    assert page["opening"]
    assert not [one for one in page["opening"] if "missed" in one]
    interactive = [tool.name for tool in LISTED[1:] if tool.clicks]
    assert all(page["loaded"] < kept["page"][tool]["U-Net"][0]["loaded"] for tool in interactive)


@pytest.mark.timeout(1800)
def test_clicks_open_boxes_in_every_tool_that_opens_some(kept: dict[str, Any]) -> None:
    clicks = {tool.name: kept["page"][tool.name]["U-Net"][0].get("opening", []) for tool in LISTED if tool.clicks}
    assert {tool for tool, found in clicks.items() if found} >= {
        OURS,
        "torchvista, all levels",
        "Model Explorer",
        "TensorBoard",
    }
    assert not [one for found in clicks.values() for one in found if "missed" in one]


@pytest.mark.parametrize(("model", "add", "cat"), [("Faster R-CNN", 37, 6), ("swin_t", 41, 3)])
def test_ours_draws_every_join_also_of_modules_without_children(model: str, add: int, cat: int, tmp_path: Path) -> None:
    made = models.build(model)
    drawn = LISTED[0].drawn(LISTED[0].make(*made, tmp_path / "page"))
    true = drawing.joins(*made)
    assert (true["add"], true["cat"]) == (add, cat)
    assert (drawn.joins("add"), drawn.joins("cat")) == (add, cat)


def test_the_truth_counts_what_a_forward_joins() -> None:
    assert drawing.joins(*models.build("resnet18"))["add"] == 8
    assert drawing.joins(*models.build("shared"))["cat"] == 1
    assert drawing.joins(*models.build("2,000 operators"))["add"] == 400
    assert drawing.joins(*models.build("vit_b_16"))["add"] == 24  # the 25th adds a parameter


def test_joins_are_counted_by_different_sources() -> None:
    names = {"a": "Conv2d", "b": "Conv2d", "c": "aten::add_", "d": "__iadd__", "e": "adder"}
    drawn = drawing.Drawing(names, frozenset({("a", "c"), ("b", "c"), ("a", "d"), ("a", "e"), ("b", "e")}))
    assert drawn.boxes("add") == ["c", "d"]
    assert drawn.joins("add") == 1


def endless() -> dict[str, Any]:
    while True:
        pass


def endless_program() -> dict[str, Any]:
    subprocess.run([sys.executable, "-c", "while True: pass"], check=True)
    return {}


@pytest.mark.parametrize("work", [endless, endless_program])
def test_what_takes_too_long_is_told_so(work: Callable[[], dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alone, "LIMIT", 1)
    assert alone.alone(work) == {"error": "over 1 s"}


DEATHS = {
    "the process died by SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "the process exited 3": lambda: os._exit(3),
    "no answer after 1 s on the clock": lambda: time.sleep(60),
}


@pytest.mark.parametrize("told", DEATHS)
def test_a_process_that_gives_no_answer_is_told_by_how_it_ended(told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alone, "PATIENCE", 1)
    assert alone.alone(DEATHS[told]) == {"error": told}


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
    own_losses, own_state = watching.trained(watching.WAYS["mk.Monitor, three norms of four layers"], tmp_path)
    assert own_losses == losses
    assert all(map(torch.equal, own_state, state))


def histograms_of_ours(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    whole = histograms.histogram
    monkeypatch.setattr(histograms, "histogram", lambda own: (found.append("ours"), whole(own))[1])
    return found


def histograms_of_tensorboard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    from torch.utils.tensorboard import SummaryWriter

    found: list[str] = []
    monkeypatch.setattr(SummaryWriter, "add_histogram", lambda self, name, *_, **__: found.append(name))
    return found


def histograms_of_wandb(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    from wandb.integration.torch.wandb_torch import TorchHistory

    found: list[str] = []
    monkeypatch.setattr(TorchHistory, "log_tensor_stats", lambda self, tensor, name: found.append(name))
    return found


COUNTED = {"mk.Monitor": histograms_of_ours, "TensorBoard": histograms_of_tensorboard, "wandb": histograms_of_wandb}


@pytest.mark.parametrize("name", [name for name, way in watching.WAYS.items() if way.histograms])
def test_ways_that_are_compared_take_as_many_histograms(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, require: Callable[..., None]
) -> None:
    require("wandb", "tensorboard")
    found = next(count for start, count in COUNTED.items() if name.startswith(start))(monkeypatch)
    training = watching.Training()
    with watching.WAYS[name].watch(training, tmp_path) as track:
        for _ in range(3):
            training.step(), track()
    assert len(found) == 3 * watching.WAYS[name].histograms
