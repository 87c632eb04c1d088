"""Low-rank adapters: nothing changes at first, little is trained, and the update merges into the weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from checks.model_state import unchanged
from models.functional import Lambda
from modulekg_widgets.engine.errors import RewritingError, UnknownPathError
from modulekg_widgets.engine.knowledge.zoo.torchvision_models import torchvision_builders
from modulekg_widgets.engine.rewriting.recipes.low_rank import LowRank, low_rank, merge_low_rank
from rewriting.recipes.samples import ResidualConvNet, copies, error, images, net, outputs


def trained(model: Any, seed: int = 0) -> Any:
    """The model with updates that do something."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, LowRank):
            with torch.no_grad():
                module.up.weight.copy_(torch.randn(module.up.weight.shape, generator=generator))
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_nothing_changes_at_first_and_merging_changes_nothing(dtype: torch.dtype) -> None:
    model, x = net(dtype=dtype), images(dtype=dtype)
    expected = outputs(model, x)
    adaptation = low_rank(model, ["head", "stem.0", "block.conv2"], rank=2, alpha=4, args=x)
    assert torch.equal(outputs(model, x)[0], expected[0])
    updated = outputs(trained(model), x)
    assert error(updated, expected) > 0.1
    merging = adaptation.merge()
    assert error(outputs(model, x), updated) < 20 * torch.finfo(dtype).eps
    assert (type(model.head), type(model.stem[0])) == (nn.Linear, nn.Conv2d)
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
    merging.undo()
    assert torch.equal(outputs(model, x)[0], updated[0])


def test_the_update_is_scaled_by_alpha_over_rank() -> None:
    model = nn.Sequential(nn.Linear(6, 5).double())
    before = model[0].weight.detach().clone()
    low_rank(model, "0", rank=2, alpha=8)
    trained(model)
    up, down = model[0].up.weight, model[0].down.weight
    assert (tuple(up.shape), tuple(down.shape)) == ((5, 2), (2, 6))
    merge_low_rank(model)
    assert torch.allclose(model[0].weight, before + 8 / 2 * up @ down, atol=1e-14)


@pytest.mark.parametrize("kind", ["1d", "2d", "3d"])
def test_convolutions_with_every_setting(kind: str) -> None:
    cls = {"1d": nn.Conv1d, "2d": nn.Conv2d, "3d": nn.Conv3d}[kind]
    conv = cls(4, 6, 3, stride=2, padding=2, dilation=2, padding_mode="replicate").double()
    model, x = nn.Sequential(conv), torch.randn(2, 4, *(9,) * int(kind[0])).double()
    low_rank(model, "0", rank=3, args=x)
    expected = outputs(trained(model), x)
    assert torch.equal(conv.weight, model[0].base.weight)
    merge_low_rank(model)
    assert error(outputs(model, x), expected) < 1e-14


def test_only_the_update_is_trained() -> None:
    model, x = net(), images()
    frozen = model.head.weight.detach().clone()
    adaptation = low_rank(model, "head", rank=2)
    assert adaptation.trainable[0] - adaptation.trainable[1] == 50 - 2 * (4 + 10)
    assert adaptation.trainable[1] == sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert [name for name, p in model.head.named_parameters() if p.requires_grad] == ["down.weight", "up.weight"]
    optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
    for _ in range(2):  # in the first step only B has a gradient
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    assert torch.equal(model.head.base.weight, frozen)
    assert all(p.grad is not None and p.grad.any() for p in (model.head.up.weight, model.head.down.weight))


def test_the_way_back() -> None:
    model, x = net(), images()
    model.head.weight.requires_grad_(False)
    with unchanged(model, x):
        adaptation = low_rank(model, ["head", "block.conv1"], rank=2)
        with torch.no_grad():
            trained(model)(x)
        merging = adaptation.merge()
        assert [p.requires_grad for p in model.head.parameters()] == [False, True]
        with pytest.raises(RewritingError, match="undo what came later first"):
            adaptation.undo()
        merging.undo()
        adaptation.undo()
    assert "2 layers" in repr(adaptation)
    assert "head: rank 2, 10 → 28" in repr(adaptation)


def test_the_seed_is_all_that_counts() -> None:
    first, second, other = net(), net(), net()
    for model, seed in ((first, 5), (second, 5), (other, 6)):
        torch.randn(seed)
        low_rank(model, "head", rank=2, seed=seed)
    assert torch.equal(first.head.down.weight, second.head.down.weight)
    assert not torch.equal(first.head.down.weight, other.head.down.weight)


