"""Attributes follow a cut: those of the standard modules by table, a user's own by adapter or found by the dry run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, prune

import modulekg_widgets as mk
from axes.checks import seeded
from modulekg_widgets.engine.axes import attributes
from pruning.battery import differs, state_of
from pruning.standard_modules import CASES, COMPOSED, Case, Within, case, made_again, said_by

# a third dimension and a second form of the same call are for the night
LATE = ("1d_", "3d_", "_counts", "_without_bias", "_max", "_mean", "_of_two", "_norm_first", "_1_both", "_2")
EVERY = [pytest.param(name, marks=pytest.mark.nightly if any(map(name.__contains__, LATE)) else ()) for name in CASES]
TOO_NARROW = {"GroupNorm_4", "GroupNorm_4_plain"}  # groups of two channels: a quarter takes none of them


def run(net: nn.Module, x: torch.Tensor) -> None:
    """Forward and backward in both modes; without gradients, where torch has faster ways, it computes the same."""
    out = x
    for training in (True, False):
        net.train(training)
        out = net(x)
        out.square().mean().backward()
        grads = [parameter.grad for parameter in net.parameters() if parameter.grad is not None]
        assert grads
        assert all(bool(each.isfinite().all()) for each in (out, *grads))
        net.zero_grad()
    with torch.no_grad():
        assert torch.allclose(net(x), out, atol=1e-5)


def assert_said_right(net: nn.Module, x: torch.Tensor) -> None:
    """The attributes of the standard modules say what there is: constructors make the same of them."""
    for path, module in net.named_modules():
        if not isinstance(module, COMPOSED) and type(module).__module__.startswith("torch.nn"):
            fresh = made_again(module).train(module.training)
            fresh.load_state_dict(module.state_dict(), strict=True)
            assert repr(module) == repr(fresh), path
            assert said_by(module) == said_by(fresh), path
    # and where there are no tensors to compare with, what comes in does
    for name in {"num_features", "num_channels"} & set(said_by(net.inner)):
        widths: list[int] = []
        hook = net.inner.register_forward_pre_hook(lambda _, args: widths.append(args[0].shape[1]))
        net(x)
        hook.remove()
        assert widths == [getattr(net.inner, name)]


@contextmanager
def pruned(net: nn.Module, x: torch.Tensor, **how: Any) -> Iterator[mk.PruningPlan]:
    """A plan, with the model cut inside of the block and as it was behind it."""
    net.eval()
    before = state_of(net)
    plan = mk.plan(mk.trace(net, x), **how)
    assert not differs(before, state_of(net))
    receipt = plan.cut(net)
    assert sum(parameter.numel() for parameter in net.parameters()) == plan.params[1] < plan.params[0]
    run(net, x)
    yield plan
    receipt.undo()
    assert not differs(before, state_of(net))


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


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
def test_a_quarter_of_every_axis(name: str) -> None:
    given = case(name)
    if name in TOO_NARROW:
        with pytest.raises(mk.ModuleKGError, match="takes no index of any axis"):
            mk.plan(mk.trace(given.net, given.x), ratio=0.25)
        return
    _, changed = cut_and_looked_at(given, ratio=0.25)
    assert changed or not given.changes


ROUNDED = ("Conv2d", "Conv2d_grouped", "ConvTranspose2d_multiplied", "Bilinear", "LSTM_2_both", "MultiheadAttention")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ROUNDED else pytest.mark.nightly) for name in CASES]
)
def test_sizes_that_are_multiples_of_four(name: str) -> None:
    given = case(name)
    try:
        plan, _ = cut_and_looked_at(given, ratio=0.5, round_to=4)
    except mk.ModuleKGError as error:
        assert name in {"GroupNorm_4", "GroupNorm_4_plain"}, error  # whole groups of two would have to go
        return
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
    with pruned(net, torch.randn(3, 5), ratio=0.5):
        assert inner.num_features == 4


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


# ------------------------------------------------------------ a user's own


class DepthwiseConv(nn.Module):
    """A convolution of each channel by itself, as an author writes one who knows of no pruning."""

    def __init__(self, channels: int, size: int = 3) -> None:
        super().__init__()
        self.channels = channels
        self.weight = nn.Parameter(torch.randn(channels, 1, size, size))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, self.weight, self.bias, groups=self.channels)


class Labelled(DepthwiseConv):
    """The same with a number that forward does not read, which no dry run can find."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.shown_as = channels


