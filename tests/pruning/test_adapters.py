"""The attributes of the standard modules follow a cut: a constructor that gets them makes what the cut left."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, prune

import modulekg_widgets as mk
from models import seeded
from pruning.standard_modules import CASES, COMPOSED, Case, Within, case, made_again, pruned, said_by

# a third dimension and a second form of the same call are for the night
LATE = ("1d_", "3d_", "_counts", "_without_bias", "_max", "_mean", "_of_two", "_norm_first", "_1_both", "_2")
EVERY = [pytest.param(name, marks=pytest.mark.nightly if any(map(name.__contains__, LATE)) else ()) for name in CASES]
SOME = ("Conv2d", "Conv2d_grouped", "ConvTranspose2d_multiplied", "Bilinear", "LSTM_2_both", "MultiheadAttention")
A_FEW = [pytest.param(name, marks=() if name in SOME else pytest.mark.nightly) for name in CASES]
TOO_NARROW = {"GroupNorm_4", "GroupNorm_4_plain"}  # groups of two channels: a quarter takes none of them


def assert_said_right(net: Any, x: torch.Tensor) -> None:
    """The attributes of the standard modules say what there is: constructors make the same of them."""
    for path, module in net.named_modules():
        if not isinstance(module, COMPOSED) and type(module).__module__.startswith("torch.nn"):
            fresh = made_again(module).train(module.training)
            fresh.load_state_dict(module.state_dict(), strict=True)
            assert repr(module) == repr(fresh), path
            assert said_by(module) == said_by(fresh), path
    # and where there are no tensors to compare with, what comes in does
    said = {"num_features", "num_channels"} & set(said_by(net.inner))
    if said:
        widths: list[int] = []
        hook = net.inner.register_forward_pre_hook(lambda _, args: widths.append(args[0].shape[1]))
        net(x)
        hook.remove()
        assert widths == [getattr(net.inner, *said)]


def cut_and_looked_at(given: Case, **how: Any) -> tuple[mk.PruningPlan, dict[str, tuple[Any, Any]]]:
    """The plan, and the attributes of the module in the middle that it changed, before and after."""
    before = said_by(given.net.inner)
    with pruned(given.net, given.x, **how) as plan:
        assert_said_right(given.net, given.x)
        after = said_by(given.net.inner)
    return plan, {name: (before[name], after[name]) for name in before if before[name] != after[name]}


# -------------------------------------------------------- the standard modules


@pytest.mark.parametrize("name", EVERY)
def test_half_of_every_axis(name: str) -> None:
    given = case(name)
    plan, changed = cut_and_looked_at(given, ratio=0.5)
    assert sorted(changed) == sorted(given.changes)
    for before, after in changed.values():
        assert after == before // 2 if isinstance(before, int) else after == (before[0] // 2, *before[1:])
    assert all(change.kind == "scale" for change in plan.changes)  # the table knows them: no dry run had to find any


@pytest.mark.parametrize("name", A_FEW)
def test_a_quarter_of_every_axis(name: str) -> None:
    given = case(name)
    if name in TOO_NARROW:
        with pytest.raises(mk.ModuleKGError, match="removes no index of any axis"):
            mk.plan(mk.trace(given.net, given.x), ratio=0.25)
        return
    _, changed = cut_and_looked_at(given, ratio=0.25)
    assert changed or not given.changes


@pytest.mark.parametrize("name", A_FEW)
def test_sizes_that_are_multiples_of_four(name: str) -> None:
    plan, _ = cut_and_looked_at(case(name), ratio=0.5, round_to=4)
    assert plan.edits.tensors
    for edit in plan.edits.tensors:
        assert all(edit.shape_after[at] % 4 == 0 for at in edit.kept)


@pytest.mark.parametrize(
    "name", ["Conv1d_grouped", "Conv2d_grouped", "ConvTranspose2d_grouped", "ConvTranspose3d_grouped"]
)
def test_whole_groups_of_convolutions(name: str) -> None:
    _, changed = cut_and_looked_at(case(name), ratio=0.5, granularity="group")
    assert changed == {"in_channels": (8, 4), "out_channels": (16, 8), "groups": (4, 2)}


@pytest.mark.parametrize("name", ["GroupNorm_4", "GroupNorm_4_plain"])
def test_whole_groups_of_channels(name: str) -> None:
    plan, changed = cut_and_looked_at(case(name), ratio=0.5, granularity="group")
    assert changed == {"num_channels": (8, 4), "num_groups": (4, 2)}
    assert plan.changes == ()


@pytest.mark.parametrize("form", ["", "_batch_first", "_between", "_between_batch_first", "_with_more", "_of_three"])
def test_whole_heads(form: str) -> None:
    plan, changed = cut_and_looked_at(case(f"MultiheadAttention{form}"), ratio=0.5, granularity="head")
    assert changed["num_heads"] == (4, 2)
    assert changed["embed_dim"] == (16, 8)
    assert "head_dim" not in changed
    assert plan.changes == ()  # attention divides by the root of the size of a head, which stays


@pytest.mark.parametrize("name", ["TransformerEncoderLayer_batch_first", "TransformerDecoderLayer"])
def test_whole_heads_of_transformer_layers(name: str) -> None:
    given = case(name)
    with pruned(given.net, given.x, ratio=0.5, granularity="head"):
        assert_said_right(given.net, given.x)
        attention: Any = given.net.inner.self_attn
        assert (attention.num_heads, attention.head_dim, attention.embed_dim) == (2, 4, 8)


@pytest.mark.parametrize("cls", [nn.RNN, nn.LSTM, nn.GRU])
def test_both_directions_lose_the_same_count(cls: type[nn.RNNBase]) -> None:
    net, x, _ = case(f"{cls.__name__}_1_both")
    with torch.no_grad():
        net.inner.weight_ih_l0_reverse.mul_(0.01)  # what looks back seems to be of little use
    before = net.inner.hidden_size
    with pruned(net, x, ratio=0.4, scope="global") as plan:
        assert_said_right(net, x)
        assert net.inner.hidden_size < before
        assert any(change.kind == "tie" for change in plan.changes)
    dropped = [axis for axis in plan.axes if axis.size == before]
    assert len(dropped) == 2
    assert dropped[0].left == dropped[1].left


def test_what_walks_along_the_channels_keeps_them() -> None:
    conv = nn.Sequential(nn.Conv2d(3, 8, 3), nn.LocalResponseNorm(3), nn.Conv2d(8, 3, 1))
    graph = mk.trace(conv, torch.randn(2, 3, 5, 5))
    with pytest.raises(mk.ModuleKGError, match="no axis of the model is free"):
        mk.plan(graph, ratio=0.5)


# ------------------------------------------------------------ in odd places


class ByWeight(nn.Module):
    """Convolves with the weight of a layer that it does not call."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.into, self.inner, self.out = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 16, 3, groups=groups), nn.Conv2d(16, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(F.conv2d(self.into(x), self.inner.weight, self.inner.bias, groups=self.inner.groups))


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_a_layer_that_is_not_called_says_what_it_has(groups: int) -> None:
    net = seeded(lambda: ByWeight(groups))
    with pruned(net, torch.randn(2, 3, 5, 5), ratio=0.5) as plan:
        assert_said_right(net, torch.randn(2, 3, 5, 5))
        assert (net.inner.in_channels, net.inner.out_channels) == (4, 8)
    assert plan.changes == ()


