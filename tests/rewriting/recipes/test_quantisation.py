"""Fake quantisation: what is found and quantised, its figures, training through it, and the way back."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torchvision
from torch import nn

import modulekg_widgets as mk
from checks.model_state import surroundings, unchanged
from models.functional import Lambda
from modulekg_widgets.engine.errors import RewritingError, UnknownPathError
from modulekg_widgets.engine.knowledge.zoo.torchvision_models import torchvision_builders
from modulekg_widgets.engine.operators.user_operators import user_operators
from modulekg_widgets.engine.rewriting.chains import find_chains
from modulekg_widgets.engine.rewriting.function_modules.context import function_modules
from modulekg_widgets.engine.rewriting.recipes.quantization import fake_quant
from modulekg_widgets.engine.rewriting.recipes.quantizers import FakeQuantized, Quantizer, quantizers
from rewriting.recipes.samples import ResidualConvNet, copies, error, images, net, outputs, with_statistics, zoo_model

CHAINS = (("stem.0", "stem.1", "stem.2"), ("block.conv1", "block.bn1"), ("block.conv2", "block.bn2"), ("head",))


def test_chains_sizes_and_agreement() -> None:
    model, x = net(), images()
    expected = outputs(model, x)
    before = sum(t.nbytes for t in (*model.parameters(), *model.buffers()))
    with unchanged(model, x):
        quantisation = fake_quant(model, x)
        assert quantisation.chains == CHAINS
        assert quantisation.skipped == ()
        assert (type(model.stem[0]), type(model.stem[1])) == (FakeQuantized, nn.Identity)
        (found,) = outputs(model, x)
        agreement = quantisation.agreement
        assert 0 < agreement.error < 0.05
        assert agreement.error == pytest.approx(((found - expected[0]).norm() / expected[0].norm()).item(), rel=1e-5)
        assert agreement.sqnr == pytest.approx(-20 * torch.tensor(agreement.error).log10().item(), rel=1e-5)
        assert agreement.top1 == (found.argmax(1) == expected[0].argmax(1)).double().mean()
        weights, scales, biases = 108 + 144 + 144 + 40, 4 * (4 + 4 + 4 + 10), 4 * (4 + 4 + 4 + 10)
        ranges = 8 * sum(len(quantizers(model.get_submodule(chain[0]))) - 1 for chain in CHAINS)
        assert quantisation.nbytes == (before, weights + scales + biases + ranges)
        quantisation.undo()
    assert "4 layers in 8 bits" in repr(quantisation)


def test_weights_per_channel_and_symmetric_activations_per_tensor_and_affine() -> None:
    model, x = net(), images()
    folded = (
        model.stem[0].weight * (model.stem[1].weight / (model.stem[1].running_var + 1e-5).sqrt())[:, None, None, None]
    )
    fake_quant(model, x, bits=4, activation_bits=6)
    chain = model.stem[0]
    weight = chain.layer.weight_fake_quant
    assert weight.scale.shape == (4,)
    assert not weight.zero_point.any()
    rows = folded.detach().flatten(1)
    assert torch.allclose(weight.scale, torch.maximum(rows.amax(1) / 7, -rows.amin(1) / 8), rtol=1e-5)
    assert len((weight(folded) / weight.scale[:, None, None, None]).round().unique()) <= 16
    assert chain.input.scale.shape == (1,)
    assert chain.input.scale.item() == pytest.approx((x.max() - x.min()).item() / 63, rel=1e-5)
    assert len(chain(x).unique()) <= 64
    assert chain(x).min() >= 0


def test_inputs_that_are_rounded_already_are_not_rounded_again() -> None:
    model = with_statistics(
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5), nn.Sigmoid(),
                      nn.Linear(5, 2))
    ).eval()  # fmt: skip
    fake_quant(model, images())
    assert [name for name, _ in model.named_children() if hasattr(model.get_submodule(name), "input")] == ["0", "6"]


@torch.library.custom_op("mkgquant::turned", mutates_args=())
def turned(first: int, second: int, x: torch.Tensor) -> torch.Tensor:
    return x.transpose(first, second).clone()


@turned.register_fake
def _(first: int, second: int, x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x.transpose(first, second))


@pytest.mark.parametrize("moved", [lambda x: x.transpose_(1, 2), lambda x: turned(1, 2, x)], ids=["in place", "like"])
def test_what_only_moves_numbers_does_so_in_place_and_under_another_name(moved: Any) -> None:
    if not user_operators.get("mkgquant::turned"):
        args = {"self": "x", "dim0": "first", "dim1": "second"}
        mk.axis_rule("mkgquant::turned", like="aten::transpose", args=args)
    model = Lambda(lambda self, x: self.b(moved(self.a(x).flatten(2))), a=nn.Conv2d(3, 36, 3), b=nn.Linear(36, 2))
    fake_quant(with_statistics(model).eval(), images())
    assert [hasattr(layer, "input") for layer in (model.a, model.b)] == [True, False]


def test_a_relu_that_must_stay_is_done_within_as_well() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.relu(self.bn(self.conv(x)), inplace=True).flatten(1))

    model = Lambda(forward, conv=nn.Conv2d(3, 4, 3), bn=nn.BatchNorm2d(4), head=nn.Linear(144, 3))
    model = with_statistics(model).eval()
    quantisation = fake_quant(model, images())
    assert quantisation.chains == (("conv", "bn"), ("head",))
    assert type(model.conv.activation) is nn.ReLU
    assert not model.conv.output.zero_point.any()  # nothing below 0 is kept room for
    assert not hasattr(model.head, "input")


def test_functions_in_a_chain() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.bn(self.conv(x)))

    torch.manual_seed(0)
    model = with_statistics(Lambda(forward, conv=nn.Conv2d(3, 4, 3), bn=nn.BatchNorm2d(4))).eval()
    x = images()
    expected = outputs(model, x)
    with function_modules(model, x):
        chains = find_chains(mk.trace(model, x), [nn.Conv2d, nn.BatchNorm2d, F.relu])
        assert len(chains) == 1
        quantisation = fake_quant(model, x, chains=chains)
        assert quantisation.chains == (tuple(chains[0]),)
        assert [type(mk_module) for mk_module in map(model.get_submodule, chains[0])] == [
            FakeQuantized, nn.Identity, nn.Identity,
        ]  # fmt: skip
        inside = outputs(model, x)
        assert error(inside, expected) < 0.05
        quantisation.undo()
    assert torch.equal(outputs(model, x)[0], expected[0])


# ---------------------------------------------------------------- accuracy


def quarters(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Noisy images and which of their quarters is bright."""
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(count, 3, 8, 8, generator=generator), torch.randint(4, (count,), generator=generator)
    for image, quarter in zip(x, y.tolist(), strict=True):
        row, column = divmod(quarter, 2)
        image[:, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] += 0.7
    return x, y


