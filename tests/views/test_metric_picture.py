"""The static picture of a MetricPanel."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest

from modulekg_widgets.engine.monitoring.run import Run
from modulekg_widgets.engine.views.pictures.metrics import NO_VALUES_HINT, is_loss, loss_order, losses_with
from modulekg_widgets.widgets.metric_panel.metric_panel import MetricPanel
from widgets.metric_samples import live_run, measured_run, put


@pytest.fixture
def run() -> Run:
    return measured_run()


@pytest.fixture
def panel(run: Run) -> Iterator[MetricPanel]:
    widget = MetricPanel(run)
    yield widget
    widget.close()


def picture(panel: MetricPanel) -> ElementTree.Element:
    bundle = panel._repr_mimebundle_()
    assert len(bundle["image/svg+xml"].encode()) <= 100_000
    chart = ElementTree.fromstring(bundle["image/svg+xml"]).find("{http://www.w3.org/2000/svg}svg")
    assert chart is not None
    return chart


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]


def lines(root: ElementTree.Element) -> list[str]:
    paths = [element.get("d", "") for element in root.iter("{http://www.w3.org/2000/svg}path")]
    return paths[1:]  # the first is the frame


def test_the_picture_shows_what_the_panel_shows(run: Run, panel: MetricPanel) -> None:
    for step in range(1, 5):
        put(run, step, {("layer1.0", "OutputSndNorm"): step * 10.0, ("layer2", "OutputSndNorm"): -5.0})
    root = picture(panel)
    assert texts(root) == ["loss", "ResNet", "2", "2", "step 0", "0", "loss"]
    panel.metric = "OutputSndNorm"
    root = picture(panel)
    assert texts(root) == ["OutputSndNorm", "ResNet", "40", "-5", "step 0", "4", "layer1.0", "layer2"]
    first, second = lines(root)
    assert first.count("L") == second.count("L") == 4
    assert first.endswith("L546 34")  # the greatest of the last step: top right
    panel.selected = "layer2"
    assert texts(picture(panel))[2:] == ["2", "-5", "step 0", "4", "layer2"]
    panel.modules, panel.window = ["layer1.0"], 2
    assert texts(picture(panel))[2:] == ["40", "30", "step 3", "4", "layer1.0"]


def test_the_picture_shows_the_layers_that_differ_most() -> None:
    run = live_run("deep")
    put(run, 0, {("", "loss"): 1.0})
    layers = [f"blocks.{number}" for number in range(30)]
    for step in range(20):
        put(run, step, {(layer, "OutputMean"): float(layer == "blocks.17") * 90 - 1.0 for layer in layers})
        put(run, step, {(layer, "WeightNorm"): 10.0 ** -(n % 10) for n, layer in enumerate(layers)})
    panel = MetricPanel(run, metric="OutputMean")
    names = texts(picture(panel))[6:]
    assert len(names) == 8
    assert "blocks.17" in names
    panel.close()
    panel = MetricPanel(run, view="heatmap")
    found = texts(picture(panel))
    assert found[0] == "WeightNorm"  # no loss, but the metric whose layers lie furthest apart
    assert found[2:4] == ["1", "1e-09"]
    heights = {float(line.split()[1].partition("h")[0]) for line in lines(picture(panel))}
    assert len(heights) >= 3
    assert sorted(heights)[1] - min(heights) > 10  # apart, by their logarithms
    panel.close()


def test_the_picture_survives_what_values_and_names_can_be(panel: MetricPanel, run: Run) -> None:
    name = "</text><script>window.__xss=42</script>\x00\ud800"
    for step, value in enumerate([1.0, math.nan, 3.0, math.inf, -math.inf, 1e308, -1e308, math.nan, 0.0]):
        put(run, step, {(name, "M"): value})
    panel.metric = "M"
    root = picture(panel)
    assert texts(root)[-1].startswith("</text><script>")
    assert lines(root)[0].count("M") == 4
    panel.log_scale = True
    assert texts(picture(panel))[2:4] == ["1e+308", "1"]


@pytest.mark.parametrize(
    ("metrics", "first"),
    [
        ([("a", "Norm"), ("", "lr"), ("", "LossSpike"), ("", "train_loss"), ("", "loss")], "loss"),
        ([("a", "Norm"), ("", "objective")], "objective"),
        ([("a", "Norm"), ("", "Norm")], "Norm"),
    ],
)
def test_the_picture_opens_on_what_is_logged(metrics: list[tuple[str, str]], first: str) -> None:
    run = live_run()
    put(run, 0, dict.fromkeys(metrics, 1.0))
    panel = MetricPanel(run)
    assert texts(picture(panel))[0] == first
    panel.close()


def test_the_names_of_losses_are_those_of_the_page() -> None:
    table = json.loads((Path(__file__).parent / "loss_names.json").read_text())
    assert [name for name in table["losses"] if not is_loss(name)] == []
    assert [name for name in table["others"] if is_loss(name)] == []
    for names, expected in table["ordered"]:
        assert sorted(names, key=loss_order) == expected
    for names, name, expected in table["charts"]:
        assert losses_with(names, name) == expected


def test_losses_are_in_one_picture_which_says_the_scale_and_what_is_not_finite() -> None:
    run = live_run("run")
    for step in range(9):
        put(run, step, {("", "val_loss"): 1.0, ("", "Loss/train"): 10.0**-step if step < 6 else math.nan})
    panel = MetricPanel(run)
    assert texts(picture(panel))[-3:] == [
        "Loss/train",
        "val_loss",
        "Loss/train is NaN since step 6; log scale",
    ]
    assert len(lines(picture(panel))) == 2
    panel.close()


def test_the_picture_of_nothing_says_so() -> None:
    panel = MetricPanel(live_run("empty"))
    assert texts(picture(panel)) == ["no values yet", "empty", NO_VALUES_HINT]
    panel.close()


def test_the_picture_of_much_is_small(panel: MetricPanel) -> None:
    runs = [live_run(f"run {number}") for number in range(6)]
    for run in runs:
        for step in range(1500):
            put(run, step, {(f"module{number}" * 20, "M"): math.sin(step * number) for number in range(4)})
    many = MetricPanel(runs)
    assert len(lines(picture(many))) == 12
    many.close()


def test_the_picture_of_a_very_long_run_does_not_keep_the_cell_waiting(
    panel: MetricPanel, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("modulekg_widgets.engine.views.pictures.metrics.READ_SECONDS", 0.05)
    for step in range(100_000):
        put(run, step, {("", "loss"): 1.0})
    assert texts(picture(panel))[-1] == "the beginning of a long training"