@pytest.mark.filterwarnings("error:input's size at dim")
@pytest.mark.parametrize("affine", [True, False])
def test_without_a_batch_the_channels_come_first(affine: bool) -> None:
    inner = nn.InstanceNorm1d(8, affine=affine)
    net = seeded(lambda: Within(inner, [nn.Conv1d(3, 8, 1)], nn.Conv1d(8, 3, 1)))
    with pruned(net, torch.randn(3, 5), ratio=0.5) as plan:
        assert inner.num_features == 4
    assert plan.changes == ()


class LowRank(nn.Linear):
    """A linear layer without the weight that its class has."""

    def __init__(self, size: int) -> None:
        super().__init__(size, size)
        del self.weight
        self.first, self.second = nn.Parameter(torch.randn(4, size)), nn.Parameter(torch.randn(size, 4))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return F.linear(F.linear(input, self.first), self.second, self.bias)


class Turned(nn.Linear):
    """A linear layer whose weight stands the other way round."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__(width, size)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return input @ self.weight


def test_subclasses_that_mean_something_else_are_left_alone() -> None:
    net = seeded(lambda: nn.Sequential(nn.Linear(6, 8), LowRank(8), nn.Linear(8, 3)))
    with pruned(net, torch.randn(2, 6), ratio=0.5):
        assert net[1].first.shape == (2, 4)
        assert (net[1].in_features, net[1].out_features) == (8, 8)
    net = seeded(lambda: nn.Sequential(nn.Linear(6, 8), Turned(8, 12), nn.Linear(12, 3)))
    net[1].out_features, net[1].in_features = 12, 8  # says what comes out and goes in, not how the weight lies
    net[1].bias = None
    with pruned(net, torch.randn(2, 6), ratio=0.5):
        assert net[1].weight.shape == (4, 6)
        assert (net[1].out_features, net[1].in_features) == (12, 8)


@pytest.mark.parametrize(
    "wrap",
    [
        parametrizations.weight_norm, parametrizations.spectral_norm,
        lambda layer: prune.l1_unstructured(layer, "weight", 0.3),
    ],
    ids=["weight_norm", "spectral_norm", "prune"],
)  # fmt: skip
def test_wrapped_weights(wrap: Any) -> None:
    net = seeded(lambda: nn.Sequential(nn.Conv2d(3, 8, 1), wrap(nn.Conv2d(8, 8, 3, groups=8)), nn.Conv2d(8, 3, 1)))
    x = torch.randn(2, 3, 5, 5)
    with pruned(net, x, ratio=0.5):
        assert net[1].weight.shape == (4, 1, 3, 3)
        assert (net[1].in_channels, net[1].out_channels, net[1].groups) == (4, 4, 4)


def test_a_module_under_two_names() -> None:
    shared = nn.Conv2d(8, 8, 1, groups=2)
    net = seeded(lambda: nn.Sequential(nn.Conv2d(3, 8, 1), shared, nn.ReLU(), shared, nn.Conv2d(8, 3, 1)))
    with pruned(net, torch.randn(2, 3, 5, 5), ratio=0.5):
        assert net[1] is net[3]
        assert (shared.in_channels, shared.out_channels, shared.groups) == (4, 4, 2)
