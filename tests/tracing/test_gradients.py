"""Models whose forward takes gradients itself: forces, residuals of equations, steps of optimizers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import modulekg_widgets as mk
from checks.model_state import unchanged
from models.functional import Lambda
from modulekg_widgets.engine.errors import TraceError

grad = torch.autograd.grad


def forces(net: EnergyMLP, x: Tensor) -> Any:
    x = x.requires_grad_(True)
    energy = net.energy(x).sum()
    return energy, -grad(energy, x, create_graph=net.training)[0]


def forces_with_gradients_on(net: EnergyMLP, x: Tensor) -> Any:
    with torch.enable_grad():
        x = x.detach().requires_grad_(True)
        return grad(net.energy(x, F.softplus, F.silu).sum(), x)[0]


def laplacian(net: EnergyMLP, x: Tensor) -> Any:
    x = x.clone().requires_grad_(True)
    u = net.energy(x)
    slope = grad(u.sum(), x, create_graph=True)[0]
    return u, sum(grad(slope[:, at].sum(), x, create_graph=True)[0][:, at] for at in range(3))


def by_backward(net: EnergyMLP, x: Tensor) -> Any:
    x = x.detach().clone().requires_grad_(True)
    net.energy(x, torch.sin, torch.tanh).sum().backward(inputs=[x])
    return x.grad


def penalty(net: EnergyMLP, x: Tensor) -> Any:
    x = x.detach().requires_grad_()
    y = net.energy(x, F.elu, lambda h: F.leaky_relu(h, 0.2))
    return y, (grad(y.sum(), x, create_graph=True)[0].norm(2, dim=1) - 1).square()


def a_step_inside(net: EnergyMLP, x: Tensor) -> Any:
    loss = net.energy(x).square().mean()
    weight = net.b.weight - 0.5 * grad(loss, net.b.weight, create_graph=True)[0]
    return net.c(torch.tanh(F.linear(torch.tanh(net.a(x)), weight, net.b.bias)))


def of_functions(net: EnergyMLP, x: Tensor) -> Any:
    return torch.func.grad(lambda given: net.energy(given).sum())(x)


class EnergyMLP(nn.Module):
    def __init__(self, give: Callable[[EnergyMLP, Tensor], Any]) -> None:
        super().__init__()
        self.give = give
        self.a, self.b, self.c = nn.Linear(3, 16), nn.Linear(16, 12), nn.Linear(12, 1)

    def energy(
        self, x: Tensor, first: Callable[..., Tensor] = torch.tanh, second: Callable[..., Tensor] = torch.tanh
    ) -> Tensor:
        return self.c(second(self.b(first(self.a(x)))))

    def forward(self, x: Tensor) -> Any:
        return self.give(self, x)


class Pictures(nn.Module):
    """Gradients through convolutions and normalisations."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.b = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 12, 3, padding=1)
        self.last, self.out = nn.LayerNorm(12), nn.Linear(12, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x.clone().requires_grad_(True)
        h = self.b(F.gelu(self.norm(self.a(x)))).relu().mean((2, 3))
        return grad(self.out(self.last(h)).sum(), x, create_graph=True)[0]


GIVES = [forces, forces_with_gradients_on, laplacian, by_backward, penalty, a_step_inside, of_functions]


def net(give: Callable[[EnergyMLP, Tensor], Any], training: bool) -> tuple[EnergyMLP, Tensor]:
    torch.manual_seed(0)
    return EnergyMLP(give).train(training), torch.randn(5, 3)


def flat(output: Any) -> list[Tensor]:
    return [each.detach() for each in (output if isinstance(output, tuple) else (output,))]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("give", GIVES, ids=lambda give: give.__name__)
def test_a_model_that_takes_gradients_is_traced_proved_and_cut(give: Callable[..., Any], training: bool) -> None:
    model, x = net(give, training)
    with unchanged(model, x):
        graph = mk.trace(model, x)
    assert graph.unknown == []
    assert {axis.name for axis in graph.axes.free} == {"a.out", "b.out"}
    assert set(graph.axes.verify().proved) == {"a.out", "b.out"}
    for got, wanted in zip(flat(graph.forward(x.clone())), flat(model(x.clone())), strict=True):
        assert torch.allclose(got, wanted, atol=1e-6)
    shapes = [each.shape for each in flat(model(x.clone()))]
    with unchanged(model, x):
        plan = mk.plan(graph, ratio=0.5)
    plan.cut(model)
    assert (model.a.out_features, model.b.out_features) == (8, 6)
    assert [each.shape for each in flat(model(x.clone()))] == shapes


def test_the_cut_model_has_the_forces_of_the_masked_one() -> None:
    model, x = net(forces, False)
    plan = mk.plan(mk.trace(model, x), ratio=0.5)
    masked = copy.deepcopy(model)
    plan.cut(model)
    plan.mask(masked)
    for got, wanted in zip(flat(model(x.clone())), flat(masked(x.clone())), strict=True):
        assert torch.allclose(got, wanted, atol=1e-6)


def test_gradients_through_convolutions_and_normalisations() -> None:
    torch.manual_seed(0)
    model, x = Pictures().eval(), torch.randn(2, 1, 6, 6)
    graph = mk.trace(model, x)
    assert graph.unknown == []
    assert {axis.name for axis in graph.axes.free} == {"a.out", "b.out"}
    assert graph.axes.verify().ok
    mk.plan(graph, ratio=0.5).cut(model)
    assert (model.a.out_channels, model.b.out_channels, model(x).shape) == (4, 6, x.shape)


class NeedsPlainTensors(nn.Module):
    """Runs as it is called, and not while anybody listens."""

    def forward(self, x: Tensor) -> Tensor:
        if (
            torch.overrides._get_current_function_mode_stack()
            or torch.utils._python_dispatch._len_torch_dispatch_stack()
        ):
            raise RuntimeError("this kernel runs alone")
        return x


def test_that_the_model_raises_itself_is_only_said_where_it_does() -> None:
    with pytest.raises(TraceError, match=r"run model\(\.\.\.\) with them to see the same error"):
        mk.trace(Lambda(lambda m, x: x @ torch.ones(7, 7)), torch.rand(2, 3))
    with pytest.raises(TraceError, match=r"the model itself runs with them, but not while its operators are recorded"):
        mk.trace(NeedsPlainTensors(), torch.rand(2, 3))