def depthwise_net(cls: type[DepthwiseConv] = DepthwiseConv) -> nn.Sequential:
    return seeded(lambda: nn.Sequential(nn.Conv2d(3, 8, 1), cls(8), nn.ReLU(), nn.Conv2d(8, 3, 1)))


@pytest.fixture
def open_table() -> Iterator[None]:
    """What a test registers is gone behind it; users have no need to take an adapter back."""
    before = dict(attributes._adapters)
    yield
    attributes._adapters.clear()
    attributes._adapters.update(before)


def channels_of(sizes: attributes.Sizes) -> dict[str, int]:
    return {"channels": sizes.parameter("weight", 0)}


X = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(3))


def assert_cut_as_by_hand(net: nn.Sequential) -> mk.PruningPlan:
    """What the author of a `set_cut` would write: slices of four tensors, and the number of channels."""
    drop, keep = [1, 2, 6], [0, 3, 4, 5, 7]
    weights = [net[0].weight[keep], net[1].weight[keep], net[3].weight[:, keep]]
    first, own, last = [weight.detach().clone() for weight in weights]
    biases = [net[0].bias[keep].detach().clone(), net[1].bias[keep].detach().clone(), net[3].bias.detach().clone()]
    cut = mk.trace(net, X).cut_analysis("1.weight", drop)
    with pruned(net, X, cuts=[cut]) as plan:
        assert net[1].channels == 5
        assert [tuple(p.shape) for p in net[1].parameters()] == [(5, 1, 3, 3), (5,)]
        by_hand = F.conv2d(F.conv2d(X, first, biases[0]), own, biases[1], groups=5)
        assert torch.allclose(net(X), F.conv2d(by_hand.relu(), last, biases[2]), atol=1e-6)
    return plan


@pytest.mark.usefixtures("open_table")
def test_the_manuals_depthwise_convolution_with_an_adapter() -> None:
    mk.adapter(DepthwiseConv)(lambda sizes: {"channels": sizes.parameter("weight", 0)})
    plan = assert_cut_as_by_hand(depthwise_net())
    assert plan.changes == ()
    assert plan.edits.attributes["1.channels"] == (8, 5)


def test_the_manuals_depthwise_convolution_without_one() -> None:
    plan = assert_cut_as_by_hand(depthwise_net())
    (change,) = plan.changes
    assert change.kind == "attribute"
    assert "1.channels" in change.what
    assert "test_adapters.py:" in change.source


@pytest.mark.usefixtures("open_table")
def test_subclasses_inherit_and_the_nearest_class_decides() -> None:
    asked: list[str] = []

    @mk.adapter(DepthwiseConv)
    def of_all(sizes: attributes.Sizes) -> dict[str, int]:
        asked.append("all")
        return channels_of(sizes)

    with pruned(depthwise_net(Labelled), X, ratio=0.5) as plan:
        assert set(asked) == {"all"}
        assert "1.shown_as" not in plan.edits.attributes

    @mk.adapter(Labelled)
    def of_labelled(sizes: attributes.Sizes) -> dict[str, int]:
        asked.append("labelled")
        return {**channels_of(sizes), "shown_as": sizes.parameter("weight", 0)}

    asked.clear()
    net = depthwise_net(Labelled)
    with pruned(net, X, ratio=0.5):
        assert set(asked) == {"labelled"}
        assert net[1].shown_as == net[1].channels == 4
    with pruned(depthwise_net(), X, ratio=0.5):
        assert "all" in asked


