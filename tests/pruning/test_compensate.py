"""Compensation is kept where it lowers the error on data that was held out, is reported, and comes back exactly."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from models import seeded
from models.recurrent import SequenceTagger
from pruning.edits_of_cut import state_of
from pruning.test_recalibrate import plan_of

Tensor = torch.Tensor
WAYS = ("least squares", "least squares with bias", "means")


def data(*shape: int, count: int, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator) + 0.5 for _ in range(count)]


def linear_net(bias: bool = True) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 12, bias=bias), nn.ReLU(), nn.Linear(12, 3, bias=bias))


class Doubled(nn.Module):
    """Channels of which half are linear in the other half: least squares loses nothing."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        make: Any = {
            "linear": nn.Linear,
            "conv": lambda into, out: nn.Conv2d(into, out, 3, padding=1),
            "turned": Turned,
        }[kind]
        self.first = nn.Conv2d(2, 8, 1) if kind == "conv" else nn.Linear(2, 8)
        self.head = make(8, 3)
        with torch.no_grad():
            self.first.weight[4:] = self.first.weight[:4].flip(0) * 0.5
            assert self.first.bias is not None
            self.first.bias[4:] = self.first.bias[:4].flip(0) * 0.5

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.first(x))


class Turned(nn.Module):
    """A layer whose weight lies the other way round, and without a bias."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(into, out))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


def error(model: nn.Module, wanted: Tensor, x: Tensor) -> float:
    with torch.no_grad():
        return float((model(x) - wanted).square().mean() / wanted.square().mean())


def rows(receipt: Any) -> dict[str, Any]:
    return {row.layer: row for row in receipt.compensation}


@pytest.mark.parametrize("kind", ["linear", "conv", "turned"])
def test_what_stayed_stands_for_what_went(kind: str) -> None:
    model = seeded(lambda: Doubled(kind)).eval()
    batches = data(*((16, 2, 5, 5) if kind == "conv" else (64, 2)), count=4)
    plan = mk.plan(mk.trace(model, batches[0]), per_axis={"first.out": [4, 5, 6, 7]})
    x = data(*batches[0].shape, count=1, seed=7)[0]
    wanted = model(x).detach()
    plain, fitted = copy.deepcopy(model), copy.deepcopy(model)
    plan.cut(plain)
    receipt = plan.cut(fitted, recalibrate=batches, compensate=True)
    assert error(plain, wanted, x) > 0.1
    assert error(fitted, wanted, x) < 1e-4
    row = rows(receipt)["head.weight"]
    assert (row.axis, row.kept) == ("first.out", True)
    assert row.way in WAYS[:2]
    assert row.after < 1e-4 < 0.1 < row.before


def test_errors_are_those_of_the_held_out_batch() -> None:
    model, batches = seeded(linear_net).eval(), data(64, 4, count=4)
    plan = plan_of(model, batches[0])
    plain = copy.deepcopy(model)
    plan.cut(plain)
    receipt = plan.cut(copy.deepcopy(model), recalibrate=batches, compensate=True)
    wanted = model(batches[3]).detach()
    for name in ("2.weight", "the model's output"):
        assert rows(receipt)[name].before == pytest.approx(
            float((plain(batches[3]).detach() - wanted).square().sum() / wanted.square().sum()), rel=1e-4
        )
    fitted = copy.deepcopy(model)
    plan.cut(fitted, recalibrate=batches, compensate=True)
    assert rows(receipt)["2.weight"].after == pytest.approx(
        float((fitted(batches[3]).detach() - wanted).square().sum() / wanted.square().sum()), rel=1e-4
    )
    assert "error" in str(receipt)
    assert "kept" in str(receipt)


def test_means_alone_are_taken_where_nothing_else_can_be_learnt() -> None:
    model = seeded(lambda: nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 3))).eval()
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(12, 4) * 0.01)  # constants, but for a little noise
        model[0].bias.copy_(torch.linspace(-1, 1, 12))
        model[0].weight[:4] = 0
    batches = data(256, 4, count=4)
    batches = [batch / batch.std() for batch in batches]
    plan = mk.plan(mk.trace(model, batches[0]), per_axis={"0.out": list(range(4))})
    before = model(batches[0]).detach()
    receipt = plan.cut(model, recalibrate=batches, compensate=True)
    assert (rows(receipt)["2.weight"].way, rows(receipt)["2.weight"].kept) == ("means", True)
    torch.testing.assert_close(model(batches[0]), before, rtol=1e-3, atol=1e-3)


def test_what_harms_the_held_out_data_is_not_kept() -> None:
    model = seeded(lambda: nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 3))).eval()
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(2))
        model[0].bias.zero_()
    # the second value is the first, and minus it in the batch that is held out
    batches = [x * torch.tensor([1.0, 0.0]) + x[:, :1] * torch.tensor([0.0, sign])
               for x, sign in zip(data(32, 2, count=4), (1, 1, 1, -1), strict=True)]  # fmt: skip
    plan = mk.plan(mk.trace(model, batches[0]), per_axis={"0.out": [1]})
    plain, fitted = copy.deepcopy(model), copy.deepcopy(model)
    plan.cut(plain)
    receipt = plan.cut(fitted, recalibrate=batches, compensate=True)
    row = rows(receipt)["1.weight"]
    assert row.way in WAYS
    assert not row.kept
    assert row.after >= row.before
    for mine, theirs in zip(fitted.parameters(), plain.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert "not kept" in str(receipt)


class Saturated(nn.Module):
    """A sigmoid behind the last layer: most of the error before it is nothing behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = linear_net()

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x).sigmoid()


