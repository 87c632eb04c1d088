"""What Python code fixes beyond the data flow: attributes follow, sizes are tied, the rest stays whole for a reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from models.recurrent import SequenceTagger
from pruning.battery import differs, state_of


def planned(model: nn.Module, *args: Any, **how: Any) -> mk.PruningPlan:
    """A plan that has been cut, run, and undone."""
    torch.manual_seed(0)
    model.eval()
    plan = mk.plan(mk.trace(model, args), **(how or {"ratio": 0.5}))
    before, shape = state_of(model), model(*args).shape
    receipt = plan.cut(model)
    assert model(*args).shape == shape
    receipt.undo()
    assert not differs(before, state_of(model))
    return plan


def kinds(plan: mk.PruningPlan) -> list[str]:
    return [change.kind for change in plan.changes]


class Viewing(nn.Module):
    """Views its features by an attribute that holds their number."""

    def __init__(self, holder: str) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(4, 8), nn.Linear(8, 2)
        if holder == "attribute":
            self.width = 8
        elif holder == "tuple":
            self.shape = (8, 3)
        elif holder == "list":
            self.shape = [8, 3]
        elif holder == "object":
            self.config = SimpleNamespace(hidden_size=8, layers=8)
        self.holder = holder

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        width = {"attribute": lambda: self.width, "object": lambda: self.config.hidden_size}.get(
            self.holder, lambda: self.shape[0]
        )()  # fmt: skip
        return self.out(self.into(x).view(len(x), width))


@pytest.mark.parametrize(
    ("holder", "name"),
    [("attribute", "width"), ("tuple", "shape"), ("list", "shape"), ("object", "config.hidden_size")],
)
def test_an_attribute_that_holds_the_size_follows_it(holder: str, name: str) -> None:
    plan = planned(Viewing(holder), torch.randn(3, 4))
    assert name in plan.edits.attributes
    assert plan.edits.attributes.keys() == {name, "into.out_features", "out.in_features"}
    assert kinds(plan) == ["attribute"]
    assert "aten::view" in plan.changes[0].source
    assert "test_dry_run.py" in plan.changes[0].source


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = (q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5).softmax(-1) @ v
        return x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))


def blocks(count: int) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 24), *(SelfAttention(24, 3) for _ in range(count)), nn.Linear(24, 2))


@pytest.mark.parametrize("ratio", [0.3, 0.5, 0.7])
def test_the_stream_is_heads_times_head_dim(ratio: float) -> None:
    model = blocks(3)
    plan = planned(model, torch.randn(2, 5, 6), ratio=ratio)
    left = {axis.name: axis.left for axis in plan.axes}
    stream = next(size for name, size in left.items() if "head_dim" not in name)
    inner = [size for name, size in left.items() if "head_dim" in name]
    assert len(set(inner)) == 1
    assert stream == 3 * inner[0]


def test_a_scale_that_the_code_computes_is_listed_with_its_line() -> None:
    plan = planned(blocks(2), torch.randn(2, 5, 6))
    (scale,) = [change for change in plan.changes if change.kind == "scale"]
    assert "0.353553 becomes 0.5" in scale.what
    assert "2 times" in scale.what
    assert "aten::mul" in scale.source


class Halves(nn.Module):
    """Takes what two layers put side by side apart in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.out = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = torch.cat([self.a(x), self.b(x).relu()], 1).chunk(2, 1)
        return self.out(left * right.sigmoid())


def test_halves_stay_halves() -> None:
    plan = planned(Halves(), torch.randn(3, 4))
    assert {axis.left for axis in plan.axes} == {4}


class Uneven(nn.Module):
    """Two layers that nothing couples but the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(4, 8)
        self.left, self.right = nn.Linear(8, 2), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = torch.cat([self.a(x), self.b(x).relu()], 1).chunk(2, 1)
        return self.left(left) + self.right(right)


def test_unequal_halves_are_tied() -> None:
    plan = planned(Uneven(), torch.randn(3, 4), per_axis={"a": 0.5, "b": 0.25})
    assert len({axis.left for axis in plan.axes}) == 1
    assert kinds(plan) == ["tie"]
    assert "aten::split" in plan.changes[0].source


def test_a_tie_takes_no_index_that_was_not_given() -> None:
    plan = planned(Uneven(), torch.randn(3, 4), per_axis={"a": [0, 1, 2], "b": [5]})
    dropped = {axis.name: set(axis.dropped) for axis in plan.axes}
    assert dropped.keys() == {"a.out", "b.out"}
    assert dropped["a.out"] <= {0, 1, 2}
    assert dropped["b.out"] == {5}


class Written(nn.Module):
    """Has a size written into its code, and another axis that is free."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.mid, self.out = nn.Linear(4, 8), nn.Linear(8, 6), nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.mid(self.into(x).view(-1, 8)).relu())


def test_a_size_written_into_the_code_stays_and_the_line_is_told() -> None:
    plan = planned(Written(), torch.randn(3, 4))
    assert [(axis.size, axis.left) for axis in plan.axes] == [(6, 3)]
    (change,) = plan.changes
    assert change.kind in ("tie", "whole")
    assert "test_dry_run.py" in change.source
    with pytest.raises(mk.ModuleKGError, match=r"into.out.*aten::view in \(root\), .*test_dry_run.py:\d+"):
        planned(Written(), torch.randn(3, 4), per_axis={"into": 0.5})


