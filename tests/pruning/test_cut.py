"""A cut slices the same objects in place; a receipt takes it back byte for byte, or puts back what went."""

from __future__ import annotations

import copy
import io
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn import utils
from torch.nn.utils import parametrizations, prune

import modulekg_widgets as mk
from models import seeded
from models.recurrent import SequenceTagger
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

KEPT = [1, 2, 4, 5]
SIZES = {"0.out_features": (6, 4), "2.in_features": (6, 4)}


def pair() -> nn.Sequential:
    """Two linear layers: what goes from the first goes from what the second reads."""
    return seeded(lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)))


def pair_edits(model: nn.Module, *names: str) -> Any:
    """Take two features from between the layers; `names` are the tensors of the first."""
    made = {name: {0: KEPT} for name in names or ("0.weight", "0.bias")}
    return edits_by_hand(model, {**made, "2.weight": {1: KEPT}}, SIZES)


def train(model: nn.Module, x: torch.Tensor, steps: int = 2) -> float:
    """A few steps of plain descent; the last loss, which must be finite."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        out = model(x)
        loss = (out[0] if isinstance(out, tuple) else out).abs().float().square().mean()
        loss.backward()
        optimizer.step()
    assert loss.isfinite()
    return loss.item()


# -------------------------------------------------------------------- slices


def test_the_same_objects_hold_the_slices_in_memory_of_their_own() -> None:
    model, optimizer = trained()
    before, objects = values_of(model), dict(itertools.chain(model.named_parameters(), model.named_buffers()))
    grads = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}  # type: ignore[union-attr]
    groups = copy.deepcopy([{**group, "params": []} for group in optimizer.param_groups])
    cut(model, small_edits(model, (0, 3)), optimizer)
    kept = {"norm.num_batches_tracked": before["norm.num_batches_tracked"], "head.bias": before["head.bias"]}
    for name in ("conv.weight", "conv.bias", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"):
        kept[name] = before[name][KEPT]
    kept["head.weight"] = before["head.weight"][:, KEPT]
    assert {name: id(tensor) for name, tensor in objects.items()} == {
        name: id(tensor) for name, tensor in itertools.chain(model.named_parameters(), model.named_buffers())
    }
    for name, tensor in objects.items():
        assert torch.equal(tensor, kept[name])
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.itemsize
    assert torch.equal(model.head.weight.grad, grads["head.weight"][:, KEPT])  # type: ignore[arg-type]
    assert torch.equal(model.conv.weight.grad, grads["conv.weight"][KEPT])  # type: ignore[arg-type]
    assert (model.conv.out_channels, model.norm.num_features, model.head.in_features) == (4, 4, 4)
    assert [{**group, "params": []} for group in optimizer.param_groups] == groups


def test_a_graph_from_before_does_not_spoil_the_gradients() -> None:
    model = seeded(Small)
    graph = model.conv.weight.sum() * 2  # keeps what collects the gradients of the old shape alive
    seen: list[Any] = []
    model.conv.weight.register_hook(lambda grad: seen.append(grad.shape))
    model.conv.weight.register_post_accumulate_grad_hook(lambda tensor: seen.append(tensor.grad.shape))
    receipt = cut(model, small_edits(model))
    model(torch.ones(2, 2, 4, 4)).sum().backward()
    assert seen == [(4, 2, 3, 3)] * 2
    live = model.conv.weight.sum()
    receipt.undo()
    model.zero_grad()
    model(torch.ones(2, 2, 4, 4)).sum().backward()
    assert seen == [(4, 2, 3, 3)] * 2 + [(6, 2, 3, 3)] * 2
    assert graph.requires_grad
    assert live.requires_grad


@pytest.mark.filterwarnings("ignore:Complex modules are a new feature")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.complex64])
def test_dtypes(dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Identity(), nn.Linear(6, 2)).to(dtype)
    x = torch.ones(3, 4, dtype=dtype)
    train(model, x)
    before, state = values_of(model), state_of(model)
    receipt = cut(model, pair_edits(model))
    assert model[0].weight.dtype is model[0].weight.grad.dtype is dtype  # type: ignore[union-attr]
    assert bytes_of(model[0].weight) == bytes_of(before["0.weight"][KEPT])  # type: ignore[arg-type]
    train(model, x)
    receipt.undo()
    assert state_of(model) == state


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.uint16, torch.float8_e4m3fn, torch.complex128])
def test_buffers_of_every_dtype_come_back(dtype: torch.dtype) -> None:
    model = pair()
    model.register_buffer("scale", torch.arange(24).reshape(6, 4).to(dtype))
    before = bytes_of(model.scale)  # type: ignore[arg-type]
    receipt = cut(model, edits_by_hand(model, {"scale": {0: [1, 2], 1: [0, 3]}}))
    assert model.scale.shape == (2, 2)  # type: ignore[union-attr]
    assert model.scale.dtype is dtype  # type: ignore[union-attr]
    receipt.restore()
    assert bytes_of(model.scale) == before  # type: ignore[arg-type]


def test_memory_format_and_order_of_strides() -> None:
    model = seeded(Small).to(memory_format=torch.channels_last)
    model.register_buffer("turned", torch.arange(18.0).reshape(3, 6).t())
    receipt = cut(model, edits_by_hand(model, {"conv.weight": {0: KEPT}, "turned": {0: KEPT}}))
    assert model.conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert not model.conv.weight.is_contiguous()
    assert model.turned.stride() == (1, 4)  # type: ignore[union-attr]
    receipt.restore()
    assert model.conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert model.turned.stride() == (1, 6)  # type: ignore[union-attr]


def test_one_channel_of_a_pointwise_convolution_remembers_its_format() -> None:
    model = nn.Sequential(nn.Conv2d(5, 4, 1)).to(memory_format=torch.channels_last)
    strides = model[0].weight.stride()
    cut(model, edits_by_hand(model, {"0.weight": {1: [2]}})).restore()
    assert model[0].weight.stride() == strides


def test_models_without_data() -> None:
    model = pair().to("meta")
    before = state_of(model)
    receipt = cut(model, pair_edits(model))
    assert model(torch.ones(3, 4, device="meta")).shape == (3, 2)
    assert model[0].weight.shape == (4, 4)
    receipt.undo()
    assert state_of(model) == before


def test_inference_mode_makes_no_tensor_that_cannot_be_trained() -> None:
    model = pair()
    edits = pair_edits(model)
    with torch.inference_mode():
        receipt = cut(model, edits)
    train(model, torch.ones(3, 4))
    with torch.inference_mode():
        receipt.restore()
    train(model, torch.ones(3, 4))
    with torch.inference_mode():
        served = pair()
        before = state_of(served)
    receipt = cut(served, edits)
    assert served[0].weight.is_inference()
    with torch.inference_mode():
        assert served(torch.ones(3, 4)).shape == (3, 2)
    receipt.undo()
    assert state_of(served) == before
    assert served[0].weight.is_inference()


def test_flags_stay() -> None:
    model = pair()
    model[0].weight.requires_grad_(False)
    receipt = cut(model, pair_edits(model))
    train(model, torch.ones(3, 4))
    assert [parameter.requires_grad for parameter in model.parameters()] == [False, True, True, True]
    assert model[0].weight.grad is None
    receipt.restore()
    assert [parameter.requires_grad for parameter in model.parameters()] == [False, True, True, True]


# ------------------------------------------------------------------- modules


class Tied(nn.Module):
    """An embedding whose table is the weight of the last layer, and a layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 6)
        self.mix = nn.Linear(6, 6)
        self.again = self.mix
        self.out = nn.Linear(6, 7, bias=False)
        self.out.weight = self.table.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.table(x)
        return self.out(y + self.again(self.mix(y).relu()))


