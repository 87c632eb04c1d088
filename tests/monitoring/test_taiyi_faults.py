"""The faults of Taiyi that are known: each is a test, on a real model, through the monitor."""

import copy
import io
import math
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import modulekg_widgets as mk
from models.functional import Lambda
from modulekg_widgets.engine.errors import UnknownNameError, UnknownPathError
from monitoring.surroundings import global_hooks, hook_count


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    assert hook_count() == 0


def small_net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def measured(model: nn.Module, config: dict[Any, Any], *inputs: torch.Tensor, **named: torch.Tensor) -> dict[str, Any]:
    """The output after one step of forward and backward."""
    with mk.Monitor(model, config) as monitor:
        model(*inputs, **named).square().sum().backward()
        monitor.track(0)
    return monitor.get_output()


def norm(tensor: torch.Tensor | None) -> float:
    assert tensor is not None
    return float(np.linalg.norm(tensor.detach().double().numpy()))


# ------------------------------------------------------------------ wrong numbers


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_covariance_of_a_convolution_is_over_channels(layout: torch.memory_format) -> None:
    """Taiyi reshaped (N, C, H, W) to (-1, C) without a transpose, which mixes channels."""
    model = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.ReLU(), nn.Conv2d(5, 2, 3))
    x = torch.randn(4, 3, 6, 6) * torch.tensor([1.0, 10.0, 100.0]).view(1, 3, 1, 1)
    x[:, 2] += 5 * x[:, 1]
    config = {"Conv2d": ["InputCovMaxEig", "InputCovStableRank", "InputMean", "InputStd"]}
    output = measured(model, config, x.to(memory_format=layout))
    for path, seen in (("0", x), ("2", model[1](model[0](x)))):
        rows = seen.detach().double().numpy().transpose(0, 2, 3, 1).reshape(-1, seen.shape[1])
        spectrum = np.linalg.eigvalsh(np.cov(rows, rowvar=False))
        assert output[path]["InputCovMaxEig"][0] == pytest.approx(spectrum[-1], rel=1e-4)
        assert output[path]["InputCovStableRank"][0] == pytest.approx(spectrum.sum() / spectrum[-1], rel=1e-4)
        np.testing.assert_allclose(output[path]["InputMean"][0], rows.mean(0), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(output[path]["InputStd"][0], rows.std(0), rtol=1e-3)


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_failed_decomposition_is_nan_with_a_reason(poison: float) -> None:
    """Taiyi went on with made-up eigenvalues."""
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), torch.randn(8, 4)
    x[0, 0] = poison
    asked = ["InputCovMaxEig", "InputCovStableRank", "InputCovCondition", "InputCovCondition50", "RankMe"]
    with mk.Monitor(model, {"0": asked}) as monitor:
        with pytest.warns(RuntimeWarning):
            model(x)
        monitor.track(0)
    for name in asked:
        assert math.isnan(monitor.get_output()["0"][name][0])
        assert monitor.reasons["0", name]


def test_a_solver_that_fails_is_nan_with_a_reason_and_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, solve, fails = nn.Linear(4, 4), torch.randn(8, 4), torch.linalg.eigvalsh, [True]

    def solver(*args: Any, **kwargs: Any) -> torch.Tensor:
        if fails.pop():
            raise torch.linalg.LinAlgError("did not converge")
        return solve(*args, **kwargs)

    monkeypatch.setattr(torch.linalg, "eigvalsh", solver)
    with mk.Monitor(model, {"": ["InputCovMaxEig"]}) as monitor:
        with pytest.warns(RuntimeWarning, match="did not converge"):
            model(x)
        monitor.track(0)
        fails.append(False)
        model(x)
        monitor.track(1)
    values = monitor.get_output()[""]["InputCovMaxEig"]
    assert math.isnan(values[0])
    assert values[1] == pytest.approx(np.linalg.eigvalsh(np.cov(x.double().numpy(), rowvar=False))[-1], rel=1e-5)
    assert "did not converge" in monitor.reasons["", "InputCovMaxEig"]


def test_weight_param_jump_counts_signs_that_changed() -> None:
    """Taiyi compared the weights with themselves: always 0."""
    model = nn.Sequential(nn.Linear(4, 3))
    flips = [0, 5, 2, 0]
    with mk.Monitor(model, {"0": ["WeightParamJump"]}) as monitor:
        for step, count in enumerate(flips):
            with torch.no_grad():
                model[0].weight.view(-1)[:count] *= -1
            model(torch.randn(2, 4)).sum().backward()
            monitor.track(step)
    assert monitor.get_output()["0"]["WeightParamJump"] == {1: 5.0, 2: 2.0, 3: 0.0}