def train(model: nn.Module, steps: int, rate: float) -> None:
    x, y = quarters(512, 1)
    optimizer = torch.optim.Adam(model.parameters(), rate)
    model.train()
    for step in range(steps):
        part = slice(64 * step % 512, 64 * step % 512 + 64)
        optimizer.zero_grad()
        F.cross_entropy(model(x[part]), y[part]).backward()
        optimizer.step()
    model.eval()


@pytest.fixture(scope="module")
def classifier() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AvgPool2d(4),
        nn.Conv2d(8, 16, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(64, 4),
    )  # fmt: skip
    train(model, 40, 0.01)
    return model


def accuracy(model: nn.Module) -> float:
    x, y = quarters(400, 2)
    return float((model(x).argmax(1) == y).double().mean())


def test_accuracy_at_eight_and_two_bits_and_after_training(classifier: nn.Module) -> None:
    model, (x, _) = copy.deepcopy(classifier), quarters(64, 3)
    with unchanged(model):
        eight = fake_quant(model, x, evaluate=accuracy)
        eight.undo()
    assert eight.accuracy[0] == accuracy(model) > 0.95
    assert eight.accuracy[1] > eight.accuracy[0] - 0.01
    two = fake_quant(model, x, evaluate=accuracy, bits=2)
    assert two.accuracy[1] == accuracy(model) < 0.9
    train(model, 40, 0.01)
    assert accuracy(model) > two.accuracy[1] + 0.05
    assert "accuracy" in repr(two)


def test_gradients_reach_the_weights_and_ranges_follow_in_training_only() -> None:
    model, x = net(), images()
    fake_quant(model, x)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    model(3 * x)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    model.train()(3 * x).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert model.stem[0].input.scale > state["stem.0.input.scale"]
    assert model.stem[0].layer.bn.num_batches_tracked == 1
    model.eval()
    assert not any(quantizer.observer_enabled.item() for quantizer in quantizers(model))


