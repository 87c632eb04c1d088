"""Every metric through a monitor, on trainings in four precisions, against what plain hooks of our own have seen."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.monitoring.metrics import METRICS
from monitoring.metrics.metric_comparison import compare
from monitoring.metrics.metric_references import REFERENCES
from monitoring.metrics.metric_samples import Sample, as_array, weight

STEPS = 9
WINDOW = 3
PRECISIONS = ("float32", "autocast", "float16", "bfloat16")
LAST = {nn.Linear, nn.LayerNorm, nn.MultiheadAttention, nn.TransformerEncoderLayer}
WITHOUT_WEIGHT = (nn.ReLU, nn.TransformerEncoderLayer)


class Images(nn.Module):
    """Convolutions and batch norm, one of them frozen, with a ReLU that overwrites."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.act = nn.ReLU(inplace=True)
        self.frozen = nn.Conv2d(8, 6, 3, stride=2).requires_grad_(False)
        self.head = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.frozen(self.act(self.norm(self.first(x))))
        return self.head(x.mean((2, 3)))


class Tokens(nn.Module):
    """An encoder layer, after a linear layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.reused = nn.Linear(12, 12)
        self.act = nn.ReLU()
        self.encoder = nn.TransformerEncoderLayer(12, 3, 20, dropout=0.0, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.encoder(self.reused(self.act(self.reused(x))))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], tuple[str, ...]]] = {
    "images": (Images, (6, 3, 8, 8), ("first", "norm", "act", "frozen", "head")),
    "tokens": (
        Tokens,
        (7, 5, 12),
        ("reused", "encoder", "encoder.self_attn", "encoder.linear1", "encoder.norm1", "encoder.linear2"),
    ),
}


class Seen:
    """What plain hooks see of some modules, copied at once."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], autocast: bool) -> None:
        self.autocast = autocast
        self.modules = {name: model.get_submodule(name) for name in names}
        self.samples: dict[str, list[list[Sample]]] = {name: [] for name in names}  # by step and call
        self.calls: dict[str, list[dict[str, Any]]] = {}

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        self.calls = {name: [] for name in self.modules}
        handles = []
        for name, module in self.modules.items():
            handles.append(module.register_forward_pre_hook(self._before(name)))
            handles.append(module.register_forward_hook(self._after(name)))
        yield
        for handle in handles:
            handle.remove()

    def _before(self, name: str) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Any, ...]) -> None:
            self.calls[name].append({"x": args[0].detach().clone(), "asks": args[0].requires_grad})

        return hook

    def _after(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, _: tuple[Any, ...], output: Any) -> None:
            call, y = self.calls[name][-1], output[0] if isinstance(output, tuple) else output
            call.update(y=y.detach().clone(), module=without_hooks(module))
            y.register_hook(lambda g: call.update(g=g.clone()))

        return hook

    def close(self, loss: float) -> None:
        """The gradients of the weights are there."""
        for name, module in self.modules.items():
            own = weight(module)
            w = None if own is None else own.detach().clone()
            wg = None if own is None or own.grad is None else own.grad.clone()
            axis = -1 if type(module) in LAST else 1
            self.samples[name].append(
                [
                    Sample(c["module"], axis % c["x"].dim(), c["x"], c["y"], c["g"], self._own_gradient(c), w, wg, loss)
                    for c in self.calls[name]
                ]
            )

    def _own_gradient(self, call: dict[str, Any]) -> torch.Tensor | None:
        """The gradient at the input that comes through the module alone: the module is run once more."""
        if not call["asks"]:
            return None
        module, x = copy.deepcopy(call["module"]), call["x"].clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            own = x.clone()  # a module may overwrite it
            y = (
                module(own, own, own, need_weights=False)[0]
                if isinstance(module, nn.MultiheadAttention)
                else module(own)
            )
        return torch.autograd.grad(y, x, call["g"])[0]


def without_hooks(module: nn.Module) -> nn.Module:
    found = copy.deepcopy(module)
    for part in found.modules():
        part._forward_hooks.clear()
        part._forward_pre_hooks.clear()
    return found


def names_for(module: nn.Module) -> list[Any]:
    """The metrics that have a value for a module, those of several steps over windows."""
    found: list[Any] = []
    for name in REFERENCES:
        kind = METRICS[name]
        if "TID" in name and not isinstance(module, nn.BatchNorm2d):
            continue
        if name == "GradientNoiseScale" and not isinstance(module, nn.Linear | nn.Conv2d):
            continue
        found.append([name, f"window({WINDOW})"] if kind.multi_step else name)
    return found