def test_dead_relu_is_found() -> None:
    """Taiyi reported 0 for channels that never fire."""
    model = nn.Sequential(nn.Conv2d(2, 4, 1), nn.ReLU(), nn.Flatten(), nn.Linear(36, 5), nn.ReLU())
    with torch.no_grad():
        model[0].bias[:3] = -100.0
        model[3].bias[0] = -1000.0
    x = torch.rand(2, 2, 3, 3)
    output = measured(model, {"ReLU": ["DeadNeuronFraction", "LinearDeadNeuronNum"]}, x)
    assert output["1"] == {"DeadNeuronFraction": {0: 0.75}, "LinearDeadNeuronNum": {0: 0.75}}
    dead = float((model(x) == 0).all(0).float().mean())
    assert output["4"]["DeadNeuronFraction"][0] == pytest.approx(dead)
    assert dead >= 0.2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_norms_of_half_precision_are_finite(dtype: torch.dtype) -> None:
    """Taiyi's sum of squares left the range of fp16."""
    model = nn.Sequential(nn.Linear(64, 64).to(dtype))
    x = torch.full((32, 64), 300.0, dtype=dtype)
    with mk.Monitor(model, {"0": ["InputSndNorm", "OutputSndNorm", "OutputGradSndNorm", "WeightNorm"]}) as monitor:
        y = model(x)
        y.backward(torch.full_like(y, 400.0))
        monitor.track(0)
    values = monitor.get_output()["0"]
    assert values["InputSndNorm"][0] == pytest.approx(norm(x), rel=1e-5)
    assert values["OutputSndNorm"][0] == pytest.approx(norm(y), rel=1e-5)
    assert values["OutputGradSndNorm"][0] == pytest.approx(400.0 * math.sqrt(32 * 64), rel=1e-5)
    assert values["WeightNorm"][0] == pytest.approx(norm(model[0].weight), rel=1e-5)
    assert values["InputSndNorm"][0] ** 2 > torch.finfo(torch.float16).max


# ------------------------------------------------------------------ configuration


@pytest.mark.parametrize("text", ["linear(0,0)", "linear(0)"])
def test_an_interval_of_0_is_every_step(text: str) -> None:
    """Taiyi divided by it."""
    model = small_net()
    with mk.Monitor(model, {"0": ["WeightNorm", text]}) as monitor:
        for step in range(4):
            monitor.track(step)
    assert list(monitor.get_output()["0"]["WeightNorm"]) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("config", "kind", "hint"),
    [
        ({"layer1.conv3": ["WeightNorm"]}, UnknownPathError, r"layer1\.conv"),
        ({"Conv2D": ["WeightNorm"]}, UnknownPathError, "Conv2d"),
        ({"lyaer*": ["WeightNorm"]}, UnknownPathError, "lyaer"),
        ({nn.Conv1d: ["WeightNorm"]}, UnknownPathError, "Conv2d"),
        ({"head": ["WeightNrom"]}, UnknownNameError, "WeightNorm"),
        ({"head": ["WeightNorm", "MeanTid"]}, UnknownNameError, "MeanTID"),
        ({"head": ["WeightNorm"], "haed": ["WeightNorm"]}, UnknownPathError, "head"),
        ({"head": ["WeightNorm", "linaer(3)"]}, mk.ModuleKGError, "linear"),
    ],
)
def test_a_typo_is_an_error_with_the_nearest_names(config: dict[Any, Any], kind: type[Exception], hint: str) -> None:
    """Taiyi ignored what it did not know."""
    model = nn.ModuleDict({"layer1": nn.ModuleDict({"conv": nn.Conv2d(1, 1, 1)}), "head": nn.Linear(4, 4)})
    before = global_hooks()
    with pytest.raises(kind, match=hint):
        mk.Monitor(model, config)
    assert global_hooks() == before


def test_overlapping_keys_add_up() -> None:
    """Taiyi kept the last one only."""
    model = small_net()
    config = {
        "0": ["WeightNorm"],
        nn.Linear: ["OutputSndNorm", ["WeightNorm", "linear(2)"]],
        "Linear": ["InputSndNorm"],
        "*": ["OutputSndNorm"],
    }
    with mk.Monitor(model, config) as monitor:
        for step in range(3):
            model(torch.randn(2, 4))
            monitor.track(step)
    output = monitor.get_output()
    assert {path: sorted(metrics) for path, metrics in output.items()} == {
        "": ["OutputSndNorm"],
        "0": ["InputSndNorm", "OutputSndNorm", "WeightNorm"],
        "1": ["OutputSndNorm"],
        "2": ["InputSndNorm", "OutputSndNorm", "WeightNorm"],
    }
    assert list(output["0"]["WeightNorm"]) == [0, 1, 2]
    assert list(output["2"]["WeightNorm"]) == [0, 2]
    keys = [(r.module, r.metric, r.step) for r in monitor.readings()]
    assert len(keys) == len(set(keys))  # what two keys ask for is measured once


