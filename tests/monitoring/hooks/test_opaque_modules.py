"""Models with TorchScript in them, and tensors without data: what can be measured is, and nothing fails."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.monitoring.config import DEFAULT_METRICS

X = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
METRICS = [
    "OutputSndNorm", "OutputGradSndNorm", "InputGradSndNorm", "InputSndNorm", "WeightNorm", "WeightGradNorm",
    "WeightStatistic", "InputMean", "InputStd", "InputCovMaxEig", "InputCovCondition", "RankMe", "DeadNeuronFraction",
    "UpdateRatio", "WeightParamJump", "ActivationKurtosis", "ActivationMax", "Sparsity",
]  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x))


class WrappedChild(nn.Module):
    def __init__(self, child: nn.Module) -> None:
        super().__init__()
        self.first, self.child, self.last = nn.Linear(4, 4), child, nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.child(self.first(x)))


def loaded() -> nn.Module:
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(Body()), buffer)
    buffer.seek(0)
    return torch.jit.load(buffer)


OPAQUE: dict[str, Callable[[], nn.Module]] = {
    "scripted": lambda: torch.jit.script(Body()),
    "traced": lambda: torch.jit.trace(Body(), X),
    "frozen": lambda: torch.jit.freeze(torch.jit.script(Body().eval())),
    "a scripted layer": lambda: torch.jit.script(nn.Linear(4, 4)),
    "a traced layer": lambda: torch.jit.trace(nn.Linear(4, 4), X),
    "loaded": loaded,
}


def trained(model: nn.Module, monitor: mk.Monitor, x: torch.Tensor = X) -> dict[str, dict[str, dict[int, object]]]:
    with monitor:
        for step in range(3):
            model(x).sum().backward()
            monitor.track(step)
    return monitor.get_output()


@pytest.mark.parametrize("make", OPAQUE.values(), ids=OPAQUE)
def test_a_torchscript_child_is_opaque_and_the_others_are_measured(make: Callable[[], nn.Module]) -> None:
    model = WrappedChild(make())
    monitor = mk.Monitor(model)
    assert monitor.opaque_paths == ("child",)
    assert "2 modules, 1 opaque" in repr(monitor)
    found = trained(model, monitor)
    assert set(found) == {"first", "last"}
    for values in found.values():
        assert set(values) == set(DEFAULT_METRICS)
        assert all(math.isfinite(value) for series in values.values() for value in series.values())  # type: ignore[arg-type]
    assert trained(model, mk.Monitor(model, {"child": "OutputSndNorm"}))["child"]["OutputSndNorm"][0] > 0  # type: ignore[operator]


@pytest.mark.parametrize(
    "make", [torch.jit.script, lambda model: torch.jit.trace(model, X)], ids=["scripted", "traced"]
)
def test_a_torchscript_root_is_seen_from_outside(make: Callable[[nn.Module], nn.Module]) -> None:
    model = make(WrappedChild(Body()))
    monitor = mk.Monitor(model)
    assert monitor.opaque_paths == ("",)
    assert trained(model, monitor) == {}
    assert set(trained(model, mk.Monitor(model, {"": ["OutputSndNorm", "OutputGradSndNorm"]}))) == {""}


def test_a_model_without_torchscript_has_nothing_opaque() -> None:
    monitor = mk.Monitor(WrappedChild(Body()))
    assert monitor.opaque_paths == ()
    assert "opaque" not in repr(monitor)


def without_data() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)).to("meta")


@pytest.mark.parametrize("metrics", [*METRICS, METRICS, None], ids=str)
def test_meta_tensors_give_nan_and_one_warning(metrics: str | list[str] | None) -> None:
    model = without_data()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        monitor = mk.Monitor(model, None if metrics is None else {"*": metrics})
        found = trained(model, monitor, X.to("meta"))
    assert len(warned) == 1
    assert "on the meta device" in str(warned[0].message)
    assert {"0", "1", "3"} <= set(found)
    for series in (series for values in found.values() for series in values.values()):
        assert list(series) == [0, 1, 2]
        assert all(math.isnan(value) for value in series.values())  # type: ignore[arg-type]
    assert all("meta device" in reason for reason in monitor.reasons.values())


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.real, self.ghost = WrappedChild(Body()), nn.Linear(4, 4, device="meta")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.ghost(x.to("meta"))
        return self.real(x)


def test_a_part_without_data_takes_nothing_from_the_others() -> None:
    model, alone = Mixed(), WrappedChild(Body())
    alone.load_state_dict(model.real.state_dict())
    asked = ["OutputSndNorm", "OutputGradSndNorm", "WeightNorm", "UpdateRatio", "RankMe"]
    with pytest.warns(RuntimeWarning, match="'ghost' has no value: its tensors are on the meta device") as warned:
        found = trained(model, mk.Monitor(model, {"*": asked}))
    assert len(warned) == 1
    assert set(found["ghost"]) == set(asked)
    assert all(math.isnan(value) for series in found["ghost"].values() for value in series.values())  # type: ignore[arg-type]
    expected = trained(alone, mk.Monitor(alone, {"*": asked}))
    assert {path: found[f"real.{path}"] for path in expected if path} == {p: v for p, v in expected.items() if p}


def test_a_model_that_gets_its_data_later_is_measured_from_then_on() -> None:
    model = without_data()
    monitor = mk.Monitor(model, {"0": ["OutputSndNorm", "WeightNorm"]})
    model.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.fill_(1)
    found = trained(model, monitor)
    assert all(value > 0 for series in found["0"].values() for value in series.values())  # type: ignore[operator]


def test_a_look_on_meta_tensors_is_no_training() -> None:
    """What traces the model beside the training leaves no value, as before."""
    model = WrappedChild(Body())
    with mk.Monitor(model) as monitor:
        mk.trace(model, X)
        monitor.track(0)
    assert "OutputSndNorm" not in monitor.get_output().get("first", {})