@cache
def trained(model_name: str, precision: str) -> tuple[dict[str, Any], Seen]:
    """What the monitor gives, and what our hooks saw."""
    make, shape, names = MODELS[model_name]
    torch.manual_seed(3)
    model = make()
    if precision in ("float16", "bfloat16"):
        model.to(getattr(torch, precision))
    dtype = next(model.parameters()).dtype
    autocast = precision == "autocast"
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.05)
    seen = Seen(model, names, autocast)
    config = {name: names_for(module) for name, module in seen.modules.items()}
    with mk.Monitor(model, config) as monitor:
        for step in range(STEPS):
            data = (torch.randn(shape) + 0.2).to(dtype)
            with seen.step(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                y = model(data)
                loss = (y.float() - 0.5).square().mean() * 4
            optimizer.zero_grad()
            loss.backward()
            monitor.log({"loss": loss.item()})
            seen.close(loss.item())
            monitor.track(step)
            optimizer.step()
        output = monitor.get_output()
        assert all("Condition" in name and "rank" in reason for (_, name), reason in monitor.reasons.items())
    return output, seen


CASES = [
    (model, module, precision)
    for model, (_, _, names) in MODELS.items()
    for module in names
    for precision in PRECISIONS
]


@pytest.mark.parametrize(("model", "module", "precision"), CASES)
@pytest.mark.parametrize("name", REFERENCES)
def test_a_monitor_gives_what_plain_hooks_see(name: str, model: str, module: str, precision: str) -> None:
    output, seen = trained(model, precision)
    found = output[module].get(name)
    owner = seen.modules[module]
    calls = [list(call) for call in zip(*seen.samples[module], strict=True)]  # by call and step
    configured = [entry if isinstance(entry, str) else entry[0] for entry in names_for(owner)]
    if name not in configured or all(has_no_value(name, steps[-1]) for steps in calls):
        assert found is None
    elif METRICS[name].needs in (("Weight",), ("WeightGrad",), ("Loss",)):
        compare_steps(name, found, calls[0])
    else:
        for at, steps in enumerate(calls):
            of_call = {step: value[at] if len(calls) > 1 else value for step, value in found.items()}
            if has_no_value(name, steps[-1]):
                assert set(of_call.values()) == {None}
            else:
                compare_steps(name, of_call, steps)


def has_no_value(name: str, sample: Sample) -> bool:
    """What the module has not: a weight, a gradient of it, an input that asks for a gradient."""
    missing = {"Weight": sample.w is None, "WeightGrad": sample.wg is None, "BackwardInput": sample.gx is None}
    return any(missing.get(need, False) for need in METRICS[name].needs)


def compare_steps(name: str, found: dict[int, Any], steps: list[Sample]) -> None:
    first = {"WeightParamJump": 1, "LossSpike": 5}.get(name, 0)
    every = range(WINDOW - 1, STEPS, WINDOW) if METRICS[name].multi_step else range(first, STEPS)
    # before the first step there is no weight to compare with
    every = range(1, STEPS) if name == "UpdateRatio" and 0 not in found else every
    assert list(found) == list(every)
    for step in (every[0], every[-1]):
        if name == "UpdateRatio" and step == 0:
            assert found[0] == 0.0
            continue
        start = step - WINDOW + 1 if METRICS[name].multi_step else 0
        taken = steps[start : step + 1]
        compare(name, as_array(found[step]), REFERENCES[name](taken), taken)


def test_the_trainings_are_worth_watching() -> None:
    """Reused, frozen, overwritten, and in the precision that they say."""
    images, tokens = trained("images", "float32")[1], trained("tokens", "autocast")[1]
    assert len(tokens.samples["reused"][0]) == 2
    assert images.samples["frozen"][0][0].wg is None
    assert images.samples["act"][0][0].x.min() < 0 <= images.samples["act"][0][0].y.min()
    assert tokens.samples["reused"][0][0].y.dtype is torch.bfloat16
    for precision in ("float16", "bfloat16"):
        sample = trained("images", precision)[1].samples["first"][0][0]
        assert {t.dtype for t in (sample.x, sample.y, sample.g, sample.w, sample.wg)} == {getattr(torch, precision)}