def test_the_models_output_is_never_worse_on_the_held_out_data() -> None:
    for make in (Saturated, linear_net, lambda: linear_net(bias=False)):
        model, batches = seeded(make).eval(), data(64, 4, count=4)
        plan = plan_of(model, batches[0])
        wanted = model(batches[3]).detach()
        plain, fitted = copy.deepcopy(model), copy.deepcopy(model)
        plan.cut(plain)
        plan.cut(fitted, recalibrate=batches, compensate=True)
        assert error(fitted, wanted, batches[3]) <= error(plain, wanted, batches[3])


def test_one_batch_is_split_by_its_samples() -> None:
    model, (batch,) = seeded(linear_net).eval(), data(256, 4, count=1)
    receipt = plan_of(model, batch).cut(model, recalibrate=[batch], compensate=True)
    assert rows(receipt)["2.weight"].kept


class Unclear(nn.Module):
    """A weight that is read in two ways, a convolution in groups, and one that fits."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(2, 8, 1)
        self.grouped = nn.Conv1d(8, 8, 3, padding=1, groups=2)
        self.second = nn.Linear(8, 6)
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.grouped(self.first(x).relu()).mean(2)
        return self.head(self.second(x)) + 0.01 * self.second.weight.square().sum()


def test_what_is_unclear_is_left_alone_and_said() -> None:
    model, batches = seeded(Unclear).eval(), data(32, 2, 6, count=4)
    receipt = plan_of(model, batches[0]).cut(model, recalibrate=batches, compensate=True)
    assert "aten.convolution" in rows(receipt)["grouped.weight"].note
    assert not rows(receipt)["grouped.weight"].kept
    assert rows(receipt)["second.weight"].note == "its weight is read in another way too"
    assert not rows(receipt)["second.weight"].kept
    assert rows(receipt)["head.weight"].kept


def test_weights_that_are_computed_are_left_alone_and_said() -> None:
    def make() -> nn.Module:
        middle = nn.utils.parametrizations.weight_norm(nn.Linear(12, 8))
        return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), middle, nn.ReLU(), nn.Linear(8, 3))

    model, batches = seeded(make).eval(), data(16, 6, count=4)
    receipt = plan_of(model, batches[0]).cut(model, recalibrate=batches, compensate=True)
    row = rows(receipt)["2.parametrizations.weight.original1"]
    assert "weight_norm" in row.note
    assert row.axis == "0.out"
    assert not row.kept
    assert rows(receipt)["4.weight"].kept


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_recurrent_weights_are_compensated(kind: Any) -> None:
    model = seeded(lambda: SequenceTagger(nn.Linear(3, 8), kind(8, 12, batch_first=True), 4)).eval()
    batches = data(32, 7, 3, count=4)
    plan = plan_of(model, batches[0])
    wanted = model(batches[3]).detach()
    plain = copy.deepcopy(model)
    plan.cut(plain)
    receipt = plan.cut(model, recalibrate=batches, compensate=True)
    assert rows(receipt)["rnn.weight_ih_l0"].kept
    assert {"rnn.weight_hh_l0", "head.weight"} < rows(receipt).keys()
    assert error(model, wanted, batches[3]) < 0.9 * error(plain, wanted, batches[3])


class AttentionMLP(nn.Module):
    """Attention with a projection in one piece, norms, and an inner layer: the residual stream is cut too."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(5, 16)
        self.norm = nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.inner = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return self.head(x + self.inner(x))


def test_a_transformer_block_is_nearer_to_what_it_was() -> None:
    model, batches = seeded(AttentionMLP).eval(), data(32, 6, 5, count=4)
    plan, x = plan_of(model, batches[0]), data(32, 6, 5, count=1, seed=3)[0]
    wanted = model(x).detach()
    plain = copy.deepcopy(model)
    plan.cut(plain)
    receipt = plan.cut(model, recalibrate=batches, compensate=True)
    assert {"inner.1.weight", "inner.3.weight", "attention.in_proj_weight", "head.weight"} <= rows(receipt).keys()
    assert error(model, wanted, x) < 0.7 * error(plain, wanted, x)


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1, bias=False),
        nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 3, 1),
    )  # fmt: skip


