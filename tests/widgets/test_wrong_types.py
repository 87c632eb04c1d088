"""Values of a wrong type, at the places where newcomers pass them: our own errors, and nothing changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ipywidgets.widgets.widget import _instances
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import ModuleKGError, a_kind, a_type
from modulekg_widgets.engine.files.readers import READERS

NET = nn.Linear(2, 2)
BOXES = "Box, GridBox, HBox, VBox, Tab"


def monitor() -> mk.Monitor:
    return mk.Monitor(NET, {})


CASES: dict[str, tuple[Callable[[Path], object], str]] = {
    "Monitor(name=3)": (lambda _: mk.Monitor(NET, {}, name=3), "name= is a text: an int was passed"),
    "Monitor(sinks=3)": (
        lambda _: mk.Monitor(NET, {}, sinks=3),
        "sinks= is a list: an int was passed, write sinks=[path]",
    ),
    "Monitor(sinks='run.jsonl')": (
        lambda _: mk.Monitor(NET, {}, sinks="run.jsonl"),
        "sinks= is a list: a str was passed, write sinks=[path]",
    ),
    "monitor.log(3)": (
        lambda _: monitor().log(3),
        "numbers are logged by name: an int was passed, write log({'loss': loss})",
    ),
    "monitor.log of a text": (
        lambda _: monitor().log({"loss": "low"}),
        "'loss' is logged as a number: a str was passed",
    ),
    "monitor.track(None)": (lambda _: monitor().track(None), "a step is a count: None was passed"),
    "MetricPanel(3)": (
        lambda _: mk.MetricPanel(3),
        "MetricPanel shows monitors, recorded runs and the paths of recorded files: an int was passed",
    ),
    "MetricPanel(modules=3)": (
        lambda _: mk.MetricPanel(monitor(), modules=3),
        "modules of a MetricPanel is a list of texts: an int was passed",
    ),
    "MetricPanel(modules=[3])": (
        lambda _: mk.MetricPanel(monitor(), modules=[3]),
        "modules of a MetricPanel is a list of texts: an int was passed in it",
    ),
    "MetricPanel(metric=0)": (
        lambda _: mk.MetricPanel(monitor(), metric=0),
        "metric of a MetricPanel is text: an int was passed",
    ),
    "MetricPanel(window='all')": (
        lambda _: mk.MetricPanel(monitor(), window="all"),
        "window of a MetricPanel is a whole number or None: a str was passed",
    ),
    "MetricPanel(log_scale='yes')": (
        lambda _: mk.MetricPanel(monitor(), log_scale="yes"),
        "log_scale of a MetricPanel is True or False or None: a str was passed",
    ),
    "panel.color(3)": (
        lambda _: mk.MetricPanel(monitor()).color(3),
        "a ModelGraph is wanted: an int was passed",
    ),
    "ModelGraph(expanded=3)": (
        lambda _: mk.ModelGraph(NET, expanded=3),
        "expanded of a ModelGraph is a list of texts: an int was passed",
    ),
    "ModelGraph(overlay=3)": (
        lambda _: mk.ModelGraph(NET, overlay=3),
        "overlay of a ModelGraph is a dict: an int was passed",
    ),
    "graph.selected = 5": (
        lambda _: setattr(mk.ModelGraph(NET), "selected", 5),
        "selected of a ModelGraph is text or None: an int was passed",
    ),
    "graph.expanded = None": (
        lambda _: setattr(mk.ModelGraph(NET), "expanded", None),
        "expanded of a ModelGraph is a list of texts: None was passed",
    ),
    "save_html(widget, 3)": (
        lambda _: mk.save_html(mk.ModelGraph(NET), 3),
        "save_html writes a file: an int was passed, name one that ends in .html",
    ),
    "save_html(None, path)": (
        lambda folder: mk.save_html(None, folder / "page.html"),
        f"save_html writes a widget of this package, as ModelGraph, or a {BOXES} of them: None was passed",
    ),
    "file_reader(3)": (
        lambda _: mk.file_reader(3),
        "file_reader takes the ends of file names, as '.safetensors': an int was passed",
    ),
    "file_reader(magic=3)": (
        lambda _: mk.file_reader(".mine", magic=3),
        "magic= is the first bytes of a file, as b'GGUF': an int was passed",
    ),
    "timm_builders(3)": (
        lambda _: mk.timm_builders(3),
        "names is a list of architectures: an int was passed, write ['resnet18']",
    ),
    "timm_builders('resnet18')": (
        lambda _: mk.timm_builders("resnet18"),
        "names is a list of architectures: a str was passed, write ['resnet18']",
    ),
    "fingerprint(3)": (lambda _: mk.fingerprint(3), "got an int: pass an instance of torch.nn.Module"),
}


@pytest.mark.parametrize(("act", "text"), CASES.values(), ids=CASES)
def test_a_value_of_a_wrong_type_is_an_error_that_says_what_to_pass(
    act: Callable[[Path], object], text: str, tmp_path: Path
) -> None:
    with pytest.raises(ModuleKGError) as caught:
        act(tmp_path)
    assert str(caught.value) == text
    assert not list(tmp_path.iterdir())
    assert ".mine" not in READERS


@pytest.mark.parametrize("name", ["MetricPanel(modules=3)", "ModelGraph(overlay=3)", "ModelGraph(expanded=3)"])
def test_a_widget_that_is_refused_is_not_there(name: str, tmp_path: Path) -> None:
    before = set(_instances)
    with pytest.raises(ModuleKGError):
        CASES[name][0](tmp_path)
    assert set(_instances) == before


def test_numbers_that_are_refused_change_nothing() -> None:
    one = monitor()
    with pytest.raises(ModuleKGError):
        one.log({"loss": 0.5, "note": "low"})
    assert (len(one.history), one.history.slots) == (0, [])
    one.log({"loss": 0.5})
    assert one.get_output() == {"": {"loss": {0: 0.5}}}


def test_a_type_has_its_article() -> None:
    assert [a_type(one) for one in (3, "", None, NET, {}, object())] == [
        "an int", "a str", "None", "a Linear", "a dict", "an object",
    ]  # fmt: skip
    assert [a_kind(noun) for noun in ("Axis", "UNet", "ReLU", "LSTM", "HBox")] == [
        "an Axis", "a UNet", "a ReLU", "an LSTM", "an HBox",
    ]  # fmt: skip
