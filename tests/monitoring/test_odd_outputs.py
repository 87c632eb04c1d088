"""Inputs and outputs of all kinds: containers, complex and whole numbers, tensors that are overwritten in place."""

import dataclasses
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from models.functional import Lambda

NORMS = ["InputSndNorm", "OutputSndNorm", "OutputGradSndNorm", "InputGradSndNorm"]


def about(tensor: torch.Tensor) -> Any:
    return pytest.approx(float(np.linalg.norm(tensor.detach().numpy())), rel=1e-4)


class Named(NamedTuple):
    hidden: torch.Tensor
    label: str = "name"


@dataclasses.dataclass
class Record:
    hidden: torch.Tensor
    cache: Any = None


class ModelOutput(OrderedDict):
    """As HuggingFace's: a dict with attributes, that has no plain tuple's indices."""

    def __init__(self, hidden: torch.Tensor) -> None:
        super().__init__(hidden=hidden)
        self.hidden = hidden


OUTPUTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "tensor": lambda y: y,
    "tuple": lambda y: (y, None),
    "list": lambda y: [y],
    "nested": lambda y: {"a": [None, (y,)]},
    "named tuple": Named,
    "data class": Record,
    "model output": ModelOutput,
    "dict": lambda y: {"loss": None, "logits": y},
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_outputs_of_all_kinds(kind: str) -> None:
    model = Lambda(lambda module, x: OUTPUTS[kind](module.inner(x)), inner=nn.Linear(4, 4))
    x, kept = torch.randn(2, 4), []
    model.inner.register_forward_hook(lambda *call: kept.append(call[-1]))
    with mk.Monitor(model, {"*": NORMS}) as monitor:
        output = model(x)
        kept[0].sum().backward()
        monitor.track(0)
    assert type(output) is type(OUTPUTS[kind](x))
    values = monitor.get_output()[""]
    assert values["OutputSndNorm"][0] == about(kept[0])
    assert values["OutputGradSndNorm"][0] == about(torch.ones(2, 4))


@pytest.mark.parametrize("kind", ["tuple", "list", "named tuple", "dict", "data class"])
def test_inputs_of_all_kinds(kind: str) -> None:
    model = Lambda(lambda _, batch: (batch, 1.0))
    x = torch.randn(2, 4)
    with mk.Monitor(model, {"": NORMS}) as monitor:
        model(OUTPUTS[kind](x))
        model(batch=OUTPUTS[kind](x))
        monitor.track(0)
    assert monitor.get_output()[""]["InputSndNorm"][0] == [about(x), about(x)]


def test_whole_numbers_have_no_norm_and_no_reason() -> None:
    model, ids = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 4)), torch.arange(6).view(2, 3)
    with mk.Monitor(model, {"*": [*NORMS, "WeightNorm", "WeightGradNorm"]}) as monitor:
        y = model(ids)
        y.sum().backward()
        monitor.track(0)
    output = monitor.get_output()
    assert sorted(output["0"]) == ["OutputGradSndNorm", "OutputSndNorm", "WeightGradNorm", "WeightNorm"]
    assert sorted(output["1"]) == sorted([*NORMS, "WeightNorm", "WeightGradNorm"])
    assert monitor.reasons == {}


def test_complex_numbers() -> None:
    model, x = Lambda(lambda _, x: x * 2j), torch.randn(2, 4, dtype=torch.complex64, requires_grad=True)
    with mk.Monitor(model, {"": NORMS}) as monitor:
        model(x).abs().sum().backward()
        monitor.track(0)
    assert x.grad is not None
    values = monitor.get_output()[""]
    assert {name: by[0] for name, by in values.items()} == {
        "InputSndNorm": about(x),
        "OutputSndNorm": about(2 * x),
        "OutputGradSndNorm": about(torch.ones(8)),
        "InputGradSndNorm": about(x.grad),
    }


def test_an_input_that_the_module_overwrites_is_that_before() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4)), torch.randn(8, 4)
    with mk.Monitor(model, {"*": [*NORMS, "NonFiniteOrigin"]}) as monitor:
        model(x).sum().backward()
        monitor.track(0)
    values = monitor.get_output()
    h = model[0](x)
    assert values["0"]["OutputSndNorm"][0] == values["1"]["InputSndNorm"][0] == about(h)
    assert values["1"]["OutputSndNorm"][0] == values["2"]["InputSndNorm"][0] == about(h.relu())
    after = model[2].weight.detach().sum(0).expand(8, 4)
    assert values["1"]["OutputGradSndNorm"][0] == about(after)
    assert values["0"]["OutputGradSndNorm"][0] == values["1"]["InputGradSndNorm"][0] == about(after * (h > 0))


def test_an_input_by_keyword_that_the_module_overwrites_has_no_wrong_value() -> None:
    model, x = nn.Sequential(nn.ReLU(inplace=True)), torch.tensor([-3.0, 4.0])
    with mk.Monitor(model, {"0": ["InputSndNorm", "OutputSndNorm"]}) as monitor:
        model[0](input=x)
        monitor.track(0)
    values = monitor.get_output()["0"]
    assert values["OutputSndNorm"] == {0: 4.0}
    assert values.get("InputSndNorm", {0: 5.0})[0] in (5.0, pytest.approx(float("nan"), nan_ok=True))


def test_what_is_overwritten_before_a_metric_can_use_it_is_nan_with_the_reason() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4)), torch.randn(6, 4)
    model[0].weight.requires_grad_(False)  # else torch itself refuses the backward pass below
    with mk.Monitor(model, {"0": ["GradientNoiseScale"]}) as monitor:
        model(x).sum().backward()
        monitor.track(0)
        y = model(x)
        x.zero_()
        with pytest.warns(RuntimeWarning, match="overwritten"):
            y.sum().backward()
        monitor.track(1)
    values = monitor.get_output()["0"]["GradientNoiseScale"]
    assert np.isfinite(values[0])
    assert np.isnan(values[1])
    assert "overwritten in place" in monitor.reasons["0", "GradientNoiseScale"]