# ------------------------------------------------------------------ models that crashed it


def test_frozen_layers() -> None:
    model = small_net()
    model[0].requires_grad_(False)
    everything = ["InputSndNorm", "OutputSndNorm", "OutputGradSndNorm", "InputGradSndNorm", "WeightNorm"]
    output = measured(model, {"Linear": [*everything, "WeightGradNorm", "UpdateRatio"]}, torch.randn(3, 4))
    assert sorted(output["0"]) == ["InputSndNorm", "OutputSndNorm", "UpdateRatio", "WeightNorm"]
    assert output["0"]["UpdateRatio"][0] == 0.0
    assert output["2"]["WeightGradNorm"][0] == pytest.approx(norm(model[2].weight.grad), rel=1e-5)
    assert "InputGradSndNorm" not in output["2"]  # nothing before it needs a gradient


class ByKeyword(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, *, hidden: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.inner(input=hidden) * scale


def test_calls_by_keyword_only() -> None:
    model, x = ByKeyword(), torch.randn(3, 4, requires_grad=True)
    metrics = ["InputSndNorm", "OutputSndNorm", "OutputGradSndNorm", "InputGradSndNorm"]
    output = measured(model, {"*": metrics}, hidden=x, scale=2.0)
    y = model(hidden=x, scale=2.0)
    at_inner = 2.0 * 2.0 * y.detach()
    for path, seen, gradient in (("", y, 2.0 * y), ("inner", y / 2.0, at_inner)):
        assert output[path]["InputSndNorm"][0] == pytest.approx(norm(x), rel=1e-5)
        assert output[path]["OutputSndNorm"][0] == pytest.approx(norm(seen), rel=1e-5)
        assert output[path]["OutputGradSndNorm"][0] == pytest.approx(norm(gradient), rel=1e-5)
        assert output[path]["InputGradSndNorm"][0] == pytest.approx(norm(x.grad), rel=1e-5)


NAMES = ("output", "input", "step", "module", "model", "weight", "gradient", "name", "metric", "forward_hook", "0")


def test_submodules_with_the_names_of_attributes() -> None:
    """Taiyi set such attributes on the modules."""
    model = nn.ModuleDict({name: nn.Linear(4, 4) for name in NAMES})
    x = torch.randn(3, 4)
    with mk.Monitor(model, {"Linear": ["InputSndNorm", "OutputSndNorm", "OutputGradSndNorm", "WeightNorm"]}) as monitor:
        y = x
        for layer in model.values():
            y = layer(y)
        y.sum().backward()
        monitor.track(0)
    output = monitor.get_output()
    assert sorted(output) == sorted(NAMES)
    for name in NAMES:
        assert output[name]["WeightNorm"][0] == pytest.approx(norm(model[name].weight), rel=1e-5)
        assert len(output[name]) == 4
    assert [type(child) for child in model.values()] == [nn.Linear] * len(NAMES)


@pytest.mark.parametrize("weights", [True, False])
def test_a_projection_that_is_never_called_as_a_module(weights: bool) -> None:
    model, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 5, 8)
    metrics = ["OutputSndNorm", "OutputGradSndNorm", "WeightNorm", "WeightGradNorm"]
    with mk.Monitor(model, {"*": metrics}) as monitor:
        y = model(x, x, x, need_weights=weights)[0]
        y.square().sum().backward()
        monitor.track(0)
    output = monitor.get_output()
    assert sorted(output["out_proj"]) == ["WeightGradNorm", "WeightNorm"]
    assert output["out_proj"]["WeightGradNorm"][0] == pytest.approx(norm(model.out_proj.weight.grad), rel=1e-5)
    assert output[""]["OutputSndNorm"][0] == pytest.approx(norm(y), rel=1e-5)
    assert monitor.unmeasured() == [("out_proj", "OutputSndNorm"), ("out_proj", "OutputGradSndNorm")]


# ------------------------------------------------------------------ values of the wrong call


