"""What models take of which values are known on a data set tells what it holds, where it does not say so itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import UnknownNameError

REACHED = {4: 0.91, 8: 0.93, 16: 0.955, 32: 0.97, 64: 0.985}  # by the width of the model
ROW = torch.zeros(1, 20)
PICTURE = torch.zeros(1, 3, 32, 32)
WORDS = torch.zeros(1, 6, dtype=torch.long)


def perceptron(width: int, inputs: int = 20) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, 3))


def of_pictures(width: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, width, 3), nn.ReLU(), nn.Conv2d(width, 8, 3))


class OfSeries(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.series, self.head = nn.LSTM(12, width, batch_first=True), nn.Linear(width, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.series(x)[0][:, -1])


class OfWords(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(100, width), nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.words(x).mean(1))


class HeadFirst(nn.Module):
    """Its layers are not called in the order in which they stand."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.head, self.body = nn.Linear(width, 3), nn.Linear(20, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).relu())


def measured(make: Callable[[int], nn.Module], args: Any = None, **dataset: Any) -> mk.KnowledgeGraph:
    """Models of five widths with jobs on a data set; without `args` nobody knows what they take."""
    graph = mk.KnowledgeGraph()
    graph.add_dataset("mine", **dataset)
    for width, accuracy in REACHED.items():
        graph.add_model(make(width), f"net{width}", args=args)
        graph.add_job(model=f"net{width}", dataset="mine", accuracy=accuracy)
    return graph


def told(graph: mk.KnowledgeGraph, model: Any, args: Any = None) -> float | None:
    return graph.predict("acc@1", model, dataset="mine", args=args).value


@pytest.mark.parametrize("args", [None, ROW], ids=["never called", "called"])
def test_where_no_model_of_pictures_was_tried_none_is_told_and_offered(args: Any) -> None:
    graph = measured(perceptron, args)
    assert told(graph, of_pictures(64)) is None
    for asked in ("net16", perceptron(24)):
        assert 90 < (told(graph, asked) or 0) < 99
    rows = graph.suggest("mine", builders={"net32": lambda: perceptron(32)})
    assert {row.name for row in rows} == {f"net{width}" for width in REACHED}
    assert [row.name for row in rows if row.buildable] == ["net32"]
    assert all(88 < row.value < 99.5 for row in rows)


def test_a_model_is_for_the_data_on_which_it_was_measured() -> None:
    """Rows of numbers may be what another model made of text."""
    graph = measured(perceptron, ROW, modality="text")
    found = graph.predict("acc@1", "net16", dataset="mine")
    assert found.value == pytest.approx(95.5, abs=2)
    assert not found.far
    assert {row.name for row in graph.suggest("mine")} >= {f"net{width}" for width in REACHED}


@pytest.mark.parametrize(
    ("make", "args"),
    [(lambda width: perceptron(width, 3072), PICTURE), (OfSeries, torch.zeros(1, 10, 12))],
    ids=["pictures laid flat", "series"],
)
def test_the_same_is_told_of_a_model_that_was_called_as_of_its_sisters_that_were_not(
    make: Callable[[int], nn.Module], args: torch.Tensor
) -> None:
    graph = measured(make)
    assert told(graph, make(24), args) == pytest.approx(told(graph, make(24)), abs=1)
    graph.add_model(make(24), "called", args=args)
    assert "called" in {row.name for row in graph.suggest("mine", n=20)}


@pytest.mark.parametrize("inputs", [20, 32, 224, 3072])
def test_a_perceptron_is_tried_on_a_row_whatever_pictures_it_would_run_on(inputs: int) -> None:
    graph = measured(lambda width: perceptron(width, inputs)[1:])
    (row,) = [
        row for row in graph.suggest("mine", builders={"net8": lambda: perceptron(8, inputs)[1:]}) if row.buildable
    ]
    assert (row.name, row.inputs) == ("net8", ((1, inputs),))


def test_a_row_is_as_wide_as_some_layer_takes() -> None:
    rows = measured(HeadFirst).suggest("mine", builders={"net8": lambda: HeadFirst(8)})
    assert [row.name for row in rows if row.buildable] == ["net8"]


def test_all_kinds_are_offered_that_were_measured_on_a_data_set() -> None:
    graph = measured(perceptron, ROW)
    graph.add_model(OfWords(4), "words")
    graph.add_job(model="words", dataset="mine", accuracy=0.9)
    graph.add_model(perceptron(24), "new", args=ROW)
    assert {row.name for row in graph.suggest("mine", n=20)} == {"words", "new", *(f"net{width}" for width in REACHED)}


def test_a_latency_is_told_on_devices_where_models_of_its_kind_were_timed() -> None:
    graph = mk.KnowledgeGraph()
    makers: dict[str, tuple[Callable[[int], nn.Module], torch.Tensor, int, float]] = {
        "card": (of_pictures, PICTURE, 24, 50.0), "phone": (OfWords, WORDS, 7, 0.1),
    }  # fmt: skip
    for device, (make, args, count, cost) in makers.items():
        names = [f"{device}{width}" for width in range(4, 4 + count)]
        for width, name in enumerate(names, 4):
            graph.add_model(make(width), name, args=(args,))
        table = pd.DataFrame({"model": names, "value": [cost * width for width in range(4, 4 + count)]})
        graph.add_results(table, target="latency", unit="ms", device=device)
    assert graph.predict("latency", "card9", device="card").value == pytest.approx(450, rel=0.1)
    assert graph.predict("latency", "card9", device="phone").value is None
    assert graph.predict("latency", of_pictures(40), device="phone", args=PICTURE).value is None
    assert graph.predict("latency", "phone6", device="card").value is None


def test_an_accuracy_counts_on_whatever_device_it_was_measured() -> None:
    graph = measured(perceptron, ROW)
    for name, device in (("net8", "laptop"), ("net16", "server")):
        graph.add_job(model=name, dataset="mine", accuracy=0.94, device=device)
    assert graph.suggest("mine")
    found = graph.predict("acc@1", perceptron(24), dataset="mine")
    assert found.value == graph.predict("acc@1", perceptron(24), dataset="mine", device="server").value
    assert found.device is None
    with pytest.raises(UnknownNameError, match=r"'serve'.*'server'"):
        graph.predict("acc@1", perceptron(24), dataset="mine", device="serve")
