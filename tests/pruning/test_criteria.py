"""Built-in criteria against figures worked out by hand, and against the definition written out entry by entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from axes.checks import seeded
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.axes.axis import Axis
from modulekg_widgets.engine.pruning.activations import Activation
from modulekg_widgets.engine.pruning.criteria import BNScale, Hessian, Random, Taylor, gains
from modulekg_widgets.engine.pruning.importance import score
from modulekg_widgets.engine.pruning.tally import BLOCK, marginals, positions_of

Tensor = torch.Tensor


def scores(graph: mk.DataflowGraph, importance: Any) -> dict[str, np.ndarray]:
    """The scores of all free axes by name."""
    axes = graph.axes
    found = score(axes, [axis.term for axis in axes.free], importance)
    return {axis.name: found[axis.term] for axis in axes.free}


# ------------------------------------------------------------ worked by hand


class Pair(nn.Module):
    """Two 1×1 convolutions and a batch normalisation between them: one axis of two indices."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 2, 1)
        self.bn = nn.BatchNorm2d(2)
        self.conv2 = nn.Conv2d(2, 2, 1, bias=False)
        with torch.no_grad():
            self.conv1.weight.copy_(torch.tensor([1.0, -3.0]).view(2, 1, 1, 1))
            self.conv1.bias.copy_(torch.tensor([1.0, -1.0]))
            self.bn.weight.copy_(torch.tensor([2.0, -0.5]))
            self.bn.bias.zero_()
            self.conv2.weight.copy_(torch.tensor([[4.0, -2.0], [0.0, 2.0]]).view(2, 2, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.conv2(F.relu(self.bn(self.conv1(x))))


@pytest.fixture
def pair() -> tuple[Pair, mk.DataflowGraph, Tensor]:
    model = Pair().eval()
    x = torch.tensor([2.0, -4.0]).view(1, 1, 1, 2)
    return model, mk.trace(model, (x,)), x


def test_l2_is_the_root_of_the_mean_square_over_all_members(pair: Any) -> None:
    found = scores(pair[1], "l2")["conv1.out"]
    squares = np.array([1 + 1 + 4 + 0 + 16 + 0, 9 + 1 + 0.25 + 0 + 4 + 4])
    np.testing.assert_allclose(found, np.sqrt(squares / 6), rtol=1e-6)


def test_the_scale_of_a_batch_normalisation(pair: Any) -> None:
    np.testing.assert_allclose(scores(pair[1], "bn_scale")["conv1.out"], [2 / 1.25, 0.5 / 1.25], rtol=1e-6)


def test_taylor_reads_the_gradients_that_are_there(pair: Any) -> None:
    model, graph, _ = pair
    model.conv1.weight.grad = torch.tensor([2.0, 5.0]).view(2, 1, 1, 1)
    model.conv2.weight.grad = torch.tensor([[-1.0, 3.0], [7.0, 0.0]]).view(2, 2, 1, 1)
    np.testing.assert_allclose(scores(graph, "taylor")["conv1.out"], [2 + 4, 15 + 6], rtol=1e-6)


def test_activation_reads_what_the_next_layer_reads(pair: Any) -> None:
    _, graph, _ = pair
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


def test_activation_over_batches_of_other_sizes(pair: Any) -> None:
    _, graph, x = pair
    batches = [(x.repeat(3, 1, 1, 1), torch.zeros(3)), [torch.ones(1, 1, 1, 2), torch.zeros(1)]]
    # 1 gives 2 and -4 before the normalisation, hence 4 and 2 behind it; eight values in all
    means = np.array([3 * 6.0 + 2 * 4.0, 3 * 3.5 + 2 * 2.0])
    found = scores(graph, Activation(batches))["conv1.out"]
    np.testing.assert_allclose(found, means / means.mean(), rtol=1e-5)


def test_fpgm_sums_distances_between_what_makes_the_index() -> None:
    class Three(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(2, 3, bias=False)
            self.last = nn.Linear(3, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.first(x))

    model = Three()
    with torch.no_grad():
        model.first.weight.copy_(torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 8.0]]))
    found = scores(mk.trace(model, (torch.ones(1, 2),)), "fpgm")["first.out"]
    np.testing.assert_allclose(found, [5 + 8, 5 + 5, 8 + 5], rtol=1e-6)


