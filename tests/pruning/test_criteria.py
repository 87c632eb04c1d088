"""Built-in criteria against figures worked out by hand, and against the definition written out entry by entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from models import seeded
from models.functional import Lambda
from modulekg_widgets.engine.axes.axis import Axis
from modulekg_widgets.engine.pruning.importance.criteria import L1, L2, BNScale, Random
from modulekg_widgets.engine.pruning.importance.index_sums import BLOCK_SIZE, marginals, positions_of
from modulekg_widgets.engine.pruning.importance.loss_criteria import Taylor
from modulekg_widgets.engine.pruning.importance.members import gains
from modulekg_widgets.engine.pruning.importance.scoring import score
from pruning.criterion_samples import Concatenated, Grouped, Heads, image, randomised, scores, tokens, traced_pair

Tensor = torch.Tensor


# ------------------------------------------------------------ worked by hand


def test_l1_is_relative_and_its_members_have_a_say_by_their_size() -> None:
    graph = traced_pair()[1]
    say = 1 + np.log(2)  # of conv2, which has two elements for each index
    shares = np.array([[1 / 2, 2 / 1.25, say * 4 / 4], [3 / 2, 0.5 / 1.25, say * 4 / 4]])
    np.testing.assert_allclose(scores(graph, "l1")["conv1.out"], shares.sum(1) / (2 + say), rtol=1e-6)
    # the bias of the convolution is 1 and -1; that of the normalisation is of zeros and has no say
    np.testing.assert_allclose(scores(graph, L1("all"))["conv1.out"], (1 + shares.sum(1)) / (3 + say), rtol=1e-6)


def test_l2_is_the_root_of_the_mean_square_over_the_weights() -> None:
    graph = traced_pair()[1]
    squares = np.array([1 + 4 + 16 + 0, 9 + 0.25 + 4 + 4])
    np.testing.assert_allclose(scores(graph, "l2")["conv1.out"], np.sqrt(squares / 4), rtol=1e-6)
    # with both biases, that of the convolution of 1 and -1
    np.testing.assert_allclose(scores(graph, L2("all"))["conv1.out"], np.sqrt((squares + 1) / 6), rtol=1e-6)


def test_the_scale_of_a_batch_normalisation() -> None:
    np.testing.assert_allclose(scores(traced_pair()[1], "bn_scale")["conv1.out"], [2 / 1.25, 0.5 / 1.25], rtol=1e-6)


def test_taylor_reads_the_gradients_that_are_there() -> None:
    model, graph, _ = traced_pair()
    model.conv1.weight.grad = torch.tensor([2.0, 5.0]).view(2, 1, 1, 1)
    model.conv2.weight.grad = torch.tensor([[-1.0, 3.0], [7.0, 0.0]]).view(2, 2, 1, 1)
    np.testing.assert_allclose(scores(graph, "taylor")["conv1.out"], [2 + 4, 15 + 6], rtol=1e-6)


def test_fpgm_sums_distances_between_what_makes_the_index() -> None:
    model = Lambda(lambda m, x: m.last(m.first(x)), first=nn.Linear(2, 3, bias=False), last=nn.Linear(3, 1))
    with torch.no_grad():
        model.first.weight.copy_(torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 8.0]]))
    found = scores(mk.trace(model, (torch.ones(1, 2),)), "fpgm")["first.out"]
    np.testing.assert_allclose(found, [5 + 8, 5 + 5, 8 + 5], rtol=1e-6)


# ------------------------------------------- the definition, entry by entry


ZOO = [
    pytest.param(Grouped, image, id="groups"),
    pytest.param(Heads, tokens, id="heads"),
    pytest.param(Concatenated, image, id="concatenation"),
]


def rows(axis: Axis, name: str, dim: int, tensor: Tensor) -> np.ndarray:
    """The entries of each index, found by `axis.indices`, which the criteria do not use."""
    positions = axis.indices(name, dim)
    picked = tensor.detach().movedim(dim, 0)[torch.from_numpy(positions.reshape(-1))]
    return picked.reshape(axis.size, -1).numpy()


def by_definition(
    graph: mk.DataflowGraph,
    of_axis: Callable[[list[np.ndarray]], np.ndarray],
    *,
    grad: bool = False,
    biases: bool = True,
) -> Any:
    found = {}
    for axis in graph.axes.free:
        members = []
        for name, dim, _ in axis.members:
            tensor = graph.state[name].tensor
            if isinstance(tensor, nn.Parameter) and (biases or not name.endswith("bias")):
                members.append(rows(axis, name, dim, tensor * tensor.grad if grad else tensor))
        found[axis.name] = of_axis(members)
    return found


def agree(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    assert len(found) > 1
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("votes", ["weights", "all"])
@pytest.mark.parametrize(("build", "inputs"), ZOO)
def test_l1_in_groups_heads_and_concatenations(build: Any, inputs: Any, votes: str) -> None:
    graph = mk.trace(randomised(seeded(build)), (inputs().double(),))

    def mean_share(members: list[np.ndarray]) -> np.ndarray:
        says = [1 + np.log(member.shape[1]) for member in members]
        shares = [np.abs(member).sum(1) / np.abs(member).sum(1).mean() for member in members]
        return np.average(shares, axis=0, weights=says)

    agree(scores(graph, L1(votes)), by_definition(graph, mean_share, biases=votes == "all"))


@pytest.mark.parametrize(("build", "inputs"), ZOO)
def test_fpgm_in_groups_heads_and_concatenations(build: Any, inputs: Any) -> None:
    graph = mk.trace(randomised(seeded(build)), (inputs().double(),))
    makers = {"stem.weight", "grouped.weight", "embed.weight", "attention.in_proj_weight",
              "attention.out_proj.weight", "left.weight", "right.weight", "inner.weight"}  # fmt: skip
    found = scores(graph, "fpgm")
    for axis in graph.axes.free:
        own = [
            rows(axis, name, dim, graph.state[name].tensor)  # type: ignore[arg-type]
            for name, dim, _ in axis.members
            if name in makers and dim == 0
        ]
        points = np.concatenate(own, axis=1)
        distances = np.linalg.norm(points[:, None] - points[None], axis=2).sum(1)
        np.testing.assert_allclose(found[axis.name], distances, rtol=1e-9, err_msg=axis.name)


@pytest.mark.parametrize("votes", ["weights", "all"])
@pytest.mark.parametrize(("build", "inputs"), ZOO)
def test_l2_in_groups_heads_and_concatenations(build: Any, inputs: Any, votes: str) -> None:
    graph = mk.trace(randomised(seeded(build)), (inputs().double(),))

    def root_mean_square(members: list[np.ndarray]) -> np.ndarray:
        return np.sqrt((np.concatenate(members, axis=1) ** 2).mean(1))

    agree(scores(graph, L2(votes)), by_definition(graph, root_mean_square, biases=votes == "all"))


@pytest.mark.parametrize(("build", "inputs"), ZOO)
def test_taylor_in_groups_heads_and_concatenations(build: Any, inputs: Any) -> None:
    model, x = randomised(seeded(build)), inputs().double()
    graph = mk.trace(model, (x,))
    own = scores(graph, Taylor([(x, x)], lambda output, target: (output**2).sum() + target.sum()))
    assert all(tensor.grad is None for tensor in model.parameters())
    (model(x) ** 2).sum().backward()

    def total(members: list[np.ndarray]) -> np.ndarray:
        return np.abs(np.concatenate(members, axis=1)).sum(1)

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


def test_an_axis_without_a_gain_goes_by_magnitude() -> None:
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


@pytest.mark.parametrize("shape", [(7,), (5, 3), (3, 4, 2, 2), (700, 300, 2), (2, 1 + BLOCK_SIZE)])
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