def test_statistics_are_those_of_the_compensated_model() -> None:
    model, batches = seeded(convolutional).eval(), data(8, 2, 6, 6, count=4)
    torch.optim.swa_utils.update_bn(batches, model)
    receipt = plan_of(model, batches[0]).cut(model, recalibrate=batches, compensate=True)
    assert rows(receipt)["3.weight"].kept
    again = copy.deepcopy(model)
    torch.optim.swa_utils.update_bn(batches, again)
    for (name, mine), theirs in zip(model.named_buffers(), again.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6, msg=name)


class Classes(nn.Module):
    """What it gives are indices, of which no error can be computed."""

    def __init__(self) -> None:
        super().__init__()
        self.body = linear_net()

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x).argmax(1)


def test_where_the_output_tells_nothing_the_layers_decide() -> None:
    model, batches = seeded(Classes).eval(), data(64, 4, count=4)
    receipt = mk.plan(mk.trace(model, batches[0]), per_axis={"body.0.out": 0.5}).cut(
        model, recalibrate=batches, compensate=True
    )
    assert [(row.layer, row.kept) for row in receipt.compensation] == [("body.2.weight", True)]


@pytest.mark.parametrize("bad", range(4))
def test_values_that_are_not_finite_are_refused_in_each_part_of_the_batches(bad: int) -> None:
    model, batches = seeded(linear_net).eval(), data(64, 4, count=4)
    plan, before = plan_of(model, batches[0]), state_of(model)
    batches[bad][3, 1] = float("nan")
    with pytest.raises(mk.ModuleKGError, match="is not finite: look for NaN in the batches"):
        plan.cut(model, recalibrate=batches, compensate=True)
    assert state_of(model) == before


# ------------------------------------------------------------- the way back


@pytest.mark.parametrize("make", [convolutional, linear_net])
def test_undo_is_exact_and_restore_takes_the_compensation_out(make: Any) -> None:
    model = seeded(make).eval()
    shape = (8, 2, 6, 6) if make is convolutional else (32, 4)
    batches = data(*shape, count=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for batch in batches[:2]:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    plan, before = plan_of(model, batches[0]), state_of(model, optimizer)
    values = {name: value.clone() for name, value in model.state_dict().items()}
    receipt = plan.cut(model, optimizer, recalibrate=batches, compensate=True)
    assert any(row.kept for row in receipt.compensation)
    optimizer.zero_grad()
    model(batches[2]).square().mean().backward()
    optimizer.step()
    receipt.undo()
    assert state_of(model, optimizer) == before

    plan.cut(model, optimizer, recalibrate=batches, compensate=True).restore()
    for name, value in model.state_dict().items():
        assert torch.equal(value, values[name]), name

    receipt = plan.cut(model, optimizer, recalibrate=batches, compensate=True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    receipt.restore()
    for name, parameter in model.named_parameters():
        moved = (parameter.detach() - values[name]).round(decimals=4)
        assert set(moved.unique().tolist()) <= {0.0, 1.0}, name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_undo_is_exact_in_half_precision(dtype: torch.dtype) -> None:
    model = seeded(convolutional).to(dtype).eval()
    batches = [batch.to(dtype) for batch in data(8, 2, 6, 6, count=4)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    model(batches[0]).square().mean().backward()
    optimizer.step()
    before = state_of(model, optimizer)
    receipt = plan_of(model, batches[0]).cut(model, optimizer, recalibrate=batches, compensate=True)
    assert model[0].out_channels < 12
    receipt.undo()
    assert state_of(model, optimizer) == before


def test_a_single_sparse_batch_is_divided_as_a_dense_one() -> None:
    torch.manual_seed(0)
    x = torch.randn(12, 5).relu()
    rows = []
    for batch in (x, x.to_sparse()):
        model = seeded(lambda: nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)))
        receipt = mk.plan(mk.trace(model, x), ratio=0.5).cut(model, recalibrate=[batch], compensate=True)
        rows.append(receipt.compensation)
    assert [(row.layer, row.kept) for row in rows[0]] == [(row.layer, row.kept) for row in rows[1]]
    assert [row.after for row in rows[0]] == pytest.approx([row.after for row in rows[1]], rel=1e-4)


@pytest.mark.parametrize("inside", [False, True])
def test_a_model_made_in_inference_mode_is_scored_cut_and_made_up_for(inside: bool) -> None:
    """It has no gradients of its own: those of a criterion come from copies that can."""
    torch.manual_seed(0)
    with torch.inference_mode():
        model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)).eval()
    x, target = torch.randn(8, 6), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    graph = mk.trace(model, x)
    taylor = mk.pruning.Taylor([(x, target)], nn.functional.cross_entropy)
    for importance in ("l2", taylor, mk.pruning.Activation([x])):
        plan = mk.plan(graph, ratio=0.5, importance=importance)
        with torch.inference_mode(inside):
            receipt = plan.cut(model, recalibrate=[x], compensate=True)
        with torch.inference_mode():
            assert model(x).shape == (8, 3)
        assert model[0].weight.is_inference()
        receipt.undo()
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
