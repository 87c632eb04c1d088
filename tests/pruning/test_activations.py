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
from models import seeded
from models.recurrent import SequenceClassifier
from modulekg_widgets.engine.pruning.importance.activations import Activation
from modulekg_widgets.engine.pruning.importance.loss_criteria import Hessian
from pruning.criterion_samples import Heads, randomised, scores, tokens, traced_pair

Tensor = torch.Tensor


def test_activation_reads_what_the_next_layer_reads() -> None:
    _, graph, _ = traced_pair()
    # conv1 gives [3, -3] and [-7, 11], the normalisation doubles and halves with a sign, the ReLU cuts
    rectified = np.array([[6.0, 0.0], [3.5, 0.0]]) / np.sqrt(1 + 1e-5)
    means = rectified.mean(1)
    for statistic, expected in (
        ("mean_abs", means),
        ("nonzero", np.ones(2)),
        ("std", rectified.std(1)),
        ("rms", np.sqrt((rectified**2).mean(1))),
    ):
        found = scores(graph, Activation(statistic=statistic, weighted=False))["conv1.out"]
        np.testing.assert_allclose(found, expected / expected.mean(), rtol=1e-4, err_msg=statistic)


def test_activation_counts_how_strongly_it_is_read() -> None:
    _, graph, _ = traced_pair()
    deviations = np.array([6.0, 3.5])  # of [6, 0] and [3.5, 0], but for a factor
    lengths = np.array([4.0, np.sqrt(8.0)])  # of the columns [4, 0] and [-2, 2] of conv2
    expected = deviations / deviations.mean() * lengths / lengths.mean()
    np.testing.assert_allclose(scores(graph, "activation")["conv1.out"], expected, rtol=1e-4)


def test_where_nothing_varies_magnitude_serves() -> None:
    model = seeded(lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))).double()
    graph = mk.trace(model, (torch.ones(1, 3, dtype=torch.float64),))
    np.testing.assert_array_equal(scores(graph, "activation")["0.out"], scores(graph, "l1")["0.out"])


def test_activation_over_batches_of_other_sizes() -> None:
    _, graph, x = traced_pair()
    batches = [(x.repeat(3, 1, 1, 1), torch.zeros(3)), [torch.ones(1, 1, 1, 2), torch.zeros(1)]]
    # 1 gives 2 and -4 before the normalisation, hence 4 and 2 behind it; eight values in all
    means = np.array([3 * 6.0 + 2 * 4.0, 3 * 3.5 + 2 * 2.0])
    found = scores(graph, Activation(batches, "mean_abs", weighted=False))["conv1.out"]
    np.testing.assert_allclose(found, means / means.mean(), rtol=1e-5)


def test_activation_of_heads_is_read_before_the_output_projection() -> None:
    model, x = randomised(seeded(Heads)), tokens().double()
    assert isinstance(model, Heads)
    found = scores(mk.trace(model, (x[:1],)), Activation([x], "mean_abs", weighted=False))
    y = model.norm(model.embed(x))
    weight, bias = model.attention.in_proj_weight, model.attention.in_proj_bias
    q, k, v = (part.unflatten(-1, (4, 6)).transpose(1, 2) for part in F.linear(y, weight, bias).chunk(3, -1))
    context = ((q @ k.transpose(-1, -2) / 6**0.5).softmax(-1) @ v).detach().abs()
    for name, dims in (("attention.heads", (0, 2, 3)), ("attention.head_dim", (0, 1, 2))):
        means = context.mean(dims).numpy()
        np.testing.assert_allclose(found[name], means / means.mean(), rtol=1e-9)


def recurrent() -> nn.Module:
    rnn = {"num_layers": 2, "bidirectional": True, "batch_first": True}
    return SequenceClassifier(nn.Linear(5, 6), nn.LSTM(6, 4, **rnn), 2)


def masked() -> nn.Module:
    model = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), parametrizations.weight_norm(nn.Linear(6, 4)), nn.Linear(4, 2))
    prune.random_unstructured(model[0], "weight", 0.5)
    prune.random_unstructured(model[3], "weight", 0.5)
    return model


@pytest.mark.parametrize("build", [pytest.param(recurrent, id="Recurrent"), Heads, masked])
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
    # the fourth power of z·s·w has the derivatives 4·(s·w)⁴ and 12·(s·w)⁴ by z at 1, and the batches are averaged
    np.testing.assert_allclose(found, ((6 - 4) * (1 + 16) / 2 * weight**4).sum(1), rtol=1e-9)


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 3, bias=False)
        self.last = nn.Linear(3, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(x)))


def squares(output: Tensor) -> Tensor:
    return output.square().sum()


def test_hessian_is_of_the_factors_on_what_is_read() -> None:
    model, x = randomised(Small()), torch.tensor([[0.5, -1.0], [1.5, 0.3]], dtype=torch.float64)
    graph = mk.trace(model, (x,))
    hidden, last = torch.tanh(x @ model.first.weight.T).detach(), model.last.weight.detach()

    def by_gates(gates: Tensor) -> Tensor:
        return squares((hidden * gates) @ last.T)

    ones = torch.ones(3, dtype=torch.float64)
    first: Any = torch.autograd.functional.jacobian(by_gates, ones)
    second: Any = torch.autograd.functional.hessian(by_gates, ones)
    expected = (0.5 * second.diagonal() - first).abs().numpy()
    found = scores(graph, Hessian([x], squares, samples=3))["first.out"]  # each index alone in a product
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    # this loss is quadratic, so that it is what the loss truly changes by
    rises = [float(by_gates(ones - torch.eye(3)[at]) - by_gates(ones)) for at in range(3)]
    np.testing.assert_allclose(found, np.abs(rises), rtol=1e-9)


def test_hessian_is_right_in_the_mean_over_products_of_several_indices() -> None:
    model, x = randomised(Small()), torch.tensor([[0.5, -1.0], [1.5, 0.3]], dtype=torch.float64)
    graph = mk.trace(model, (x,))
    exact = scores(graph, Hessian([x], squares, samples=3))["first.out"]
    found = scores(graph, Hessian([x] * 300, squares, samples=1))["first.out"]
    np.testing.assert_allclose(found, exact, atol=0.2 * np.abs(exact).max())
    again = scores(graph, Hessian([x], squares, samples=1, seed=5))["first.out"]
    np.testing.assert_array_equal(again, scores(graph, Hessian([x], squares, samples=1, seed=5))["first.out"])
    others = [scores(graph, Hessian([x], squares, samples=1, seed=seed))["first.out"] for seed in range(6, 12)]
    assert not all(np.array_equal(again, other) for other in others)


def test_hessian_of_attention() -> None:
    model, x = randomised(seeded(Heads)), tokens().double()
    graph = mk.trace(model, (x,))
    found = scores(graph, Hessian([x], lambda output: output.square().mean()))
    assert len(found) > 1
    assert all((values > 0).all() for values in found.values())