@pytest.mark.usefixtures("open_table")
def test_bad_registrations_are_refused() -> None:
    mk.adapter(DepthwiseConv)(channels_of)
    with pytest.raises(mk.ModuleKGError, match="DepthwiseConv has an adapter already"):
        mk.adapter(DepthwiseConv)
    with pytest.raises(mk.ModuleKGError, match="Linear has an adapter already"):
        mk.adapter(Labelled, nn.Linear)(channels_of)
    assert Labelled not in attributes._adapters  # all of the classes or none
    for wrong in (int, DepthwiseConv(4), "Conv2d", channels_of):
        with pytest.raises(mk.ModuleKGError, match="subclasses of torch.nn.Module") as caught:
            mk.adapter(wrong)  # type: ignore[arg-type]
        assert isinstance(caught.value, TypeError)
    with pytest.raises(mk.ModuleKGError, match="name them"):
        mk.adapter()


CELL = """
@mk.adapter(cls)
def sizes_of(sizes):
    return {"channels": sizes.parameter("weight", 0), "shown_as": number}
"""


@pytest.mark.usefixtures("open_table")
def test_a_cell_of_a_notebook_may_run_again() -> None:
    for _ in range(2):
        exec(CELL, {"__name__": "__main__", "mk": mk, "cls": Labelled, "number": None})
    with pytest.raises(mk.ModuleKGError, match="has an adapter already"):
        exec(CELL, {"__name__": "theirs", "mk": mk, "cls": Labelled, "number": 1})
    with pytest.raises(mk.ModuleKGError, match="has an adapter already"):
        exec(CELL, {"__name__": "__main__", "mk": mk, "cls": nn.Linear, "number": 1})


@pytest.mark.usefixtures("open_table")
@pytest.mark.parametrize(
    ("sizes_of", "message"),
    [
        (lambda sizes: {"channels": sizes.parameter("wieght", 0)}, "has no tensor 'wieght': did you mean 'weight'"),
        (lambda sizes: {"channels": sizes.parameter("weight", 4)}, "there is no dimension 4"),
        (lambda sizes: {"channels": sizes.parameter("weight", 1)}, "gives channels=1 before the cut, where it is 8"),
        (lambda sizes: {"channels": 4.5}, "fails: TypeError"),
        (lambda sizes: 8, "fails: TypeError"),
        (lambda sizes: sizes.nothing, "fails: AttributeError"),
        (lambda sizes: {"channels": 8 // (8 - sizes.parameter("weight", 0))}, "fails: ZeroDivisionError"),
    ],
)
def test_an_adapter_that_is_wrong_is_named(sizes_of: Any, message: str) -> None:
    mk.adapter(DepthwiseConv)(sizes_of)
    net = depthwise_net()
    graph, before = mk.trace(net, X), state_of(net)
    for ask in (lambda: mk.plan(graph, ratio=0.5), lambda: graph.cut_analysis("1.weight", [0])):
        with pytest.raises(mk.ModuleKGError, match="the adapter for 1, a DepthwiseConv, .*@mk.adapter") as caught:
            ask()
        assert message in str(caught.value)
    assert not differs(before, state_of(net))


@pytest.mark.usefixtures("open_table")
def test_numbers_of_other_kinds_become_those_of_the_attribute() -> None:
    class Shaped(DepthwiseConv):
        def __init__(self, channels: int) -> None:
            super().__init__(channels)
            self.sizes, self.named, self.unused = [channels, 1], (channels, 3), None

    @mk.adapter(Shaped)
    def sizes_of(sizes: attributes.Sizes) -> dict[str, Any]:
        count = torch.tensor(sizes.parameter("weight", 0))
        return {"channels": count, "sizes": (count, 1), "named": [count, 3], "unused": 1, "not_there": 2}

    net = depthwise_net(Shaped)
    with pruned(net, X, ratio=0.5) as plan:
        assert (net[1].channels, net[1].sizes, net[1].named, net[1].unused) == (4, [4, 1], (4, 3), None)
        assert type(net[1].channels) is int
        assert not hasattr(net[1], "not_there")
    assert plan.changes == ()
