"""A branch that runs and whose result nobody reads follows the cut like any reader: its weights must fit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.axes.inference.inference import has_consistent_sizes
from pruning.battery import differs, state_of


class Idle(nn.Module):
    """`body` makes what `svg_header` reads, and `idle` reads too, for nothing."""

    def __init__(self, body: nn.Module, idle: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.body, self.idle, self.head = body, idle, head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        self.idle(y)
        return self.head(y.relu())


class Run(nn.Module):
    """A function of one value."""

    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(8, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> Any:
        return self.attention(x, x, x)


IMAGES: dict[str, Callable[[], nn.Module]] = {
    "Conv2d": lambda: nn.Conv2d(8, 5, 1),
    "grouped Conv2d": lambda: nn.Conv2d(8, 8, 3, groups=4),
    "depthwise Conv2d": lambda: nn.Conv2d(8, 16, 3, groups=8),
    "ConvTranspose2d": lambda: nn.ConvTranspose2d(8, 5, 2),
    "grouped ConvTranspose2d": lambda: nn.ConvTranspose2d(8, 12, 2, groups=4),
    "BatchNorm2d": lambda: nn.BatchNorm2d(8),
    "BatchNorm2d without gain": lambda: nn.BatchNorm2d(8, affine=False),
    "GroupNorm": lambda: nn.GroupNorm(4, 8),
    "GroupNorm without gain": lambda: nn.GroupNorm(4, 8, affine=False),
    "InstanceNorm2d": lambda: nn.InstanceNorm2d(8, affine=True, track_running_stats=True),
    "PReLU": lambda: nn.PReLU(8),
    "Linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(8 * 16, 5)),
    "PixelShuffle": lambda: nn.Sequential(nn.PixelShuffle(2), nn.Conv2d(2, 3, 1)),
    "several": lambda: nn.Sequential(nn.Conv2d(8, 6, 1), nn.BatchNorm2d(6), nn.ReLU(), nn.ConvTranspose2d(6, 8, 1)),
    "a parameter": Scaled,
    "no weights": lambda: Run(lambda x: x.cumsum(1)[:, 3].argmax(1)),
}
SEQUENCES: dict[str, Callable[[], nn.Module]] = {
    "Linear": lambda: nn.Linear(8, 5),
    "LayerNorm": lambda: nn.LayerNorm(8),
    "LSTM": lambda: nn.LSTM(8, 5, 2, bidirectional=True, batch_first=True),
    "MultiheadAttention": Attention,
    "TransformerEncoderLayer": lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
}


def around(idle: Callable[[], nn.Module], of_images: bool) -> tuple[nn.Module, torch.Tensor]:
    """A model with an idle branch, and an input."""
    if of_images:
        return Idle(nn.Conv2d(3, 8, 3, padding=1), idle(), nn.Conv2d(8, 4, 1)), torch.randn(2, 3, 4, 4)
    return Idle(nn.Linear(6, 8), idle(), nn.Linear(8, 3)), torch.randn(2, 5, 6)


CASES = [
    *(pytest.param(idle, True, id=f"{name} of images") for name, idle in IMAGES.items()),
    *(pytest.param(idle, False, id=f"{name} of sequences") for name, idle in SEQUENCES.items()),
]


@pytest.mark.parametrize(("idle", "of_images"), CASES)
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_an_idle_branch_follows_the_cut(idle: Callable[[], nn.Module], of_images: bool, training: bool) -> None:
    torch.manual_seed(0)
    model, x = around(idle, of_images)
    for module in model.modules():
        if isinstance(module, nn.Dropout | nn.TransformerEncoderLayer | nn.MultiheadAttention):
            module.train(False)
    model.body.train(training), model.head.train(training)
    graph = mk.trace(model, x)
    plan = mk.plan(graph, ratio=0.5)
    before, twin = state_of(model), copy.deepcopy(model)
    receipt = plan.cut(model)
    assert model.body.weight.shape[0] == 4
    with torch.no_grad():
        (edit,) = [edit for edit in plan.edits.tensors if "head.weight" in edit.names]
        gone = sorted(set(range(8)) - set(edit.kept[1].tolist()))
        twin.head.weight[:, gone] = 0
        assert torch.allclose(model(x), twin(x), atol=1e-5)
    receipt.undo()
    counts = {name for name in before if "running" in name or "num_batches" in name}
    after = state_of(model)
    assert not differs({k: v for k, v in before.items() if k not in counts},
                       {k: v for k, v in after.items() if k not in counts})  # fmt: skip


LOUDEST_FIRST = torch.linspace(8, 1, 8)


def largest(group: Any) -> torch.Tensor:
    return sum(member.tensor.abs().amax(1) for member in group.members)


@pytest.mark.parametrize("importance", ["l1", "l2", "fpgm", "bn_scale", largest])
def test_an_idle_branch_has_no_say_in_what_goes(importance: Any) -> None:
    torch.manual_seed(0)
    model = Idle(nn.Linear(6, 8), nn.Linear(8, 500), nn.Linear(8, 3)).eval()
    with torch.no_grad():
        model.body.weight.copy_(torch.rand(8, 6).sub(0.5) * LOUDEST_FIRST[:, None])
        model.body.bias.zero_()
        model.head.weight.copy_(LOUDEST_FIRST.expand(3, 8))
        model.idle.weight.copy_(100 * LOUDEST_FIRST.flip(0).expand(500, 8))  # the other way round, and louder
    graph = mk.trace(model, torch.randn(2, 5, 6))
    (axis,) = [cut for cut in mk.plan(graph, ratio=0.5, importance=importance).axes if cut.size == 8]
    model.idle.weight.detach().zero_()
    (alone,) = [cut for cut in mk.plan(graph, ratio=0.5, importance=importance).axes if cut.size == 8]
    assert axis.dropped == alone.dropped
    assert set(axis.dropped) >= {6, 7}


def test_an_axis_of_idle_weights_alone_can_be_judged() -> None:
    torch.manual_seed(0)
    model = Idle(nn.Linear(6, 8), nn.Sequential(nn.Linear(8, 10), nn.ReLU(), nn.Linear(10, 5)), nn.Linear(8, 3)).eval()
    graph = mk.trace(model, torch.randn(2, 5, 6))
    for importance in ("l1", "fpgm", largest):
        plan = mk.plan(graph, per_axis={("idle.0.weight", 0): 0.5}, importance=importance)
        assert [cut.left for cut in plan.axes] == [5]


def test_what_only_an_idle_branch_reads_hinders_no_proof() -> None:
    torch.manual_seed(0)
    model = Idle(nn.Conv2d(3, 8, 3), nn.ConvTranspose2d(8, 5, 2), nn.Conv2d(8, 4, 1)).eval()
    axes = mk.trace(model, torch.randn(1, 3, 6, 6)).axes
    axis = axes["body.weight", 0]
    assert ("idle.weight", 0) in {(member.name, member.dim) for member in axis.members}
    assert axes.verify()[axis.name].status == "proved"
    assert "is not used" in (axes["idle.weight", 1].frozen or "")


class Loose(nn.Module):
    """Adds two values of one size for nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.left, self.right = (nn.Linear(*size) for size in ((4, 8), (4, 8), (8, 2), (8, 3)))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = self.a(x), self.b(x)
        a + b
        return self.left(a), self.right(b.relu())