def test_a_branch_that_was_not_run_has_no_value_at_that_step() -> None:
    """Taiyi showed the tensors of the last step that had run it."""
    model = Lambda(lambda m, x, left: (m.left if left else m.right)(x), left=nn.Linear(4, 4), right=nn.Linear(4, 4))
    metrics = ["InputSndNorm", "OutputSndNorm", "OutputGradSndNorm", "WeightGradNorm", "GradientNoiseScale"]
    went_left = [True, False, False, True, False]
    with mk.Monitor(model, {"Linear": metrics}) as monitor:
        for step, left in enumerate(went_left):
            model.zero_grad()
            model(torch.randn(3, 4), left).square().sum().backward()
            monitor.track(step)
    output = monitor.get_output()
    for name in metrics:
        assert list(output["left"][name]) == [step for step, left in enumerate(went_left) if left]
        assert list(output["right"][name]) == [step for step, left in enumerate(went_left) if not left]


@pytest.mark.parametrize("between", ["before the step", "within the step"])
def test_an_eval_pass_does_not_overwrite_train_values(between: str) -> None:
    model, x, other = small_net(), torch.randn(3, 4), 100 * torch.randn(7, 4)

    def evaluate() -> None:
        model.eval()
        with torch.no_grad():
            model(other)
        model.train()

    with mk.Monitor(model, {"0": ["InputSndNorm", "OutputSndNorm", "OutputGradSndNorm"]}) as monitor:
        if between == "before the step":
            evaluate()
        loss = model(x).sum()
        if between == "within the step":
            evaluate()
        loss.backward()
        monitor.track(0)
    values = monitor.get_output()["0"]
    assert values["InputSndNorm"] == {0: pytest.approx(norm(x), rel=1e-5)}
    assert values["OutputSndNorm"] == {0: pytest.approx(norm(model[0](x)), rel=1e-5)}
    assert list(values["OutputGradSndNorm"]) == [0]
    in_eval = monitor.get_output("eval")["0"]
    assert in_eval == {
        "InputSndNorm": {0: pytest.approx(norm(other), rel=1e-5)},
        "OutputSndNorm": {0: pytest.approx(norm(model[0](other)), rel=1e-5)},
    }
    table = monitor.frame()
    assert sorted(table.phase) == ["eval"] * 2 + ["train"] * 3


class Reusing(nn.Module):
    def __init__(self, times: int) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.times = times

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.times):
            x = self.layer(x).tanh()
        return x


def test_a_reused_module_has_one_value_per_call_in_the_order_of_the_calls() -> None:
    """Taiyi paired the input of the first call with the gradient of the last."""
    model, x = Reusing(4), torch.randn(3, 4, requires_grad=True)
    names = ["InputSndNorm", "OutputSndNorm", "OutputGradSndNorm", "InputGradSndNorm"]
    output, inputs, outputs, h = measured(model, {"layer": names}, x)["layer"], [], [], x
    for _ in range(4):
        inputs.append(h)
        outputs.append(F.linear(h, model.layer.weight, model.layer.bias))
        h = outputs[-1].tanh()
    gradients = torch.autograd.grad(h.square().sum(), [*outputs, *inputs])
    expected = (inputs, outputs, gradients[:4], gradients[4:])
    for name, tensors in zip(names, expected, strict=True):
        assert output[name][0] == pytest.approx([norm(tensor) for tensor in tensors], rel=1e-5)


# ------------------------------------------------------------------ hooks and copies


def test_hooks_are_gone_after_exit() -> None:
    model = small_net()
    before = global_hooks()
    with mk.Monitor(model, {"*": ["InputSndNorm", "OutputGradSndNorm", "InputGradSndNorm"]}) as monitor:
        assert hook_count() > 0
        kept = model(torch.randn(2, 4)).sum()
        monitor.track(0)
    assert global_hooks() == before
    assert not any(value for module in model.modules() for name, value in vars(module).items() if "hooks" in name)
    kept.backward()  # a graph of the time of the monitor
    assert len(list(monitor.readings())) == 4


def test_copies_and_pickles_of_the_model_work_and_are_not_measured() -> None:
    model, x = small_net(), torch.randn(2, 4)
    with mk.Monitor(
        model, {"*": ["InputSndNorm", "OutputGradSndNorm", "InputGradSndNorm", "WeightGradNorm"]}
    ) as monitor:
        model(x).sum().backward()
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        twins = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(file, weights_only=False)]
        for twin in twins:
            assert not any(value for part in twin.modules() for name, value in vars(part).items() if "hooks" in name)
            twin(100 * x).sum().backward()
        monitor.track(0)
        state = pickle.dumps(model.state_dict())
    values = monitor.get_output()
    assert isinstance(values["0"]["InputSndNorm"][0], float)  # one call: that of the model itself
    assert values["0"]["InputSndNorm"][0] == pytest.approx(norm(x), rel=1e-5)
    assert state == pickle.dumps(model.state_dict())
