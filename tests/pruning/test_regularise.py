"""The group lasso over axes: its value and gradient by hand, and what training with it does."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import modulekg_widgets as mk
from models import seeded
from modulekg_widgets.engine.errors import CutError, UnknownAxisError
from modulekg_widgets.engine.pruning.importance.regularization import GroupLasso, group_lasso

Tensor = torch.Tensor


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.norm = nn.BatchNorm1d(3)
        self.last = nn.Linear(3, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.relu(self.norm(self.first(x))))


class Mixed(nn.Module):
    """Groups, heads and a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(5, 8)
        self.right = nn.Linear(5, 4)
        self.attention = nn.MultiheadAttention(12, 2, batch_first=True)
        self.grouped = nn.Conv1d(12, 6, 3, groups=3, padding=1)
        self.last = nn.Conv1d(6, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.left(x), self.right(x)], -1)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.last(self.grouped(x.transpose(1, 2)))


def test_the_value_by_hand() -> None:
    model = Pair()
    with torch.no_grad():
        model.first.weight.copy_(torch.tensor([[1.0, 2.0], [0.0, 0.0], [3.0, 0.0]]))
        model.first.bias.copy_(torch.tensor([0.0, 0.0, 4.0]))
        model.norm.weight.copy_(torch.tensor([2.0, 0.0, 0.0]))
        model.norm.bias.zero_()
        model.last.weight.copy_(torch.tensor([[4.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    graph = mk.trace(model.eval(), (torch.randn(2, 2),))
    # each index has 2 + 1 + 1 + 1 + 2 elements
    expected = 0.1 * math.sqrt(7) * (math.sqrt(1 + 4 + 4 + 16) + 0 + 5)
    penalty = GroupLasso(graph, weight=0.1)
    assert penalty().item() == pytest.approx(expected)
    assert group_lasso(graph.axes, weight=0.1).item() == pytest.approx(expected)
    torch.testing.assert_close(penalty.norms(), {"first.out": torch.tensor([5.0, 0.0, 5.0])})
    assert repr(penalty) == "<GroupLasso: 1 axis, weight 0.1>"
    penalty().backward()
    # w/‖w‖ times √7·0.1, and 0 where all is zero
    torch.testing.assert_close(
        model.first.weight.grad, 0.1 * math.sqrt(7) * model.first.weight.detach() / torch.tensor([[5.0], [1.0], [5.0]])
    )
    torch.testing.assert_close(model.last.weight.grad[0], torch.tensor([0.1 * math.sqrt(7) * 4 / 5, 0.0, 0.0]))


def test_value_and_gradient_in_groups_heads_and_concatenations() -> None:
    model = seeded(Mixed).double()
    graph = mk.trace(model, (torch.randn(2, 3, 5, dtype=torch.float64),))
    group_lasso(graph, weight=2.0).backward()
    copied = copy.deepcopy(model)
    copied.zero_grad()
    named = dict(copied.named_parameters())
    total = torch.zeros((), dtype=torch.float64)
    for axis in graph.axes.free:
        members = []
        for name, dim, _ in axis.members:
            rows = torch.from_numpy(axis.indices(name, dim).reshape(-1))
            members.append(named[name].movedim(dim, 0)[rows].reshape(axis.size, -1))
        joined = torch.cat(members, 1)
        total = total + math.sqrt(joined.shape[1]) * joined.norm(dim=1).sum()
    (2.0 * total).backward()
    assert len(graph.axes.free) > 4
    torch.testing.assert_close(group_lasso(graph, weight=2.0), 2.0 * total)
    for name, tensor in model.named_parameters():
        if named[name].grad is not None:
            torch.testing.assert_close(tensor.grad, named[name].grad, msg=name)
        else:
            assert tensor.grad is None


def test_training_drives_indices_to_zero_in_all_members_together() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 4, generator=generator)
    y = (x[:, :1] - x[:, 1:2]).tanh()

    def trained(weight: float) -> tuple[np.ndarray, float]:
        model = seeded(lambda: nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)))
        graph = mk.trace(model, (x[:2],))
        penalty = GroupLasso(graph, weight=weight)
        optimizer = torch.optim.Adam(model.parameters(), 0.02)
        for _ in range(250):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            (loss + penalty()).backward()
            optimizer.step()
        into = model[0].weight.detach().norm(dim=1)
        out = model[2].weight.detach().norm(dim=0)
        return torch.stack([into, out]).numpy(), F.mse_loss(model(x), y).item()

    free, _ = trained(0.0)
    sparse, error = trained(3e-3)
    gone = (sparse < 0.03).all(0)  # on both sides
    assert (free < 0.03).all(0).sum() == 0
    assert gone.sum() >= 8
    assert not gone.all()
    assert ((sparse < 0.03).any(0) == gone).all()  # never on one side alone
    assert error < 0.05


def test_chosen_axes_only() -> None:
    graph = mk.trace(seeded(Mixed), (torch.randn(2, 3, 5),))
    first, second, *_ = graph.axes.free
    both = group_lasso(graph, [first, second.name])
    torch.testing.assert_close(both, group_lasso(graph, first) + group_lasso(graph, second.name))
    assert group_lasso(graph, []).item() == 0
    frozen = next(axis for axis in graph.axes if axis.frozen)
    with pytest.raises(CutError, match="cannot be cut, so no penalty helps"):
        group_lasso(graph, [frozen])
    with pytest.raises(UnknownAxisError):
        group_lasso(graph, ["nowhere"])
    with pytest.raises(CutError, match="axes of a traced graph, got Mixed"):
        group_lasso(graph.model)
    with pytest.raises(CutError, match="weight=-1"):
        group_lasso(graph, weight=-1)


@pytest.mark.parametrize("move", [lambda m: m.to(torch.float64), lambda m: m.bfloat16(), lambda m: m.half()])
def test_it_follows_the_model(move: Any) -> None:
    model = seeded(Pair)
    penalty = GroupLasso(mk.trace(model.eval(), (torch.randn(2, 2),)), weight=1.0)
    before = penalty().item()
    move(model)
    after = penalty()
    assert after.item() == pytest.approx(before, rel=1e-2)
    after.backward()
    assert model.first.weight.grad is not None
    assert model.first.weight.grad.dtype == model.first.weight.dtype
    model.load_state_dict({name: torch.zeros_like(value) for name, value in model.state_dict().items()}, assign=True)
    assert penalty().item() == 0


def test_a_model_that_was_cut_or_has_no_data_is_refused() -> None:
    model = seeded(Pair)
    penalty = GroupLasso(mk.trace(model.eval(), (torch.randn(2, 2),)))
    model.first.weight = nn.Parameter(torch.zeros(2, 2))
    with pytest.raises(CutError, match=r"'first\.weight' has shape"):
        penalty()
    with torch.device("meta"):
        empty = Pair().eval()
    with pytest.raises(CutError, match="a group lasso reads the weights"):
        group_lasso(mk.trace(empty, (torch.randn(2, 2, device="meta"),)))


def test_nothing_is_left_on_the_model() -> None:
    model = seeded(Mixed)
    graph = mk.trace(model, (torch.randn(2, 3, 5),))
    state, before = torch.get_rng_state(), [(p.data_ptr(), p._version) for p in model.parameters()]
    penalty = GroupLasso(graph)
    penalty()
    penalty.norms()
    assert [(p.data_ptr(), p._version) for p in model.parameters()] == before
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)