class Listed(nn.Module):
    """Parameters in a list and in a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.made = nn.ParameterList([torch.randn(6, 4), torch.randn(6)])
        self.read = nn.ParameterDict({"weight": torch.randn(2, 6)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(F.linear(x, *self.made).relu(), self.read["weight"])


def recurrent(kind: type[nn.RNNBase]) -> nn.Module:
    return SequenceTagger(None, kind(4, 6, batch_first=True, bidirectional=True), 2)


@pytest.mark.parametrize(
    ("build", "x", "name", "dim", "gone"),
    [
        (Tied, torch.tensor([[1, 5, 2]]), "table.weight", 1, [1, 3]),
        (Listed, torch.ones(3, 4), "made.0", 0, [1, 3]),
        (lambda: recurrent(nn.LSTM), torch.ones(2, 3, 4), "head.weight", 1, [1, 3, 6, 7]),
        (lambda: recurrent(nn.GRU), torch.ones(2, 3, 4), "head.weight", 1, [1, 3, 6, 7]),
    ],
    ids=["tied", "listed", "lstm", "gru"],
)
def test_tied_shared_listed_and_recurrent_parameters(
    build: Any, x: torch.Tensor, name: str, dim: int, gone: list[int]
) -> None:
    model = seeded(build)
    edits = edits_of(mk.trace(model, x).cut_analysis(name, index=gone, dim=dim))
    before, size = state_of(model), model.get_parameter(name).shape[dim]
    receipt = cut(model, edits)
    assert model.get_parameter(name).shape[dim] == size - len(gone)
    assert list(model.state_dict()) == list(seeded(build).state_dict())
    train(model, x)
    copy.deepcopy(model)(x)
    receipt.undo()
    assert state_of(model) == before
    if isinstance(model, Tied):
        assert model.out.weight is model.table.weight


def pruned(layer: nn.Linear) -> nn.Linear:
    prune.random_unstructured(layer, "weight", 0.3)
    return prune.random_unstructured(layer, "bias", 0.3)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (pruned, ["weight_orig", "weight_mask", "bias_orig", "bias_mask"]),
        (utils.weight_norm, ["weight_g", "weight_v", "bias"]),
        (utils.spectral_norm, ["weight_orig", "weight_u", "bias"]),
        (
            parametrizations.weight_norm,
            ["parametrizations.weight.original0", "parametrizations.weight.original1", "bias"],
        ),
        (parametrizations.spectral_norm, ["parametrizations.weight.original", "parametrizations.weight.0._u", "bias"]),
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_modules_that_compute_their_weight(make: Callable[[nn.Linear], nn.Linear], names: list[str]) -> None:
    model = pair()
    model[0] = make(model[0])  # type: ignore[arg-type]
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    train(model, x)
    model.eval()
    computed, before = model[0].weight.detach().clone(), state_of(model)
    edits = pair_edits(model, *(f"0.{name}" for name in names))
    receipt = cut(model, edits)
    if "weight" in vars(model[0]):  # right before the next forward pass
        if make is utils.spectral_norm:  # of norm 1 again
            part = vars(model[0])["weight"]
            assert torch.linalg.matrix_norm(part, 2).item() == pytest.approx(1, abs=1e-5)
            with torch.no_grad():
                model(x)
            assert torch.allclose(vars(model[0])["weight"], part, atol=1e-6)
        else:
            assert torch.equal(vars(model[0])["weight"], computed[KEPT])
        copy.deepcopy(model)
    train(model.train(), x)
    model.eval()
    receipt.undo()
    assert state_of(model) == before
    receipt = cut(model, edits)
    train(model, x)
    computed = model[0].weight.detach().clone()
    receipt.restore()
    if "weight" in vars(model[0]):
        assert torch.equal(vars(model[0])["weight"][KEPT], computed)
    assert model(x).shape == (3, 2)


def test_a_pruned_recurrent_layer_lists_what_it_computes() -> None:
    model = nn.Sequential(nn.RNN(4, 6))
    prune.random_unstructured(model[0], "weight_ih_l0", 0.5)
    before = state_of(model)
    kept = {f"0.{name}": {0: KEPT} for name in ("weight_ih_l0_orig", "weight_ih_l0_mask", "bias_ih_l0", "bias_hh_l0")}
    edits = edits_by_hand(model, {**kept, "0.weight_hh_l0": {0: KEPT, 1: KEPT}}, {"0.hidden_size": (6, 4)})
    receipt = cut(model, edits)
    assert model[0]._flat_weights[0] is model[0].weight_ih_l0
    train(model, torch.ones(3, 2, 4))
    receipt.undo()
    assert state_of(model) == before


def test_flattened_weights_move_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN's layout cannot be had without CUDA: the order of the steps is what is checked here."""
    model = nn.Sequential(nn.RNN(4, 6))
    pointers = [parameter.data_ptr() for parameter in model.parameters()]
    calls: list[list[int]] = []
    monkeypatch.setattr("modulekg_widgets.engine.pruning.cut.cut.layers_to_flatten", lambda walked, found: [model[0]])
    monkeypatch.setattr(model[0], "flatten_parameters", lambda: calls.append(list(model[0].weight_ih_l0.shape)))
    receipt = cut(model, edits_by_hand(model, {"0.weight_ih_l0": {1: [0, 2]}}, {"0.input_size": (4, 2)}))
    assert calls == [[6, 2]]
    assert not set(pointers) & {parameter.data_ptr() for parameter in model.parameters()}
    receipt.undo()
    assert pointers == [parameter.data_ptr() for parameter in model.parameters()]
    assert len(calls) == 1


# ---------------------------------------------------------------- afterwards


def test_a_cut_model_is_copied_saved_and_loaded() -> None:
    model, optimizer = trained()
    edits = small_edits(model)
    cut(model, edits, optimizer)
    twin = copy.deepcopy(model)
    step(model, optimizer)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    fresh = seeded(Small)
    cut(fresh, edits)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    x = torch.randn(2, 2, 4, 4)
    assert torch.equal(fresh.eval()(x), model.eval()(x))
    assert not torch.equal(twin.eval()(x), model(x))


def test_attributes_that_are_lists_are_not_shared_with_the_edits() -> None:
    model = pair()
    sizes = model.sizes = [4, 6, 2]
    edits = edits_by_hand(model, {"0.weight": {0: KEPT}}, {"sizes": ([4, 6, 2], [4, 4, 2])})
    receipt = cut(model, edits)
    model.sizes.append(9)
    assert edits.attributes["sizes"] == ([4, 6, 2], [4, 4, 2])
    model.sizes.pop()
    receipt.undo()
    assert model.sizes is sizes