# ------------------------------------------- the definition, entry by entry


class Grouped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 1)
        self.grouped = nn.Conv2d(8, 12, 3, groups=4, padding=1)
        self.norm = nn.GroupNorm(4, 12)
        self.head = nn.Conv2d(12, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.norm(self.grouped(self.stem(x)))))


class Heads(nn.Module):
    """Attention with a fused projection, four heads, on a residual stream that a layer normalisation reads."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(5, 24)
        self.norm = nn.LayerNorm(24)
        self.attention = nn.MultiheadAttention(24, 4, batch_first=True)
        self.head = nn.Linear(24, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        y = self.norm(x)
        return self.head(x + self.attention(y, y, y, need_weights=False)[0])


class Concatenated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.right = nn.Conv2d(3, 6, 1)
        self.norm = nn.BatchNorm2d(10)
        self.inner = nn.Conv2d(10, 4, 1)
        self.head = nn.Linear(14, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(torch.cat([self.left(x), self.right(x)], 1)))
        return self.head(torch.cat([x, F.relu(self.inner(x))], 1).mean((2, 3)))


def image(batch: int = 2) -> Tensor:
    return torch.randn(batch, 3, 6, 6, generator=torch.Generator().manual_seed(1))


def tokens(batch: int = 2) -> Tensor:
    return torch.randn(batch, 4, 5, generator=torch.Generator().manual_seed(1))


ZOO = [
    pytest.param(Grouped, image, id="groups"),
    pytest.param(Heads, tokens, id="heads"),
    pytest.param(Concatenated, image, id="concatenation"),
]


def randomised(model: nn.Module) -> nn.Module:
    """The model in float64 with weights none of which are constant, in evaluation mode."""
    generator = torch.Generator().manual_seed(0)
    for tensor in model.parameters():
        tensor.data = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
    return model.double().eval()


def rows(axis: Axis, name: str, dim: int, tensor: Tensor) -> np.ndarray:
    """The entries of each index, found by `axis.indices`, which the criteria do not use."""
    positions = axis.indices(name, dim)
    picked = tensor.detach().movedim(dim, 0)[torch.from_numpy(positions.reshape(-1))]
    return picked.reshape(axis.size, -1).numpy()


def by_definition(graph: mk.DataflowGraph, of_axis: Callable[[list[np.ndarray]], np.ndarray], *, grad: bool = False) -> Any:
    found = {}
    for axis in graph.axes.free:
        members = []
        for name, dim, _ in axis.members:
            tensor = graph.state[name].tensor
            if tensor is not None and isinstance(tensor, nn.Parameter):
                members.append(rows(axis, name, dim, tensor * tensor.grad if grad else tensor))
        found[axis.name] = of_axis(members)
    return found


def agree(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    assert len(found) > 1
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-9, err_msg=name)


@pytest.mark.parametrize(("build", "inputs"), ZOO)
def test_l2_in_groups_heads_and_concatenations(build: Any, inputs: Any) -> None:
    graph = mk.trace(randomised(seeded(build)), (inputs().double(),))

    def root_mean_square(members: list[np.ndarray]) -> np.ndarray:
        return np.sqrt((np.concatenate(members, axis=1) ** 2).mean(1))

    agree(scores(graph, "l2"), by_definition(graph, root_mean_square))


@pytest.mark.parametrize(("build", "inputs"), ZOO)
def test_taylor_in_groups_heads_and_concatenations(build: Any, inputs: Any) -> None:
    model, x = randomised(seeded(build)), inputs().double()
    graph = mk.trace(model, (x,))
    own = scores(graph, Taylor([(x, x)], lambda output, target: (output**2).sum() + target.sum()))
    assert all(tensor.grad is None for tensor in model.parameters())
    (model(x) ** 2).sum().backward()

    def total(members: list[np.ndarray]) -> np.ndarray:
        return np.concatenate(members, axis=1).__abs__().sum(1)

    expected = by_definition(graph, total, grad=True)
    agree(own, expected)
    agree(scores(graph, "taylor"), expected)


def test_taylor_is_the_mean_over_batches() -> None:
    model = randomised(seeded(Concatenated))
    first, second = image().double(), 3 * image(5).double()
    graph = mk.trace(model, (first,))

    def loss(output: Tensor) -> Tensor:
        return output.square().mean()

    each = [scores(graph, Taylor([batch], loss)) for batch in (first, second)]
    agree(scores(graph, Taylor([first, second], loss)), {n: (each[0][n] + each[1][n]) / 2 for n in each[0]})


@pytest.mark.parametrize(("build", "inputs"), ZOO)
def test_positions_are_those_of_the_axis(build: Any, inputs: Any) -> None:
    graph = mk.trace(seeded(build), (inputs(),))
    for axis in graph.axes:
        for name, dim, _ in axis.members:
            found = positions_of(graph.axes.term(name, dim), axis.term)
            np.testing.assert_array_equal(np.sort(found), np.sort(axis.indices(name, dim)))


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


# --------------------------------------------------------------------- gains


def test_gains_are_found_by_what_they_do_not_by_name() -> None:
    class OwnNorms(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 6)
            self.loudness = nn.Parameter(torch.linspace(1, 2, 6))
            self.second = nn.Linear(6, 5)
            self.rms = nn.RMSNorm(5)
            self.offset = nn.Parameter(torch.ones(5))
            self.shifted_gain = nn.Parameter(torch.zeros(5))
            self.last = nn.Linear(5, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.loudness
            return self.last((self.rms(self.second(x)) + self.offset) * (1 + self.shifted_gain))

    graph = mk.trace(OwnNorms(), (torch.randn(3, 4),))
    assert [node.label for node in gains(graph.axes)] == ["loudness", "rms.weight"]
    found = scores(graph, BNScale())
    np.testing.assert_allclose(found["first.out"], np.linspace(1, 2, 6) / 1.5, rtol=1e-6)
    np.testing.assert_allclose(found["second.out"], 1)


def test_an_axis_without_a_gain_goes_by_magnitude(pair: Any) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 5), nn.Linear(5, 2))
    graph = mk.trace(model.eval(), (torch.randn(2, 3),))
    np.testing.assert_array_equal(scores(graph, "bn_scale")["2.out"], scores(graph, "l1")["2.out"])
    with torch.no_grad():
        model[1].weight.zero_()  # says nothing
    np.testing.assert_array_equal(scores(graph, "bn_scale")["0.out"], scores(graph, "l1")["0.out"])


# ------------------------------------------------------------------- random


def test_random_is_seeded_and_leaves_the_global_generators_alone() -> None:
    graph = mk.trace(seeded(Concatenated), (image(),))
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    first = scores(graph, "random")
    agree(first, scores(graph, Random(seed=0)))
    assert torch.equal(torch.get_rng_state(), torch_state)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)
    other = scores(graph, Random(seed=1))
    assert all(not np.array_equal(first[name], other[name]) for name in first)
    alone = score(graph.axes, [graph.axes["left.out"].term], "random")
    np.testing.assert_array_equal(next(iter(alone.values())), first["left.out"])
    assert len({values.tobytes() for values in first.values()}) == len(first)


# ------------------------------------------------------------------ reductions


@pytest.mark.parametrize("shape", [(7,), (5, 3), (3, 4, 2, 2), (700, 300, 2), (2, 1 + BLOCK)])
@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
def test_marginals_are_sums_over_the_other_dimensions(shape: tuple[int, ...], layout: str) -> None:
    tensor = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    if layout == "transposed":
        tensor = tensor.permute(*reversed(range(tensor.dim()))).contiguous().permute(*reversed(range(tensor.dim())))
    for dims in ({0}, set(range(len(shape))), {len(shape) - 1}):
        found = marginals(torch.abs, (tensor,), dims)
        assert set(found) == dims
        for dim in dims:
            others = tuple(at for at in range(len(shape)) if at != dim)
            expected = tensor.double().abs().sum(others) if others else tensor.double().abs()
            torch.testing.assert_close(found[dim].double(), expected, rtol=1e-5, atol=0)