@pytest.mark.slow
def test_a_vision_transformer_keeps_what_attention_reads() -> None:
    model = torchvision_builders()["vit_b_16"]().eval()
    x = torch.randn(1, 3, 224, 224)
    expected = outputs(model, x)
    adaptation = low_rank(model, rank=4)
    assert len(adaptation.layers) == 25
    assert not any("attention" in name for name in adaptation.names)
    assert torch.equal(outputs(model, x)[0], expected[0])
    attention = "encoder.layers.encoder_layer_0.self_attention.out_proj"
    with pytest.raises(RewritingError, match="is a subclass"):
        low_rank(model, attention)


def test_an_encoder_layer_that_reads_weights_without_calling() -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, 64, dropout=0.0, batch_first=True).eval()
    x = torch.randn(2, 3, 8)
    low_rank(model, rank=2)
    trained(model)
    with torch.no_grad():
        fast = model(x)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        assert torch.allclose(fast, model(x), atol=1e-5)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    before = nn.TransformerEncoderLayer(8, 2, 64, dropout=0.0, batch_first=True).eval()
    assert not torch.allclose(fast, before(x), atol=1e-3)


def test_attention_that_reads_the_weights_of_its_layers_reads_the_update_too() -> None:
    torch.manual_seed(0)
    model = torchvision_builders()["swin_t"]().eval()
    x = images(64, 1)
    expected = outputs(model, x)
    adaptation = low_rank(model, "features.1.0.attn.qkv", rank=2, args=x)
    assert torch.equal(outputs(model, x)[0], expected[0])
    updated = outputs(trained(model), x)
    assert error(updated, expected) > 0.01
    model(x).sum().backward()
    assert all(p.grad.any() for name, p in model.features[1][0].attn.qkv.named_parameters() if p.requires_grad)
    adaptation.merge()
    assert error(outputs(model, x), updated) < 1e-5


def tied() -> nn.Module:
    model = Lambda(lambda self, x: self.head(self.table(x)), table=nn.Embedding(50, 20), head=nn.Linear(20, 50))
    model.head.weight = model.table.weight
    return model


REFUSED: dict[str, tuple[Callable[[], nn.Module], dict[str, Any], type[Exception], str]] = {
    "rank": (net, {"rank": 0}, RewritingError, "at least 1"),
    "alpha": (net, {"alpha": float("nan")}, RewritingError, "finite number"),
    "class": (net, {"names": "stem.1"}, RewritingError, "it is a BatchNorm2d"),
    "tied": (tied, {"names": "head"}, RewritingError, r"tied to table\.weight"),
    "groups": (lambda: nn.Sequential(nn.Conv2d(4, 4, 3, groups=2)), {"names": "0"}, RewritingError, "2 groups"),
    "twice": (lambda: low_rank(net(), "head", rank=2).model, {"names": "head.base"}, RewritingError, "merge that"),
    "no names": (net, {"names": 5}, RewritingError, "names is an int"),
    "unknown": (net, {"names": "haed"}, UnknownPathError, "did you mean 'head'"),
    "root": (lambda: nn.Linear(90, 90), {}, RewritingError, "model itself"),
    "inputs": (net, {"names": "head", "args": torch.zeros(1, 5, 8, 8)}, mk.ModuleKGError, "expected input"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    make, options, kind, why = REFUSED[case]
    model = make()
    with unchanged(model), pytest.raises(kind, match=why):
        low_rank(model, **options)


def test_tied_layers_and_adapters_are_left_out() -> None:
    assert low_rank(tied(), rank=2).names == []
    model = nn.Sequential(nn.Linear(90, 90))
    assert [low_rank(model, rank=2).names, low_rank(model, rank=1).names] == [["0"], []]


def test_life_afterwards() -> None:
    names = ["head", "stem.0"]

    def fresh() -> nn.Module:
        other = ResidualConvNet().eval()
        low_rank(other, names, rank=2)
        return other

    model, x = net(), images()
    state = torch.get_rng_state()
    low_rank(model, names, rank=2)
    assert torch.equal(torch.get_rng_state(), state)
    expected = outputs(trained(model), x)
    for way, other in copies(model, fresh, x):
        assert error([other(x)], expected) < 1e-5, way


def test_a_layer_in_two_places_and_one_without_data() -> None:
    linear = nn.Linear(90, 90)
    model = Lambda(lambda self, x: self.b(self.a(x)), a=linear, b=linear)
    assert low_rank(model, rank=2).names == ["a"]
    assert model.a is model.b
    meta = nn.Sequential(nn.Linear(90, 90, device="meta"))
    assert low_rank(meta).merge().names == ["0"]
    assert all(parameter.is_meta for parameter in meta.parameters())
