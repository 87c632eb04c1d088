"""Undo is byte for byte; restore puts back what went and keeps what was trained; whatever does not fit is refused."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from models import seeded
from models.recurrent import SequenceTagger
from models.residual import ResidualLinear
from modulekg_widgets.engine.pruning.cut.cut import cut
from pruning.edits_of_cut import (
    Small,
    bytes_of,
    edits_by_hand,
    edits_of,
    small_edits,
    state_of,
    step,
    trained,
    values_of,
)

GONE, KEPT = [0, 3], [1, 2, 4, 5]


def test_undo_after_training_is_exact_and_the_cut_can_be_made_again() -> None:
    model, optimizer = trained()
    edits, before = small_edits(model), state_of(model, optimizer)
    losses = []
    for _ in range(2):
        receipt = cut(model, edits, optimizer)
        optimizer.zero_grad(set_to_none=False)  # writes into the gradients that were there
        losses.append([step(model, optimizer, seed) for seed in range(3)])
        optimizer.param_groups[0]["lr"] = 0.5
        receipt.undo()
        assert state_of(model, optimizer) == before
    assert losses[0] == losses[1]


def test_undo_puts_back_gradients_that_were_none_or_are_none_by_now() -> None:
    model, optimizer = trained()
    with_gradients = state_of(model)
    receipt = cut(model, small_edits(model))
    model.zero_grad()
    receipt.undo()
    assert state_of(model) == with_gradients
    model.zero_grad()
    without = state_of(model)
    receipt = cut(model, small_edits(model))
    step(model, torch.optim.SGD(model.parameters(), lr=0.0))
    receipt.undo()
    assert state_of(model) != with_gradients
    assert {name: seen for name, seen in state_of(model).items() if "grad" in name} == {
        name: seen for name, seen in without.items() if "grad" in name
    }
    assert optimizer.state


def test_undo_takes_back_changes_that_compare_equal() -> None:
    model = seeded(Small)
    model.head.bias.data.fill_(-0.0)
    receipt = cut(model, small_edits(model))
    model.head.bias.data.fill_(0.0)
    receipt.undo()
    assert bytes_of(model.head.bias) == bytes_of(torch.full((3,), -0.0))


def test_restore_puts_back_what_went_and_keeps_what_was_trained() -> None:
    model, optimizer = trained()
    before, parameters = values_of(model), dict(model.named_parameters())
    momenta = {name: optimizer.state[parameter]["exp_avg"].clone() for name, parameter in parameters.items()}
    receipt = cut(model, small_edits(model, GONE), optimizer)
    step(model, optimizer)
    now = values_of(model)
    gradient = model.conv.weight.grad.clone()
    steps = optimizer.state[model.conv.weight]["step"].item()
    receipt.restore()
    after = values_of(model)
    for name in ("conv.weight", "conv.bias", "norm.weight", "norm.running_var"):
        assert bytes_of(after[name][GONE]) == bytes_of(before[name][GONE])
        assert bytes_of(after[name][KEPT]) == bytes_of(now[name])
        assert not torch.equal(now[name], before[name][KEPT])
    assert torch.equal(after["head.weight"][:, GONE], before["head.weight"][:, GONE])
    assert torch.equal(after["head.weight"][:, KEPT], now["head.weight"])
    assert torch.equal(after["head.bias"], now["head.bias"])
    moment = optimizer.state[model.conv.weight]["exp_avg"]
    assert torch.equal(moment[GONE], momenta["conv.weight"][GONE])
    assert not torch.equal(moment[KEPT], momenta["conv.weight"][KEPT])
    assert torch.equal(model.conv.weight.grad[KEPT], gradient)
    assert not model.conv.weight.grad[GONE].any()
    assert optimizer.state[model.conv.weight]["step"].item() == steps
    assert dict(model.named_parameters()) == parameters
    assert (model.conv.out_channels, model.norm.num_features, model.head.in_features) == (6, 6, 6)
    step(model, optimizer)


def test_restore_without_gradients_leaves_them_none() -> None:
    model, optimizer = trained()
    receipt = cut(model, small_edits(model), optimizer)
    optimizer.zero_grad()
    receipt.restore()
    assert model.conv.weight.grad is None


def test_a_receipt_serves_once() -> None:
    model, optimizer = trained()
    receipt = cut(model, small_edits(model), optimizer)
    assert repr(receipt) == "<Receipt: 7 tensors and 3 attributes cut>"
    receipt.restore()
    assert repr(receipt) == "<Receipt: 7 tensors and 3 attributes cut, spent>"
    before = state_of(model, optimizer)
    for way in (receipt.undo, receipt.restore):
        with pytest.raises(mk.ModuleKGError, match="was used already"):
            way()
    assert state_of(model, optimizer) == before


# -------------------------------------------------------------------- order


class Two(nn.Module):
    """Two axes that can be cut by themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(3, 6), nn.Linear(6, 5), nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.third(self.second(self.first(x).relu()).relu())


