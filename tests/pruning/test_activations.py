"""The criteria that run batches: activations and curvature, against what the model itself computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, prune

import modulekg_widgets as mk
from axes.checks import seeded
from modulekg_widgets.engine.pruning.importance.activations import Activation
from modulekg_widgets.engine.pruning.importance.loss_criteria import Hessian
from pruning.criterion_samples import Heads, randomised, scores, tokens, traced_pair

Tensor = torch.Tensor


def test_activation_reads_what_the_next_layer_reads() -> None:
    _, graph, _ = traced_pair()
    # conv1 gives [3, -3] and [-7, 11], the normalisation doubles and halves with a sign, the ReLU cuts
    rectified = np.array([[6.0, 0.0], [3.5, 0.0]]) / np.sqrt(1 + 1e-5)
    means = rectified.mean(1)
    np.testing.assert_allclose(scores(graph, "activation")["conv1.out"], means / means.mean(), rtol=1e-5)
    np.testing.assert_allclose(scores(graph, Activation(statistic="nonzero"))["conv1.out"], [1, 1])
    deviations = rectified.std(1)
    found = scores(graph, Activation(statistic="std"))["conv1.out"]
    np.testing.assert_allclose(found, deviations / deviations.mean(), rtol=1e-4)
    roots = np.sqrt((rectified**2).mean(1))
    found = scores(graph, Activation(statistic="rms"))["conv1.out"]
    np.testing.assert_allclose(found, roots / roots.mean(), rtol=1e-5)


def test_activation_over_batches_of_other_sizes() -> None:
    _, graph, x = traced_pair()
    batches = [(x.repeat(3, 1, 1, 1), torch.zeros(3)), [torch.ones(1, 1, 1, 2), torch.zeros(1)]]
    # 1 gives 2 and -4 before the normalisation, hence 4 and 2 behind it; eight values in all
    means = np.array([3 * 6.0 + 2 * 4.0, 3 * 3.5 + 2 * 2.0])
    found = scores(graph, Activation(batches))["conv1.out"]
    np.testing.assert_allclose(found, means / means.mean(), rtol=1e-5)


def test_activation_of_heads_is_read_before_the_output_projection() -> None:
    model, x = randomised(seeded(Heads)), tokens().double()
    assert isinstance(model, Heads)
    found = scores(mk.trace(model, (x[:1],)), Activation([x]))
    y = model.norm(model.embed(x))
    weight, bias = model.attention.in_proj_weight, model.attention.in_proj_bias
    q, k, v = (part.unflatten(-1, (4, 6)).transpose(1, 2) for part in F.linear(y, weight, bias).chunk(3, -1))
    context = ((q @ k.transpose(-1, -2) / 6**0.5).softmax(-1) @ v).detach().abs()
    for name, dims in (("attention.heads", (0, 2, 3)), ("attention.head_dim", (0, 1, 2))):
        means = context.mean(dims).numpy()
        np.testing.assert_allclose(found[name], means / means.mean(), rtol=1e-9)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(5, 6)
        self.lstm = nn.LSTM(6, 4, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(self.embed(x))[0][:, -1])


def masked() -> nn.Module:
    model = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), parametrizations.weight_norm(nn.Linear(6, 4)), nn.Linear(4, 2))
    prune.random_unstructured(model[0], "weight", 0.5)
    prune.random_unstructured(model[3], "weight", 0.5)
    return model


@pytest.mark.parametrize("build", [Recurrent, Heads, masked])
def test_activation_reaches_every_axis_whatever_the_batch(build: Any) -> None:
    model = randomised(seeded(build))
    graph = mk.trace(model, (tokens(1).double(),))
    found, plain = scores(graph, Activation([tokens(3).double()])), scores(graph, "l1")
    assert len(found) > 1
    assert not any(np.allclose(found[name], plain[name]) for name in found)  # else the fallback served


def test_an_axis_that_no_batch_reaches_goes_by_magnitude() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
            self.other = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))

        def forward(self, x: Tensor) -> Tensor:
            return self.one(x) if len(x) == 2 else self.other(x)

    graph = mk.trace(randomised(Branches()), (torch.ones(2, 3, dtype=torch.float64),))
    found = scores(graph, Activation([torch.ones(5, 3, dtype=torch.float64)]))
    np.testing.assert_array_equal(found["one.0.out"], scores(graph, "l1")["one.0.out"])


# ---------------------------------------------------------------- curvature


def test_hessian_is_exact_where_no_two_weights_meet() -> None:
    class Separate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(2, 3, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.first(x).pow(4).sum(-1)

    model, x = randomised(Separate()), torch.eye(2, dtype=torch.float64)
    found = scores(mk.trace(model, (x,)), Hessian([x, 2 * x], lambda output: output.sum()))["first.out"]
    weight = model.first.weight.detach().numpy()
    # the fourth power of s·w has the second derivative 12·s⁴·w², and the batches are averaged
    np.testing.assert_allclose(found, (0.5 * 12 * (1 + 16) / 2 * weight**4).sum(1), rtol=1e-9)


def test_hessian_estimates_the_diagonal_where_they_do() -> None:
    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(2, 3, bias=False)
            self.last = nn.Linear(3, 2, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.tanh(self.first(x)))

    model, x = randomised(Small()), torch.tensor([[0.5, -1.0], [1.5, 0.3]], dtype=torch.float64)
    graph = mk.trace(model, (x,))

    def loss(output: Tensor) -> Tensor:
        return output.square().sum()

    def of_both(first: Tensor, last: Tensor) -> Tensor:
        return loss(torch.tanh(x @ first.T) @ last.T)

    weights = (model.first.weight.detach(), model.last.weight.detach())
    full: Any = torch.autograd.functional.hessian(of_both, weights)
    halves = [0.5 * torch.diagonal(full[at][at].reshape(6, 6)).reshape(w.shape) * w**2 for at, w in enumerate(weights)]
    expected = (halves[0].sum(1) + halves[1].sum(0)).abs().numpy()
    found = scores(graph, Hessian([x], loss, samples=1000))["first.out"]
    np.testing.assert_allclose(found, expected, atol=0.1 * expected.max())
    again = scores(graph, Hessian([x], loss, samples=2, seed=5))["first.out"]
    np.testing.assert_array_equal(again, scores(graph, Hessian([x], loss, samples=2, seed=5))["first.out"])
    assert not np.array_equal(again, scores(graph, Hessian([x], loss, samples=2, seed=6))["first.out"])


def test_hessian_of_attention() -> None:
    model, x = randomised(seeded(Heads)), tokens().double()
    graph = mk.trace(model, (x,))
    found = scores(graph, Hessian([x], lambda output: output.square().mean()))
    assert all((values > 0).all() for values in found.values())
