"""Gradients of several backward passes add up as in `.grad`; what is asked for inside is none of the loss."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import modulekg_widgets as mk
from models.functional import Lambda
from monitoring.surroundings import own_metrics

AT_OUTPUT = ["OutputGradSndNorm", "OutputGradHistogram"]


class TwoHeads(nn.Module):
    """A body whose output two heads read."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 2)

    def losses(self, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        t = torch.tanh(h)
        return 100 * self.a(t).square().sum(), self.b(t).square().sum()


def samples() -> tuple[TwoHeads, torch.Tensor]:
    torch.manual_seed(0)
    return TwoHeads(), torch.randn(5, 6)


def norms(values: list[torch.Tensor | None]) -> list[Any]:
    return [None if value is None else pytest.approx(float(value.norm()), rel=1e-5) for value in values]


Passes = Callable[[torch.Tensor, torch.Tensor], None]


def one_after_the_other(first: torch.Tensor, second: torch.Tensor) -> None:
    first.backward(retain_graph=True)
    second.backward()


def all_kept(first: torch.Tensor, second: torch.Tensor) -> None:
    first.backward(retain_graph=True)
    second.backward(retain_graph=True)


def three_times(first: torch.Tensor, second: torch.Tensor) -> None:
    first.backward(retain_graph=True)
    second.backward(retain_graph=True)
    (first * second).backward()


def at_once(first: torch.Tensor, second: torch.Tensor) -> None:
    torch.autograd.backward([first, second])


def with_a_graph_of_gradients(first: torch.Tensor, second: torch.Tensor) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of gradients that hold on to their graph
        first.backward(create_graph=True)
    second.backward()


@pytest.mark.parametrize(
    "passes", [one_after_the_other, all_kept, three_times, at_once, with_a_graph_of_gradients], ids=lambda f: f.__name__
)
def test_gradients_of_several_backward_passes_add_up(passes: Passes) -> None:
    model, x = samples()
    with mk.Monitor(model, {"body": [*AT_OUTPUT, "InputGradSndNorm"]}) as monitor:
        x.requires_grad_()
        h = model.body(x)
        h.retain_grad()
        passes(*model.losses(h))
        monitor.track(0)
    found = monitor.get_output()["body"]
    assert h.grad is not None
    assert x.grad is not None
    assert [found["OutputGradSndNorm"][0], found["InputGradSndNorm"][0]] == norms([h.grad, x.grad])
    assert found["OutputGradHistogram"][0]["high"] == pytest.approx(float(h.grad.max()))
    assert monitor.reasons == {}


def test_the_noise_scale_is_that_of_the_sum() -> None:
    def measured(passes: Passes) -> float:
        model, x = samples()
        with mk.Monitor(model, {"body": ["GradientNoiseScale"]}) as monitor:
            passes(*model.losses(model.body(x)))
            monitor.track(0)
        return monitor.get_output()["body"]["GradientNoiseScale"][0]

    assert measured(one_after_the_other) == pytest.approx(measured(at_once), rel=1e-4)


def test_a_scale_is_taken_out_of_each_gradient() -> None:
    model, x = samples()
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    with mk.Monitor(model, {"body": ["OutputGradSndNorm"]}, scaler=scaler) as monitor:
        h = model.body(x)
        h.retain_grad()
        one_after_the_other(*(scaler.scale(loss) for loss in model.losses(h)))
        monitor.track(0)
    assert [monitor.get_output()["body"]["OutputGradSndNorm"][0]] == norms([h.grad / 64])  # type: ignore[operator]


def test_state_sees_a_step_once() -> None:
    seen: list[float] = []

    class Seen:
        def update(self, g: torch.Tensor) -> None:
            seen.append(float(g.sum()))

        def compute(self) -> float:
            return seen[-1]

    with own_metrics():
        mk.metric("Seen once", needs="BackwardOutput")(Seen)
        model, x = samples()
        with mk.Monitor(model, {"body": ["Seen once"]}) as monitor:
            h = model.body(x)
            one_after_the_other(h.sum(), (2 * h).sum())
            monitor.track(0)
    assert seen == [3.0 * 40]


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_that_run_again_for_each_loss(reentrant: bool) -> None:
    model, x = samples()
    with mk.Monitor(model, {"body": ["OutputGradSndNorm"]}) as monitor:
        t = checkpoint(lambda x: torch.tanh(model.body(x)), x.requires_grad_(), use_reentrant=reentrant)
        one_after_the_other(100 * model.a(t).square().sum(), model.b(t).square().sum())
        monitor.track(0)
    h = model.body(x)
    (true,) = torch.autograd.grad(sum(model.losses(h)), [h])  # type: ignore[arg-type]
    assert [monitor.get_output()["body"]["OutputGradSndNorm"][0]] == norms([true])


def test_each_call_of_an_adversary_has_its_own() -> None:
    """A discriminator sees the real and the false; the generator's loss goes through it, too."""
    torch.manual_seed(0)
    generator, critic, real = nn.Linear(3, 4), nn.Linear(4, 1), torch.randn(5, 4)
    model = nn.ModuleDict({"generator": generator, "critic": critic})
    with mk.Monitor(model, {"*": ["OutputGradSndNorm"]}) as monitor:
        fake = generator(torch.randn(5, 3))
        outputs = [critic(real), critic(fake.detach()), critic(fake)]
        for output in [fake, *outputs]:
            output.retain_grad()
        for loss in (outputs[0].square().mean(), (outputs[1] - 1).square().mean(), outputs[2].mean()):
            loss.backward()
        monitor.track(0)
    found = monitor.get_output()
    assert found["critic"]["OutputGradSndNorm"][0] == norms([output.grad for output in outputs])
    assert [found["generator"]["OutputGradSndNorm"][0]] == norms([fake.grad])


def test_passes_that_came_unannounced_are_nan_with_the_reason() -> None:
    """Nothing that the second pass needs was freed behind the first, which no copy was kept of."""

    model = Lambda(lambda m, x: x + m.by, by=nn.Parameter(torch.ones(3)))
    with mk.Monitor(model, {"": AT_OUTPUT}) as monitor:
        y = model(torch.ones(2, 3))
        y.sum().backward()
        with pytest.warns(RuntimeWarning, match="several backward passes"):
            (3 * y).sum().backward()
        monitor.track(0)
        model(torch.ones(2, 3)).sum().backward()
        monitor.track(1)
    for name in AT_OUTPUT:
        first, second = monitor.get_output()[""][name].values()
        assert first != first
        assert second == second
        assert "retain_graph=True" in monitor.reasons["", name]


# ------------------------------------------------------------------ what is asked for inside


def slope_of(loss: torch.Tensor, *of: torch.Tensor) -> torch.Tensor:
    return sum(each.square().sum() for each in torch.autograd.grad(loss, of, create_graph=True))  # type: ignore[return-value]


@pytest.mark.parametrize("asked", ["input", "weights", "hidden"])
def test_a_penalty_is_no_pass_of_the_loss(asked: str) -> None:
    model, x = samples()
    x.requires_grad_()
    with mk.Monitor(model, {"body": [*AT_OUTPUT, "InputGradSndNorm"]}) as monitor:
        h = model.body(x)
        loss = sum(model.losses(h))
        of = {"input": [x], "weights": list(model.parameters()), "hidden": [h]}[asked]
        total = loss + slope_of(loss, *of)  # type: ignore[arg-type]
        h.retain_grad()
        x.grad = None
        total.backward()
        monitor.track(0)
    found = monitor.get_output()["body"]
    assert [found["OutputGradSndNorm"][0]] == norms([h.grad])
    if asked != "weights":  # a gradient of weights reads the input itself, and what comes so is not the module's own
        assert [found["InputGradSndNorm"][0]] == norms([x.grad])
    assert monitor.reasons == {}


def test_a_penalty_between_two_losses() -> None:
    model, x = samples()
    with mk.Monitor(model, {"body": ["OutputGradSndNorm"]}) as monitor:
        h = model.body(x)
        first, second = model.losses(h)
        (one,) = torch.autograd.grad(first, [h], retain_graph=True)
        first.backward(retain_graph=True)
        (other,) = torch.autograd.grad(second, [h], retain_graph=True)
        second.backward()
        monitor.track(0)
    assert [monitor.get_output()["body"]["OutputGradSndNorm"][0]] == norms([one + other])


def test_gradients_that_only_autograd_grad_asked_for_are_nan_with_the_reason() -> None:
    model, x = samples()
    with mk.Monitor(model, {"body": ["OutputGradSndNorm"]}) as monitor:
        x.requires_grad_()
        torch.autograd.grad(model.losses(model.body(x))[0], [x])
        with pytest.warns(RuntimeWarning, match="OutputGradSndNorm"):
            monitor.track(0)
    value = monitor.get_output()["body"]["OutputGradSndNorm"][0]
    assert value != value
    assert "torch.autograd.grad" in monitor.reasons["body", "OutputGradSndNorm"]


def test_a_training_that_takes_its_gradients_by_autograd_grad_is_measured() -> None:
    model, x = samples()
    with mk.Monitor(model, {"body": ["OutputGradSndNorm"]}) as monitor:
        h = model.body(x)
        gradients: list[torch.Tensor | None] = []
        h.register_hook(lambda g: gradients.append(g))
        torch.autograd.grad(sum(model.losses(h)), list(model.parameters()))  # type: ignore[arg-type]
        monitor.track(0)
    assert [monitor.get_output()["body"]["OutputGradSndNorm"][0]] == norms(gradients)


def test_a_backward_for_some_parameters_counts() -> None:
    model, x = samples()
    with mk.Monitor(model, {"body": ["OutputGradSndNorm"]}) as monitor:
        h = model.body(x)
        h.retain_grad()
        sum(model.losses(h)).backward(inputs=[model.body.bias, h])  # type: ignore[union-attr]
        monitor.track(0)
    assert [monitor.get_output()["body"]["OutputGradSndNorm"][0]] == norms([h.grad])