def two_cuts(model: nn.Module, names: tuple[str, str]) -> tuple[Any, Any]:
    """The receipts of two cuts, the second made on what the first left."""
    receipts = []
    for name in names:
        graph = mk.trace(model, torch.ones(1, 3))
        receipts.append(cut(model, edits_of(graph.cut_analysis(name, index=[1]))))
    return receipts[0], receipts[1]


@pytest.mark.parametrize("names", [("first.weight", "first.weight"), ("first.weight", "second.weight")])
def test_cuts_on_top_of_each_other_go_back_in_reverse_order(names: tuple[str, str]) -> None:
    model = seeded(Two)
    original = state_of(model)
    first, second = two_cuts(model, names)
    both = state_of(model)
    with pytest.raises(mk.ModuleKGError, match="undo the cut that changed it"):
        first.undo()
    assert state_of(model) == both
    second.undo()
    first.undo()
    assert state_of(model) == original


def test_cuts_that_do_not_meet_are_restored_in_any_order() -> None:
    model = seeded(lambda: nn.Sequential(Two(), Two()))
    shapes = [parameter.shape for parameter in model.parameters()]
    values = values_of(model)
    edits = [edits_by_hand(model, {f"{at}.first.weight": {0: [0, 1]}}) for at in range(2)]
    first, second = (cut(model, each) for each in edits)
    first.restore()
    with pytest.raises(mk.ModuleKGError, match="undo the cut that changed it"):
        second.undo()
    second.restore()
    assert [parameter.shape for parameter in model.parameters()] == shapes
    assert all(torch.equal(tensor, values[name]) for name, tensor in model.named_parameters())


def test_a_graph_from_before_the_cut_serves_after_undo() -> None:
    model, x = seeded(Two), torch.ones(2, 3, requires_grad=True)
    edits = edits_of(mk.trace(model, x.detach()).cut_analysis("second.weight", index=[1]))
    loss = model(x).square().sum()  # needs the weight of the first layer, which is not cut, for the gradient of x
    gradients = []
    for _ in range(2):
        model.zero_grad()
        loss.backward(retain_graph=True)
        gradients.append([bytes_of(parameter.grad) for parameter in model.parameters()])
        cut(model, edits).undo()
    assert gradients[0] == gradients[1]


# --------------------------------------------------------- what happened since


def assign(model: Small) -> None:
    model.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)


def replace_the_rest(model: Small) -> None:
    model.head.bias = nn.Parameter(torch.zeros(3))


def other_attribute(model: Small) -> None:
    model.conv.out_channels = 5


def other_shape(model: Small) -> None:
    model.head.bias.data = torch.zeros(4)


def other_dtype(model: Small) -> None:
    model.conv.weight.grad = None
    model.conv.weight.data = model.conv.weight.data.double()


def take_away(model: Small) -> None:
    model.norm = nn.Identity()  # type: ignore[assignment]


def untied(model: Small) -> None:
    model.norm.bias = model.norm.weight