class Asserting(Written):
    """Checks a size by itself."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.into(x).relu()
        if x.shape[1] != 8:
            raise ValueError("eight features are needed")
        return self.out(self.mid(x).relu())


def test_what_the_code_itself_checks_stays() -> None:
    plan = planned(Asserting(), torch.randn(3, 4))
    assert [(axis.size, axis.left) for axis in plan.axes] == [(6, 3)]


class Coincidence(nn.Module):
    """`times` happens to be what the features are: letting it follow them would make forward run, and be wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(4, 8), nn.Linear(8, 2)
        self.times = 8

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.into(x)
        for _ in range(self.times):
            x = x * 1.1
        return self.out(x.view(-1, self.times))


def test_equal_integers_may_be_coincidence() -> None:
    model = Coincidence()
    x = torch.randn(3, 4)
    try:
        plan = planned(model, x)
    except mk.ModuleKGError as error:
        assert "could be cut" in str(error)  # noqa: PT017 - both outcomes are right, silence is not
    else:
        assert "times" not in plan.edits.attributes


def test_two_directions_of_a_recurrent_layer_lose_alike() -> None:
    def tagger() -> nn.Module:
        return SequenceTagger(None, nn.LSTM(5, 8, 2, bidirectional=True, batch_first=True), 3)

    model = tagger()
    names = [axis.name for axis in mk.trace(model, torch.randn(2, 4, 5)).axes.free]
    plan = planned(model, torch.randn(2, 4, 5))
    assert "rnn.hidden_size" in plan.edits.attributes
    assert plan.params[1] < 0.5 * plan.params[0]
    for name in names[:2]:  # one direction alone
        try:
            planned(tagger(), torch.randn(2, 4, 5), per_axis={name: 0.5})
        except mk.ModuleKGError as error:
            assert "could be cut" in str(error)  # noqa: PT017 - as above


def test_the_model_is_left_alone_whatever_its_forward_does() -> None:
    class Caching(Written):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen = self.into(x)
            self.count = getattr(self, "count", 0) + 1
            return super().forward(x)

    model = Caching().train()
    x = torch.randn(3, 4)
    before, rng = state_of(model), torch.get_rng_state()
    mk.plan(mk.trace(model, x), ratio=0.5)
    assert torch.equal(rng, torch.get_rng_state())
    assert not differs(before, state_of(model))
    assert not hasattr(model, "seen")


def test_a_configuration_that_serves_two_models_is_copied_for_the_one_that_is_cut() -> None:
    first, second = Viewing("object"), Viewing("object")
    second.config = first.config
    x = torch.randn(3, 4)
    receipt = mk.plan(mk.trace(first, x), ratio=0.5).cut(first)
    assert (first.config.hidden_size, second.config.hidden_size) == (4, 8)
    assert first(x).shape == second(x).shape == (3, 2)
    receipt.undo()
    assert first.config is second.config


class Remembering(nn.Module):
    """Keeps a table by device, and lets its features be viewed by an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.width = nn.Parameter(torch.zeros(3, 5)), 8
        self.into, self.out = nn.Linear(5, 8), nn.Linear(8, 2)
        self.kept: dict[str, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if str(x.device) not in self.kept:
            self.kept[str(x.device)] = self.table * 2
        return self.out(self.into(x + self.kept[str(x.device)]).view(-1, self.width))


def test_what_a_model_remembers_does_not_spoil_the_proof() -> None:
    model, x = Remembering(), torch.randn(3, 5)
    with torch.no_grad():
        model(x)
    plan = planned(model, x)
    assert "width" in plan.edits.attributes


@pytest.mark.slow
def test_layers_that_are_left_out_by_chance_are_cut_along() -> None:
    class Dropping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.into, self.out = nn.Linear(4, 8), nn.Linear(8, 2)
            self.mask = nn.Parameter(torch.randn(8))
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.into(x)
            if self.training:
                x = x + self.mask
            for layer in self.layers:
                if not (self.training and torch.rand([]) < 0.5):
                    x = x + layer(x)
            return self.out(x)

    x = torch.randn(3, 4)
    for seed in range(6):
        model = Dropping().eval()
        torch.manual_seed(seed)
        mk.plan(mk.trace(model, x), ratio=0.5).cut(model)
        assert model.mask.shape == (4,)
        for _ in range(4):
            assert model.train()(x).shape == (3, 2)


def test_packed_weights_of_a_quantised_layer_need_no_equality() -> None:
    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            inner = nn.Sequential(nn.Linear(8, 8))
            self.quantised = torch.ao.quantization.quantize_dynamic(inner, {nn.Linear}, dtype=torch.qint8)
            self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.down(self.up(self.quantised(x)).relu())

    model, x = Partly(), torch.randn(3, 8)
    plan = mk.plan(mk.trace(model, x), ratio=0.5)
    assert {axis.name: axis.left for axis in plan.axes} == {"up.out": 16}
    plan.cut(model)
    assert model(x).shape == (3, 4)
