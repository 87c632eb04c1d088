"""What computes the same is found by data flow, whatever it is called; what does not is never taken for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import TraceError, UnknownNameError
from modulekg_widgets.engine.knowledge.equivalence.comparison import Equivalence, compare_models
from sampling import sampled

# timm's name, torchvision's, and where they part, empty for those that do not
SHARED = {
    ("resnet18", "resnet18"): "",
    ("resnet34", "resnet34"): "",
    ("resnet50", "resnet50"): "",
    ("wide_resnet50_2", "wide_resnet50_2"): "",
    ("resnext50_32x4d", "resnext50_32x4d"): "",
    ("densenet121", "densenet121"): "",
    ("mobilenetv2_100", "mobilenet_v2"): "",
    ("mnasnet_100", "mnasnet1_0"): "",
    ("efficientnet_b0", "efficientnet_b0"): "",
    ("inception_v3", "inception_v3"): "",
    ("regnety_004", "regnet_y_400mf"): "",
    ("vit_base_patch16_224", "vit_b_16"): "",
    ("vgg11", "vgg11"): r"convolution in 'pre_logits.fc1'.* where .* has aten::view",  # a linear layer written so
    ("mobilenetv3_large_100", "mobilenet_v3_large"): r"batch_norm in 'bn1'.* has eps 1e-05 against the 0.001",
    ("tf_efficientnet_b0", "efficientnet_b0"): "constant_pad_nd in 'conv_stem'",
    ("convnext_tiny", "convnext_tiny"): r"view in 'stages.0.blocks.0' \(of a weight of \[96\].* weight of \[96, 1, 1\]",
    ("regnetx_004", "regnet_x_400mf"): r"a weight of \[384, 160, 1, 1\].* a weight of \[400, 160, 1, 1\]",
    ("swin_tiny_patch4_window7_224", "swin_t"): "view in 'layers.0.blocks.0'",  # to (batch, places, channels)
}
IN_CI = (
    ("resnet18", "resnet18"),
    ("mobilenetv2_100", "mobilenet_v2"),
    ("vit_base_patch16_224", "vit_b_16"),
    ("vgg11", "vgg11"),
)
TRANSFERRED = ("resnet18", "densenet121", "mobilenetv2_100", "efficientnet_b0", "vit_base_patch16_224")


@cache
def zoo() -> mk.KnowledgeGraph:
    kg = mk.KnowledgeGraph()
    names = [name for name, _ in SHARED]
    kg.builders = {f"timm:{name}": builder for name, builder in mk.timm_builders(names).items()}
    return kg


@cache
def of_libraries(timm: str, torchvision: str) -> Equivalence:
    return zoo().equivalent(f"timm:{timm}", torchvision)


@pytest.mark.parametrize("pair", sampled(SHARED, IN_CI), ids=lambda pair: pair[0])
@pytest.mark.slow
def test_the_pairs_that_two_libraries_share(pair: tuple[str, str]) -> None:
    found = of_libraries(*pair)
    assert found.same == (not SHARED[pair]) == (not found.differs), found
    if found.same:
        assert found.modules["a"].iloc[0] == found.modules["b"].iloc[0] == ""
    else:
        assert re.search(SHARED[pair], found.differs), found.differs
        assert len(found.modules) > 10  # the parts that are the same
        assert found.parameters.empty


def random_state(model: nn.Module) -> None:
    """Weights and statistics that no two places have alike."""
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            scale = 1 / max(1, tensor[0].numel()) ** 0.5 if tensor.dim() > 1 else 0.2
            value = torch.randn_like(tensor) * scale
            tensor.copy_(value.abs() + 0.5 if "var" in name or (tensor.dim() == 1 and "weight" in name) else value)


@pytest.mark.parametrize("name", TRANSFERRED)
@pytest.mark.slow
def test_weights_that_go_where_it_says_give_the_same_outputs(name: str) -> None:
    timm, torchvision = next(pair for pair in SHARED if pair[0] == name)
    torch.manual_seed(0)
    a, b = zoo().builders[f"timm:{timm}"]().eval(), mk.torchvision_builders()[torchvision]().eval()
    random_state(a)
    random_state(b)
    own, other = {**dict(a.named_parameters()), **dict(a.named_buffers())}, b.state_dict()
    rows = of_libraries(timm, torchvision).parameters
    assert set(rows["b"]) == {key for key in other if not key.endswith("num_batches_tracked")}
    for name_a, name_b in zip(rows["a"], rows["b"], strict=True):
        other[name_b].copy_(own[name_a].detach())
    with torch.no_grad():
        x = torch.randn(2, 3, 224, 224)
        expected, result = a(x), b(x)
    assert expected.std() > 1e-3
    assert torch.allclose(expected, result, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


def test_the_modules_of_resnet18_exchange_their_states() -> None:
    torch.manual_seed(0)
    a, b = zoo().builders["timm:resnet18"]().eval(), mk.torchvision_builders()["resnet18"]().eval()
    random_state(a)
    random_state(b)
    moved = 0
    pairs = of_libraries("resnet18", "resnet18").modules
    for path_a, path_b in zip(pairs["a"], pairs["b"], strict=True):
        one, other = a.get_submodule(path_a), b.get_submodule(path_b)
        if not list(one.children()):
            other.load_state_dict(one.state_dict())
            moved += len(one.state_dict())
    assert moved == len(b.state_dict())
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.allclose(a(x), b(x), rtol=1e-5, atol=1e-5)


def test_modules_of_different_classes_correspond() -> None:
    pairs = {tuple(row) for row in of_libraries("resnet18", "resnet18").modules.itertuples(index=False)}
    block = "timm.models.resnet.BasicBlock", "torchvision.models.resnet.BasicBlock"
    assert ("layer4.1", "layer4.1", *block) in pairs
    assert all(a == b for a, b, *_ in pairs if a.startswith("layer") and not a.endswith(("act1", "act2")))


def test_same_as_is_a_relation_of_structures() -> None:
    table = zoo().same_as(["timm:resnet18", "resnet18"])
    assert list(table.columns) == ["function", "node", "class", "models"]
    assert table.groupby("function")["class"].nunique().min() == 2
    assert set(table["class"].str.rpartition(".")[2]) == {"BasicBlock", "ResNet"}
    assert table.attrs["left_out"] == {}
    assert zoo().same_as().empty  # no model of the graph itself
    with pytest.raises(UnknownNameError, match="nothing builds 'resnet19'"):
        zoo().same_as(["resnet19"])


# -------------------------------------------------------------- small functions


class Net(nn.Module):
    """A function of an input and layers."""

    def __init__(self, function: Callable[..., Any], *layers: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x, *self.layers)


def conv(**changes: Any) -> nn.Conv2d:
    return nn.Conv2d(**{"in_channels": 4, "out_channels": 4, "kernel_size": 3, "padding": 1, **changes})


def linear() -> nn.Linear:
    return nn.Linear(8, 8)


def same(a: nn.Module, b: nn.Module) -> bool:
    return compare_models(a, b, torch.ones(2, 4, 8, 8)).same


ALIKE: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[torch.Tensor], Any]]] = {
    "flatten": (lambda x: x.flatten(1), lambda x: x.view(2, -1)),
    "in place": (lambda x: (x * 2).relu_(), lambda x: (x * 2).relu()),
    "pool": (lambda x: x.mean((2, 3)), lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1)),
    "pool of nothing": (lambda x: F.adaptive_avg_pool2d(x, (8, 8)) + 1, lambda x: x + 1),
    "copies": (lambda x: x.clone().detach().contiguous() + 1, lambda x: x + 1),
    "dropout": (lambda x: F.dropout(x, 0.5, False) + 1, lambda x: nn.Identity()(x) + 1),
    "transposed twice": (lambda x: x.transpose(1, 2).transpose(1, 2) + 1, lambda x: x + 1),
    "permuted": (lambda x: x.permute(0, 2, 3, 1), lambda x: x.transpose(1, 2).transpose(2, 3)),
    "chunks": (lambda x: x.chunk(2, 1)[1] * 2, lambda x: x[:, 2:] * 2),
    "order of a sum": (lambda x: x.exp() + x.sin(), lambda x: x.sin() + x.exp()),
    "computed twice": (lambda x: x.exp() * x.exp().sin(), lambda x: (lambda e: e * e.sin())(x.exp())),
    "stride of a pool": (lambda x: F.max_pool2d(x, 2), lambda x: F.max_pool2d(x, 2, 2)),
    "one and 1.0": (lambda x: x + 1, lambda x: x + 1.0),
}


@pytest.mark.parametrize("name", ALIKE)
def test_spellings_of_one_function(name: str) -> None:
    a, b = ALIKE[name]
    x = torch.randn(2, 4, 8, 8)
    assert torch.allclose(a(x.clone()), b(x.clone()))
    assert same(Net(a), Net(b))


OTHERS: dict[str, tuple[nn.Module, nn.Module]] = {
    "stride": (conv(), conv(stride=2)),
    "padding": (conv(), conv(padding=0)),
    "how it is padded": (conv(), conv(padding_mode="reflect")),
    "dilation": (conv(), conv(dilation=2, padding=2)),
    "groups": (conv(), conv(groups=2)),
    "bias": (conv(), conv(bias=False)),
    "width": (nn.Sequential(conv(), conv()), nn.Sequential(conv(out_channels=5), conv(in_channels=5))),
    "activation": (nn.Sequential(conv(), nn.ReLU()), nn.Sequential(conv(), nn.ReLU6())),
    "kind of GELU": (nn.GELU(), nn.GELU("tanh")),
    "slope": (nn.LeakyReLU(0.1), nn.LeakyReLU(0.2)),
    "eps": (nn.BatchNorm2d(4), nn.BatchNorm2d(4, eps=1e-3)),
    "norm": (nn.GroupNorm(1, 4), nn.GroupNorm(2, 4)),
    "order of layers": (nn.Sequential(nn.ReLU(), nn.BatchNorm2d(4)), nn.Sequential(nn.BatchNorm2d(4), nn.ReLU())),
    "depth": (nn.Sequential(linear(), linear()), linear()),
    "operands": (Net(lambda x: x.exp() - x.sin()), Net(lambda x: x.sin() - x.exp())),
    "alpha of a sum": (Net(lambda x: torch.add(x, x.exp(), alpha=2)), Net(lambda x: torch.add(x, x.exp()))),
    "whose alpha": (
        Net(lambda x: torch.add(x.exp(), x.sin(), alpha=2)), Net(lambda x: torch.add(x.sin(), x.exp(), alpha=2))
    ),
    "shared weight": (Net(lambda x, a, b: b(a(x)), linear(), linear()), Net(lambda x, a: a(a(x)), linear())),
    "which weight is shared": (
        Net(lambda x, a, b: a(b(a(x))), linear(), linear()), Net(lambda x, a, b: b(b(a(x))), linear(), linear())
    ),
    "which weight": (
        Net(lambda x, a, b: a(x).exp() + b(a(x)), linear(), linear()),
        Net(lambda x, a, b: b(x).exp() + b(a(x)), linear(), linear()),
    ),
    "constant": (Net(lambda x: x * torch.tensor([1.0, 2] * 4)), Net(lambda x: x * torch.tensor([1.0, 3] * 4))),
    "which part": (Net(lambda x: x[:, :2] * 2), Net(lambda x: x[:, 2:] * 2)),
    "view for a transpose": (Net(lambda x: x.transpose(2, 3) * 2), Net(lambda x: x.reshape(2, 4, 8, 8) * 2)),
    "what is averaged": (Net(lambda x: x.mean((1, 2))), Net(lambda x: x.mean((2, 3))[:, :1].expand(2, 8))),
    "order of outputs": (Net(lambda x: (x.exp(), x.sin())), Net(lambda x: (x.sin(), x.exp()))),
    "rows of a product": (
        Net(lambda x, a: a(x.transpose(0, 2)).sum(0), linear()), Net(lambda x, a: a(x).sum(0), linear())
    ),
    "a parameter or statistics": (nn.BatchNorm2d(4, affine=False), nn.BatchNorm2d(4)),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_functions_are_not_the_same(name: str) -> None:
    a, b = OTHERS[name]
    x = torch.ones(2, 4, 8, 8)
    found = compare_models(a, b, x)
    assert not found.same
    assert found.differs
    assert found.parameters.empty
    assert same(a, a)
    assert same(b, b)


def test_tables_count_by_their_numbers_and_statistics_as_weights() -> None:
    class Table(nn.Module):
        table: torch.Tensor

        def __init__(self, number: float, persistent: bool) -> None:
            super().__init__()
            self.register_buffer("table", torch.full((8,), float(number)), persistent=persistent)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.table

    assert same(Table(1, False), Table(1, False))
    assert not same(Table(1, False), Table(2, False))
    assert same(Table(1, True), Table(2, True))
    without_data = compare_models(
        Table(1, False).to("meta"), Table(1, False).to("meta"), torch.ones(2, 8, device="meta")
    )
    assert not without_data.same
    assert "it cannot be told, as in a the numbers of table are not known" in without_data.differs


def test_what_is_not_followed_is_not_the_same() -> None:
    def written(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[:, 0] = 1
        return y

    found = compare_models(Net(written), Net(written), torch.ones(2, 3))
    assert "memory is written through another view" in found.differs
    drawn = compare_models(Net(torch.bernoulli), Net(torch.bernoulli), torch.ones(2, 3))
    assert "drawn at random" in drawn.differs
    asking = Net(lambda x: x.exp() if x.sum() > 0 else x)
    assert "may take another branch" in compare_models(asking, asking, torch.ones(2, 3)).differs


def test_parts_of_models_that_differ_as_wholes() -> None:
    a = nn.Sequential(conv(), nn.BatchNorm2d(4), nn.Sequential(conv(), nn.ReLU()))
    b = nn.Sequential(conv(stride=2), nn.BatchNorm2d(4), nn.Sequential(conv(), nn.ReLU()))
    found = compare_models(a, b, torch.ones(2, 4, 8, 8))
    assert found.modules.empty  # all sizes differ
    assert (
        "stride [1, 1] against the [2, 2]"
        in compare_models(a, nn.Sequential(conv(stride=2)), torch.ones(2, 4, 1, 1)).differs
    )
    b[0] = conv(bias=False)
    found = compare_models(a, b, torch.ones(2, 4, 8, 8))
    assert found.modules["a"].tolist() == found.modules["b"].tolist() == ["1", "2", "2.0", "2.1"]


def test_models_stay_as_they_are_and_the_answer_prints() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.BatchNorm1d(4)).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = mk.KnowledgeGraph().equivalent(model, nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), torch.ones(2, 4))
    assert found
    assert all(module.training for module in model.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert repr(found).startswith("<Sequential (a) and Sequential (b) are the same function; 3 pairs")
    assert "<table" in found._repr_html_()


def test_inputs_that_are_missing_and_builders_that_raise() -> None:
    kg = mk.KnowledgeGraph()
    with pytest.raises(TraceError, match="missing a required argument"):
        kg.equivalent(linear(), linear())
    with pytest.raises(UnknownNameError, match="did you mean"):
        kg.equivalent("resnet8", "resnet18")
    kg.builders = {"broken": lambda: nn.Linear(-1, 2)}
    with pytest.raises(TraceError, match="the builder of 'broken' raised"):
        kg.equivalent("broken", linear(), torch.ones(2, 8))


def test_it_iterates_over_pairs_of_paths() -> None:
    def net(*extra: nn.Module) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 8), *extra, nn.ReLU(), nn.Linear(8, 2))

    same = mk.KnowledgeGraph().equivalent(net(), net(nn.Dropout()), torch.ones(3, 4))
    assert list(same) == [("", ""), ("0", "0"), ("1", "2"), ("2", "3")]
    assert len(same) == 4
    assert list(same) == list(zip(same.modules["a"], same.modules["b"], strict=True))
    other = mk.KnowledgeGraph().equivalent(net(), net(nn.Tanh()), torch.ones(3, 4))
    assert not other
    assert ("0", "0") in list(other)
    assert ("", "") not in list(other)


def test_no_pairs_is_an_empty_answer_that_may_still_be_the_same() -> None:
    found = mk.KnowledgeGraph().equivalent(nn.Linear(4, 2), nn.Linear(4, 3), torch.ones(3, 4))
    assert (bool(found), list(found), len(found)) == (False, [], 0)