@pytest.mark.parametrize(
    ("change", "message", "ways"),
    [
        (assign, "no longer the Parameter", ("undo", "restore")),
        (replace_the_rest, "head.bias is no longer the Parameter", ("undo",)),
        (other_attribute, "conv.out_channels", ("undo", "restore")),
        (other_shape, r"head.bias was \[3\] float32 on cpu and is \[4\]", ("undo",)),
        (other_dtype, "conv.weight was .* move the model back before you undo", ("undo",)),
        (take_away, "no tensor 'norm.weight'", ("undo", "restore")),
        (untied, "norm.weight is norm.bias too", ("undo", "restore")),
        (lambda model: model.double(), "move the model back", ("undo",)),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_changes(
    change: Callable[[Small], None], message: str, ways: tuple[str, ...]
) -> None:
    model, optimizer = trained()
    receipt = cut(model, small_edits(model), optimizer)
    change(model)
    before = state_of(model, optimizer)
    for way in ways:
        with pytest.raises(mk.ModuleKGError, match=message):
            getattr(receipt, way)()
    assert state_of(model, optimizer) == before
    assert "spent" not in repr(receipt)


def test_restore_follows_the_model_to_another_dtype_and_format() -> None:
    model = seeded(Small)
    before = values_of(model)
    receipt = cut(model, small_edits(model, GONE))
    model.double().to(memory_format=torch.channels_last)
    receipt.restore()
    assert model.conv.weight.dtype is torch.float64
    assert model.conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(model.conv.weight, before["conv.weight"].double())


class Moving(nn.Module):
    """Buffers that forward puts others in place of, makes, and computes with a graph behind them."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 3))
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("seen", None)
        self.register_buffer("last", torch.zeros(6))
        self.register_buffer("one", torch.ones(1).expand(6))
        self.note = torch.zeros(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x @ self.weight.t()
        self.mean = 0.5 * self.mean + 0.5 * y.detach().mean(0)
        self.seen = torch.tensor(len(x))
        self.last = y.mean(0)
        self.note = y.detach().sum()
        return y.sum(1)


def moving_edits(model: nn.Module) -> Any:
    return edits_by_hand(model, {name: {0: KEPT} for name in ("weight", "mean", "last")})


def test_buffers_that_forward_replaces_come_back_as_objects() -> None:
    model = seeded(Moving)
    before = state_of(model)
    receipt = cut(model, moving_edits(model))
    model(torch.ones(2, 3)).sum().backward()
    receipt.undo()
    assert state_of(model) == before
    assert model.seen is None


def test_buffers_that_forward_replaces_are_restored_with_what_they_have_by_now() -> None:
    model = seeded(Moving)
    model(torch.ones(2, 3))
    model.note = torch.ones(1)
    mean, last = model.mean.clone(), model.last
    receipt = cut(model, moving_edits(model))  # `last` has a graph behind it
    assert torch.equal(model.last, last[KEPT])
    model(torch.zeros(4, 3))
    receipt.restore()
    assert torch.equal(model.mean[KEPT], 0.5 * mean[KEPT])
    assert torch.equal(model.mean[GONE], mean[GONE])
    assert torch.equal(model.last[GONE], last[GONE])
    assert not model.last[KEPT].any()
    assert model.seen == 4


# ------------------------------------------------------------------ refusals


def lazy() -> tuple[nn.Module, str]:
    return nn.Sequential(nn.LazyLinear(6)), "before the first forward pass"


def sparse() -> tuple[nn.Module, str]:
    model = nn.Sequential(nn.Linear(3, 6))
    model[0].weight = nn.Parameter(torch.eye(6)[:, :3].to_sparse())  # type: ignore[assignment]
    return model, "only dense tensors"


def sparse_gradient() -> tuple[nn.Module, str]:
    model = nn.Sequential(nn.Embedding(6, 3, sparse=True))
    model(torch.tensor([1, 2])).sum().backward()
    return model, "sparse gradient"


def tied_since() -> tuple[nn.Module, str]:
    model = nn.Sequential(nn.Linear(3, 6), nn.Linear(3, 6))
    model[1].weight = model[0].weight
    return model, "0.weight is 1.weight too"


def other_model() -> tuple[nn.Module, str]:
    return nn.Sequential(nn.Linear(3, 7)), r"has shape \[7, 3\] where \[6, 3\] is expected"


@pytest.mark.parametrize("make", [lazy, sparse, sparse_gradient, tied_since, other_model])
def test_models_that_cannot_be_cut_are_refused_by_name(make: Callable[[], tuple[nn.Module, str]]) -> None:
    model, message = make()
    edits = edits_by_hand(nn.Sequential(nn.Linear(3, 6)), {"0.weight": {0: KEPT}})
    with pytest.raises(mk.ModuleKGError, match=message):
        cut(model, edits)


# ------------------------------------------------------------- copies of receipts


def saved_and_loaded(pair: Any) -> Any:
    file = io.BytesIO()
    torch.save(pair, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


WAYS = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda pair: pickle.loads(pickle.dumps(pair)),
    "torch.save": saved_and_loaded,
    "shallow": lambda pair: (pair[0], copy.copy(pair[1]), *pair[2:]),
}


class Sizes:
    """A plain object that keeps a size."""

    def __init__(self) -> None:
        self.heads = 4


class Heads(nn.Module):
    """Numbers that forward reads, in attributes, in a plain object, and a table in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes, self.head_dim = Sizes(), 4
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 3)
        self.tables = [torch.randn(16)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        heads = self.qkv(x).view(batch, length, 3, self.sizes.heads, self.head_dim)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        return self.out(mixed * self.tables[0])


class Deep(nn.Module):
    """Layers in a list, of which some go."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(ResidualLinear(16) for _ in range(4))
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return self.last(x)


def tagger() -> nn.Module:
    return SequenceTagger(nn.Linear(16, 8), nn.LSTM(8, 12, batch_first=True), 3)


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 3))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("make", "asked"),
    [
        (normalised, {"ratio": 0.5}), (Heads, {"ratio": 0.5}), pytest.param(tagger, {"ratio": 0.5}, id="Tagger-asked2"),
        (Deep, {"blocks": 2}), (Deep, {"blocks": 1, "ratio": 0.5}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("back", ["undo", "restore"])
def test_a_receipt_that_was_copied_with_its_model_brings_all_back(make: Any, asked: Any, way: str, back: str) -> None:
    model, x = seeded(make), torch.randn(2, 5, 16)
    optimizer = torch.optim.Adam(model.parameters())
    model(x).square().sum().backward()
    optimizer.step()
    average = copy.deepcopy(model)
    print_of, output = mk.fingerprint(model), model(x).detach()
    values = {name: value.clone() for name, value in model.state_dict().items()}
    momenta = copy.deepcopy(optimizer.state_dict())["state"]
    receipt = mk.plan(mk.trace(model, x), **asked).cut(model, optimizer, copies=[average])
    model, receipt, optimizer, average = WAYS[way]((model, receipt, optimizer, average))
    if back == "undo":
        model(x).square().sum().backward()
        optimizer.step()
    getattr(receipt, back)()
    assert mk.fingerprint(model) == print_of
    assert mk.fingerprint(average) == print_of
    assert all(torch.equal(value, values[name]) for name, value in model.state_dict().items())
    assert torch.equal(model(x), output)
    state = optimizer.state_dict()["state"]
    for index, own in momenta.items():
        assert all(torch.equal(state[index][key], value) for key, value in own.items())
    with pytest.raises(mk.ModuleKGError, match="was used already"):
        receipt.undo()


def test_the_original_can_go_on_after_its_receipt_was_copied() -> None:
    model = seeded(Heads)
    x, print_of = torch.randn(2, 5, 16), mk.fingerprint(model)
    receipt = mk.plan(mk.trace(model, x), ratio=0.5).cut(model)
    other, copied = pickle.loads(pickle.dumps((model, receipt)))
    receipt.undo()
    assert mk.fingerprint(model) == print_of
    assert mk.fingerprint(other) != print_of
    copied.undo()
    assert mk.fingerprint(other) == print_of
    assert other(x).shape == model(x).shape


@pytest.mark.parametrize("later", ["mask", "cut"])
@pytest.mark.parametrize("earlier", ["mask", "cut"])
def test_what_lies_below_a_later_receipt_stays_until_that_is_undone(earlier: str, later: str) -> None:
    model, other, x = seeded(normalised), seeded(normalised), torch.randn(4, 16)
    values = {name: value.clone() for name, value in model.state_dict().items()}
    first = getattr(mk.plan(mk.trace(model, x), ratio=0.5), earlier)(model)
    elsewhere = mk.plan(mk.trace(other, x), ratio=0.5).mask(other)  # of another model, and in nobody's way
    second = getattr(mk.plan(mk.trace(model, x), ratio=0.3), later)(model)
    both = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(mk.ModuleKGError, match=r"undo (that|the cut that changed it)"):
        first.undo()
    assert all(torch.equal(value, both[name]) for name, value in model.state_dict().items())
    second.undo()
    first.undo()
    assert all(torch.equal(value, values[name]) for name, value in model.state_dict().items())
    elsewhere.undo()


def test_a_mask_that_was_let_go_of_is_in_nobodys_way() -> None:
    model, x = seeded(normalised), torch.randn(4, 16)
    values = {name: value.clone() for name, value in model.state_dict().items()}
    receipt = mk.plan(mk.trace(model, x), ratio=0.5).cut(model)
    mk.plan(mk.trace(model, x), ratio=0.3).mask(model)
    receipt.undo()
    assert all(torch.equal(value, values[name]) for name, value in model.state_dict().items())


# -------------------------------------------------------------- inference mode


@pytest.mark.parametrize("made", [True, False])
@pytest.mark.parametrize("run", [True, False])
@pytest.mark.parametrize("undone", [True, False])
@pytest.mark.parametrize("way", ["undo", "restore", "mask", "copies"])
def test_models_made_in_inference_mode_or_cut_in_it_come_back(made: bool, run: bool, undone: bool, way: str) -> None:
    x = torch.randn(8, 16)
    plan = mk.plan(mk.trace(seeded(normalised), x), ratio=0.5)
    with torch.inference_mode(made):
        model, average = seeded(normalised), seeded(normalised)
    values = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.inference_mode(run):
        receipt = plan.mask(model) if way == "mask" else plan.cut(model, copies=[average] if way == "copies" else [])
    with torch.inference_mode():
        assert model(x).isfinite().all()
    with torch.inference_mode(undone):
        receipt.restore() if way == "restore" else receipt.undo()
    for each in (model, average):
        assert all(torch.equal(value, values[name]) for name, value in each.state_dict().items())
        assert all(parameter.is_inference() is made for parameter in each.parameters())
    if not made:
        model(x).sum().backward()
