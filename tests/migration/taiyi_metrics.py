"""The rows of "Coming from Taiyi" on metrics, those of a user's own and what they need; and a training for all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from migration.models import IMAGE, ResNet, new
from migration.tables import Rows

metrics = Rows()


def step(model: nn.Module, x: torch.Tensor = IMAGE) -> torch.Tensor:
    """One forward and backward pass of a training."""
    model.zero_grad()
    loss = model.train()(x).square().mean()
    loss.backward()
    return loss.detach()


def tracked(model: nn.Module, config: Any, steps: int = 1, x: torch.Tensor = IMAGE) -> dict[str, Any]:
    """The output after some steps, without an optimizer: the weights stay."""
    with mk.Monitor(model, config) as monitor:
        for at in range(steps):
            step(model, x)
            monitor.track(at)
    return monitor.get_output()


def at_zero(output: dict[str, Any], module: str) -> dict[str, Any]:
    return {metric: values[0] for metric, values in output[module].items()}


def norm(tensor: torch.Tensor | None) -> float:
    assert tensor is not None
    return float(np.linalg.norm(tensor.detach().double().numpy()))


def rows_of(x: torch.Tensor) -> np.ndarray:
    """(positions, channels) of what a convolution takes."""
    return x.detach().double().movedim(1, -1).flatten(0, -2).numpy()


def descending(x: torch.Tensor) -> np.ndarray:
    """The eigenvalues of the covariance over channels."""
    return np.sort(np.linalg.eigvalsh(np.cov(rows_of(x).T)))[::-1]


# --------------------------------------------------------------------- metrics


@metrics("`InputSndNorm` `OutputGradSndNorm` `WeightNorm` `WeightGradNorm` `InputMean`")
def _norms() -> None:
    model = new(ResNet)
    names = ["InputSndNorm", "OutputGradSndNorm", "WeightNorm", "WeightGradNorm", "InputMean"]
    kept: list[torch.Tensor] = []
    handle = model.fc.register_forward_hook(lambda m, args, y: (y.retain_grad(), kept.extend([args[0], y]))[0])
    found = at_zero(tracked(model, {"fc": names}), "fc")
    handle.remove()
    x, y = kept
    wanted = [norm(x), norm(y.grad), norm(model.fc.weight), norm(model.fc.weight.grad)]
    assert [found[name] for name in names[:4]] == pytest.approx(wanted, rel=1e-5)
    assert found["InputMean"] == pytest.approx(x.detach().mean(0).numpy(), abs=1e-6)


@metrics("`InputStd`")
def _deviation() -> None:
    found = at_zero(tracked(new(ResNet), {"conv1": ["InputStd"]}), "conv1")["InputStd"]
    assert found == pytest.approx(rows_of(IMAGE).std(0), rel=1e-5)
    assert found.shape == (3,)


@metrics("`InputCovMaxEig` `InputCovStableRank` `InputCovCondition` `…20` `…50` `…80`")
def _spectra() -> None:
    names = ["InputCovMaxEig", "InputCovStableRank", "InputCovCondition"]
    names += [f"InputCovCondition{percent}" for percent in (20, 50, 80)]
    model, kept = new(ResNet), []
    handle = model.layer1[0].conv1.register_forward_pre_hook(lambda m, args: kept.append(args[0]))
    found = at_zero(tracked(model, {"layer1.0.conv1": names}), "layer1.0.conv1")
    handle.remove()
    eigenvalues = descending(kept[0])
    largest = eigenvalues[0]
    below = [eigenvalues[-1], *(eigenvalues[8 * percent // 100] for percent in (20, 50, 80))]
    conditions = [largest / (value + 1e-7) if value > 1e-12 * largest else np.nan for value in below]
    wanted = [largest, eigenvalues.sum() / largest, *conditions]
    assert [found[name] for name in names] == pytest.approx(wanted, rel=1e-3, nan_ok=True)


@metrics("`RankMe`")
def _rank() -> None:
    model = new(ResNet)
    found = at_zero(tracked(model, {"conv1": ["RankMe"]}), "conv1")["RankMe"]
    singular = np.linalg.svd(rows_of(model.conv1(IMAGE)), compute_uv=False)
    assert singular.shape == (8,)  # as many as channels, of 32 positions
    shares = singular / singular.sum() + 1e-7
    assert found == pytest.approx(np.exp(-(shares * np.log(shares)).sum()), rel=1e-4)


@metrics("`MeanTID` `VarTID`")
def _discrepancies() -> None:
    norm = nn.BatchNorm2d(3, momentum=0.3)
    model = nn.Sequential(norm)
    config = {"0": [["MeanTID", "window(5)"], ["VarTID", "window(5)"]]}
    with mk.Monitor(model, config) as monitor:
        batches = [torch.randn(4, 3, 5, 5) + at for at in range(5)]
        for at, batch in enumerate(batches):
            step(model, batch)
            monitor.track(at)
    found = monitor.get_output()["0"]
    mean, std = norm.running_mean.numpy(), norm.running_var.sqrt().numpy()  # at the time of computing, for all batches
    means = [np.linalg.norm(rows_of(batch).mean(0) - mean) / np.linalg.norm(std) for batch in batches]
    deviations = [np.linalg.norm(rows_of(batch).std(0, ddof=1) - std) / np.linalg.norm(std) for batch in batches]
    assert found["MeanTID"] == {4: pytest.approx(np.mean(means), rel=1e-4)}
    assert found["VarTID"] == {4: pytest.approx(np.mean(deviations), rel=1e-4)}


@metrics("`WeightParamJump`")
def _jump() -> None:
    model = new(ResNet)
    with mk.Monitor(model, {"fc": ["WeightParamJump"]}) as monitor:
        for at in range(3):
            step(model)
            monitor.track(at)
            with torch.no_grad():
                model.fc.weight[at, :3] *= -1.0
    assert monitor.get_output()["fc"]["WeightParamJump"] == {1: 3, 2: 3}


@metrics("`LinearDeadNeuronNum`")
def _dead() -> None:
    model = new(ResNet)
    with torch.no_grad():
        model.fc.weight.zero_()
        model.fc.bias.copy_(torch.tensor([-3.0, -2.0, -1.0, 0.0, 1.0]))
    as_there = mk.monitoring.Metric("LinearDeadNeuronNum", threshold=-2)
    assert at_zero(tracked(model, {"fc": [as_there]}), "fc")["LinearDeadNeuronNum"] == pytest.approx(2 / 5)
    assert at_zero(tracked(model, {"fc": ["LinearDeadNeuronNum"]}), "fc")["LinearDeadNeuronNum"] == pytest.approx(4 / 5)


@metrics("`WeightStatistic` in the examples")
def _statistic() -> None:
    model = new(ResNet)
    with torch.no_grad():
        model.fc.weight[0] = 0.0
    found = at_zero(tracked(model, {"fc": ["WeightStatistic"]}), "fc")["WeightStatistic"]
    w = model.fc.weight.detach().numpy()
    wanted = {"mean": w.mean(), "std": w.std(), "min": w.min(), "max": w.max(), "zeros": 1 / 5}
    assert found == pytest.approx(wanted, rel=1e-4)


# ------------------------------------------------------- metrics of one's own


@metrics("`SingleStepQuantity` with `_compute`")
def _function() -> None:
    @mk.metric("Name", needs="ForwardInput")
    def largest(x: torch.Tensor) -> torch.Tensor:
        return x.abs().max()

    found = at_zero(tracked(new(ResNet), {"conv1": ["Name"]}), "conv1")
    assert found["Name"] == pytest.approx(float(IMAGE.abs().max()))


@metrics("`MultiStepQuantity` with `_compute_ones`, `_compute`")
def _class() -> None:
    @mk.metric("Name", needs="Weight")
    class Steps:
        def __init__(self) -> None:
            self.norms: list[float] = []

        def update(self, w: torch.Tensor) -> None:
            self.norms.append(float(w.norm()))

        def compute(self) -> float:
            return sum(self.norms)

    model = new(ResNet)
    output = tracked(model, {"fc": [["Name", "window(4)"]]}, steps=8)
    four = pytest.approx(4 * norm(model.fc.weight))
    assert output["fc"]["Name"] == {3: four, 7: four}


@metrics("`ForwardInputExtension` · `ForwardOutputExtension`")
def _forward() -> None:
    model = new(ResNet)

    @mk.metric("SeenInput", needs="ForwardInput")
    def of_input(x: torch.Tensor) -> torch.Tensor:
        return x.sum()

    @mk.metric("SeenOutput", needs="ForwardOutput")
    def of_output(y: torch.Tensor) -> torch.Tensor:
        return y.sum()

    found = at_zero(tracked(model, {"conv1": ["SeenInput", "SeenOutput"]}), "conv1")
    assert found["SeenInput"] == pytest.approx(float(IMAGE.sum()), rel=1e-4)
    assert found["SeenOutput"] == pytest.approx(model.conv1(IMAGE).sum().item(), rel=1e-4)


@metrics("`BackwardInputExtension` · `BackwardOutputExtension`")
def _backward() -> None:
    model = new(ResNet)
    kept: list[torch.Tensor] = []
    handle = model.fc.register_full_backward_hook(lambda m, into, out: kept.extend([into[0], out[0]]))

    @mk.metric("SeenInput", needs="BackwardInput")
    def of_input(g: torch.Tensor) -> torch.Tensor:
        return g.norm()

    @mk.metric("SeenOutput", needs="BackwardOutput")
    def of_output(g: torch.Tensor) -> torch.Tensor:
        return g.norm()

    found = at_zero(tracked(model, {"fc": ["SeenInput", "SeenOutput"]}), "fc")
    handle.remove()
    assert [found["SeenInput"], found["SeenOutput"]] == pytest.approx([norm(each) for each in kept], rel=1e-5)


@metrics("`ForwardInputEigOfCovExtension`")
def _spectrum() -> None:
    @mk.metric("Seen", needs="ForwardInputEigOfCov")
    def spectrum(eigenvalues: torch.Tensor) -> torch.Tensor:
        return eigenvalues

    found = at_zero(tracked(new(ResNet), {"conv1": ["Seen"]}), "conv1")["Seen"]
    assert found == pytest.approx(descending(IMAGE), rel=1e-4)
    assert {"ForwardInput", "BackwardOutput", "Weight", "Loss"} <= mk.monitoring.NEEDS.keys()


@metrics("`BackwardOutputEigOfCovExtension`")
def _spectrum_of_gradient() -> None:
    model, kept = new(ResNet), []
    handle = model.layer1[0].conv1.register_full_backward_hook(lambda m, into, out: kept.append(out[0]))

    @mk.metric("Seen", needs="BackwardOutputEigOfCov")
    def spectrum(eigenvalues: torch.Tensor) -> torch.Tensor:
        return eigenvalues[0]

    found = at_zero(tracked(model, {"layer1.0.conv1": ["Seen"]}), "layer1.0.conv1")["Seen"]
    handle.remove()
    assert found == pytest.approx(descending(kept[0])[0], rel=1e-4)