def test_a_norm_with_zero_weights() -> None:
    model = with_statistics(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))).eval()
    nn.init.zeros_(model[1].weight)
    expected = outputs(model, images())
    fake_quant(model, images())
    assert error(outputs(model, images()), expected) < 0.01


def test_a_model_that_asks_for_the_dtype_of_a_weight() -> None:
    model = Lambda(lambda self, x: self.linear(x.to(self.linear.weight.dtype)), linear=nn.Linear(8, 4))
    assert fake_quant(model.eval(), images()).chains == (("linear",),)
    assert model.linear.bias is model.linear.layer.bias


def test_further_batches_tell_the_ranges() -> None:
    x = images()
    alone, more = net(), net()
    fake_quant(alone, x)
    fake_quant(more, x, batches=[3 * x, (5 * x,)])
    assert more.stem[0].input.scale.item() == pytest.approx(3 * alone.stem[0].input.scale.item(), rel=1e-4)


# --------------------------------------------------------- what is left alone


def test_what_is_skipped_and_why() -> None:
    class Own(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + 1

    model = Lambda(
        lambda self, x: self.encoder(self.own(self.up(x).mean(3)) + self.tied(x.mean(3)).sum()),
        up=nn.ConvTranspose2d(3, 4, 1), own=Own(8, 8), unused=nn.Linear(2, 2), tied=nn.Linear(8, 8),
        other=nn.Linear(8, 8), encoder=nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
    )  # fmt: skip
    model.other.weight = model.tied.weight
    quantisation = fake_quant(model.eval(), images())
    assert quantisation.chains == ()
    reasons = dict(quantisation.skipped)
    for name, why in {
        "up": "no quantised ConvTranspose2d", "own": "overrides forward", "unused": "not called",
        "tied": "tied to other.weight", "encoder.linear1": "nn.TransformerEncoderLayer reads its weight",
        "encoder.self_attn.out_proj": "is read outside it",
    }.items():  # fmt: skip
        assert why in reasons[name]
        assert f"{name}: not quantised, {reasons[name]}"[:60] in repr(quantisation)


class Asks(nn.Sequential):
    """Asks its layer for what only that has."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) / self[0].in_features


REFUSED: dict[str, tuple[Callable[[], nn.Module], dict[str, Any], type[Exception], str]] = {
    "bits": (net, {"bits": 9}, RewritingError, "from 2 to 8"),
    "activation bits": (net, {"activation_bits": 1}, RewritingError, "from 2 to 8"),
    "meta": (lambda: ResidualConvNet().to("meta"), {}, RewritingError, "meta device"),
    "text": (net, {"chains": ["stem.0"]}, RewritingError, "a list of names"),
    "no list": (net, {"chains": 5}, RewritingError, "chains is an int"),
    "numbers": (net, {"chains": [5]}, RewritingError, "a list of names"),
    "unknown": (net, {"chains": [["stem.7"]]}, UnknownPathError, "did you mean"),
    "order": (net, {"chains": [["stem.0", "stem.2", "stem.1"]]}, RewritingError, "then a batch norm"),
    "no chain": (net, {"chains": [["stem.0", "block.bn1"]]}, RewritingError, "its output is read by"),
    "twice": (net, {"chains": [["head"], ["head"]]}, RewritingError, "in two chains"),
    "no layer": (net, {"chains": [["stem.2"]]}, RewritingError, "no quantised ReLU6"),
    "infinite": (net, {"args": torch.full((1, 3, 8, 8), torch.inf)}, RewritingError, "not finite"),
    "accuracy": (net, {"evaluate": lambda model: "good"}, RewritingError, "one number"),
    "user": (net, {"evaluate": lambda model: 1 / (type(model.head) is nn.Linear)}, ZeroDivisionError, "division"),
    "inputs": (net, {"args": torch.zeros(1, 5, 8, 8)}, mk.ModuleKGError, "expected input"),
    "attribute": (lambda: Asks(nn.Linear(8, 8)), {}, RewritingError, "args, quantised, raised AttributeError"),
    "batches": (net, {"batches": [torch.zeros(1, 5, 8, 8)]}, RewritingError, "batch 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    make, options, kind, why = REFUSED[case]
    model, x = make(), images()
    with unchanged(model, x), pytest.raises(kind, match=why):
        fake_quant(model, **{"args": x, **options})


# -------------------------------------------------------------- afterwards


@pytest.mark.parametrize("training", [True, False])
def test_the_way_back_with_a_model_that_draws_and_counts(training: bool) -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.count += 1
        return self.head(F.dropout(self.norm(self.conv(x)) + torch.rand(1), training=self.training).mean((2, 3)))

    model = Lambda(forward, conv=nn.Conv2d(3, 4, 3), norm=nn.BatchNorm2d(4), head=nn.Linear(4, 2), calls=0)
    model.register_buffer("count", torch.zeros(()))
    x = images()
    model.train(training)
    before = surroundings()
    with unchanged(model, x):
        quantisation = fake_quant(model, x, batches=[x], evaluate=lambda model: float(model(x).sum()))
        assert surroundings() == before
        assert all(module.training is training for module in model.modules())
        assert (model.calls, model.count) == (0, 0)
        quantisation.undo()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes(dtype: torch.dtype) -> None:
    model, x = net(dtype=dtype), images(dtype=dtype)
    expected = outputs(model, x)
    quantisation = fake_quant(model, x)
    assert outputs(model, x)[0].dtype == dtype
    assert error(outputs(model, x), expected) < 0.1
    assert quantisation.nbytes[0] > quantisation.nbytes[1]
    assert {p.dtype for p in model.parameters()} == {dtype}


@pytest.mark.slow
def test_life_afterwards() -> None:
    def fresh() -> nn.Module:
        other = ResidualConvNet().eval()
        fake_quant(other, images())
        return other

    model, x = net(), images()
    fake_quant(model, x)
    expected = outputs(model, x)
    for way, other in copies(model, fresh, x):
        assert error([other(x)], expected) < 1e-5, way


def test_a_layer_in_two_places_and_one_that_is_called_twice() -> None:
    conv = nn.Conv2d(3, 3, 3, padding=1)
    model = Lambda(lambda self, x: self.b(self.a(x)), a=conv, b=conv)
    quantisation = fake_quant(model.eval(), images())
    assert quantisation.chains == (("a",),)
    assert model.a is model.b
    assert type(model.a) is FakeQuantized
    assert isinstance(model.a.input, Quantizer)


def test_a_model_that_is_one_layer() -> None:
    model = nn.Linear(3, 3)
    with unchanged(model), pytest.raises(RewritingError, match="model itself"):
        fake_quant(model, torch.zeros(2, 3))


ZOO = {"resnet18": 21, "mobilenet_v2": 53, "efficientnet_b0": 82, "densenet121": 121, "googlenet": 58}


@pytest.mark.parametrize("name", ZOO)
@pytest.mark.slow
def test_models_of_torchvision(name: str) -> None:
    model, (x,) = zoo_model(name)
    expected = outputs(model, x)
    quantisation = fake_quant(model, x)
    assert len(quantisation.chains) == ZOO[name]
    assert outputs(model, x)[0].shape == expected[0].shape
    parts = {name: module for name, module in model.named_modules() if isinstance(module, FakeQuantized)}
    assert len(parts) == ZOO[name]
    for part in quantizers(model):
        part.disable_fake_quant()
    assert error(outputs(model, x), expected) < 1e-4
    quantisation.undo()
    assert torch.equal(outputs(model, x)[0], expected[0])


@pytest.mark.nightly
def test_a_vision_transformer() -> None:
    model = torchvision_builders()["vit_b_16"]().eval()
    quantisation = fake_quant(model, torch.randn(1, 3, 224, 224))
    assert len(quantisation.chains) == 26
    assert len(quantisation.skipped) == 12
    assert quantisation.agreement.error < 0.2


@pytest.mark.parametrize("size", [1.0, 1e-2, 1e-4, 1e-6])
def test_the_error_does_not_depend_on_the_size_of_the_numbers(size: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32)).eval()
    with torch.no_grad():
        model[0].weight.mul_(size)
        model[0].bias.mul_(size)
    report = fake_quant(model, torch.randn(64, 32) * size)
    assert report.agreement is not None
    assert report.agreement.error < 0.03


def test_a_mobile_net_with_the_weights_that_it_begins_with() -> None:
    torch.manual_seed(0)
    model = torchvision.models.mobilenet_v2(weights=None).eval()  # its activations shrink from layer to layer
    report = fake_quant(model, torch.randn(4, 3, 64, 64))
    assert report.agreement is not None
    assert report.agreement.error < 0.15
