"""First states of zeros whose sizes stand in attributes: these follow, several at once where a call takes several."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

import modulekg_widgets as mk
from models import seeded


class Recurrent(nn.Module):
    """A recurrent layer that begins with zeros, as many as an attribute says."""

    def __init__(self) -> None:
        super().__init__()
        self.width = 12
        self.first, self.cell, self.last = nn.Linear(5, 12), nn.GRU(12, 12, batch_first=True), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        start = torch.zeros(1, x.shape[0], self.width)
        return self.last(self.cell(y, start)[0] + y)


class Attending(nn.Module):
    """A cell that gets its last state, and what it attends to of a layer in both directions; both begin with zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.state_size, self.context_size, self.outputs = 12, 16, 8  # the last is one direction's number by chance
        self.encoder = nn.LSTM(6, 8, bidirectional=True, batch_first=True)
        self.prenet, self.cell = nn.Linear(8, 10), nn.LSTMCell(10 + 16, 12)
        self.query, self.last = nn.Linear(12, 16), nn.Linear(12 + 16, 8)

    def forward(self, x: Tensor) -> Tensor:
        memory, _ = self.encoder(x)
        h, c = (torch.zeros(len(x), self.state_size) for _ in range(2))
        context, y = torch.zeros(len(x), self.context_size), torch.zeros(len(x), self.outputs)
        outputs = []
        for _ in range(2):
            h, c = self.cell(torch.cat([self.prenet(y).relu(), context], -1), (h, c))
            weights = (memory @ self.query(h)[..., None]).softmax(1)
            context = (weights * memory).sum(1)
            y = self.last(torch.cat([h, context], -1))
            outputs.append(y)
        return torch.stack(outputs, 1)


def check_against_zeros(model: nn.Module, x: Tensor, plan: mk.PruningPlan) -> None:
    """The cut model computes what the original does where what goes is zero in every weight."""
    twin = copy.deepcopy(model)
    named = dict(twin.named_parameters())
    with torch.no_grad():
        for edit in plan.edits.tensors:
            for dim, kept in edit.kept.items():
                gone = [index for index in range(edit.shape[dim]) if index not in set(kept.tolist())]
                named[edit.names[0]].index_fill_(dim, torch.tensor(gone), 0)
        expected, before = twin(x), model(x)
        receipt = plan.cut(model)
        torch.testing.assert_close(model(x), expected)
        receipt.undo()
        assert torch.equal(model(x), before)


def test_the_attribute_that_a_first_state_is_made_by_follows() -> None:
    model, x = seeded(Recurrent).eval(), torch.randn(2, 4, 5)
    plan = mk.plan(mk.trace(model, x), ratio=0.5)
    assert plan.edits.attributes["width"] == (12, 6)
    assert plan.params[1] < 0.4 * plan.params[0]
    check_against_zeros(model, x, plan)


def test_several_that_one_call_takes_follow_together_and_no_other() -> None:
    model, x = seeded(Attending).eval(), torch.randn(2, 4, 6)
    plan = mk.plan(mk.trace(model, x), ratio=0.5)
    assert plan.edits.attributes["state_size"] == (12, 6)
    assert plan.edits.attributes["context_size"] == (16, 8)
    assert "outputs" not in plan.edits.attributes
    assert plan.params[1] < 0.45 * plan.params[0]
    check_against_zeros(model, x, plan)