def test_two_axes_that_meet_for_nothing_stay_two_of_one_size() -> None:
    torch.manual_seed(0)
    model, x = Loose(), torch.randn(3, 4)
    axes = mk.trace(model, x).axes
    assert axes["a.weight", 0] is not axes["b.weight", 0]
    plan = mk.plan(mk.trace(model, x), per_axis={"a": [0, 1, 2], "b": [4, 5]})
    assert len({axis.left for axis in plan.axes}) == 1
    plan.cut(model)
    model(x)


def test_an_empty_part_of_a_split_divides_nothing_by_zero() -> None:
    class Split(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head, self.free = nn.Linear(4, 5), nn.Linear(5, 6), nn.Linear(6, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.body(x)
            y.split([1, 4, 0], 1)
            return self.free(self.head(y).relu())

    model, x = Split(), torch.randn(3, 4)
    plan = mk.plan(mk.trace(model, x), ratio=0.5)
    assert {axis.size for axis in plan.axes} == {6}
    plan.cut(model)
    model(x)


def transposed(channels: int) -> nn.Module:
    """A transposed convolution of 4 channels by a weight for another number."""
    weight = torch.zeros(channels, 5, 2, 2)
    return Run(lambda x: torch.ops.aten.convolution(x, weight, None, [1, 1], [0, 0], [1, 1], True, [0, 0], 1))


@pytest.mark.parametrize(("channels", "fits"), [(4, True), (8, False)])
def test_the_dry_run_sees_shapes_that_a_kernel_without_data_accepts(channels: int, fits: bool) -> None:
    operators = mk.trace(transposed(channels), torch.zeros(1, 4, 4, 4)).operators
    assert [operator.name for operator in operators] == ["aten::convolution"]
    assert has_consistent_sizes(operators[0]) is fits


# ------------------------------------------------- a branch that is not taken


class Taken(nn.Module):
    """Takes one of two branches by a flag; the third is of sizes that nothing else has."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.other, self.apart = (nn.Linear(*n) for n in ((4, 8), (8, 3), (8, 3), (5, 7)))
        self.is_other = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.body(x).relu()
        return self.other(hidden) if self.is_other else self.head(hidden)


def test_a_branch_that_is_not_taken_and_keeps_its_sizes_is_named() -> None:
    graph = mk.trace(Taken().eval(), torch.randn(2, 4))
    (note,) = mk.plan(graph, ratio=0.5).notes
    assert note.startswith("the traced pass does not read other.weight, so their sizes are kept")
    assert mk.plan(graph, cuts=[graph.cut_analysis("body.weight", [1])]).notes == (note,)
    assert note in str(mk.plan(graph, target={"params": 0.9}))


def test_nothing_is_named_where_nothing_is_left_behind() -> None:
    model = Taken().eval()
    model.other = nn.Linear(5, 7)
    assert mk.plan(mk.trace(model, torch.randn(2, 4)), ratio=0.5).notes == ()
    layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).eval()
    assert mk.plan(mk.trace(layers, torch.randn(2, 4)), ratio=0.5).notes == ()


def test_an_adapter_that_is_not_active_is_named() -> None:
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4
    )
    base = transformers.LlamaForCausalLM(config)
    model = peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules=["q_proj"])).eval()
    tokens = torch.randint(0, 64, (1, 6))
    assert mk.plan(mk.trace(model, tokens), ratio=0.5).notes == ()
    model.add_adapter("second", peft.LoraConfig(r=2, target_modules=["q_proj"]))
    (note,) = mk.plan(mk.trace(model, tokens), ratio=0.5).notes
    assert "q_proj.lora_A.second.weight, base_model" in note
    assert "default" not in note
