"""The proof itself: it finds planted errors, says when it proves nothing, and leaves the model alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from models import seeded
from modulekg_widgets.engine.axes.proof.verify import NOT_PROVED, PROVED, WRONG
from modulekg_widgets.engine.axes.terms.algebra import find


class TwoBranches(nn.Module):
    """Two hidden widths that have nothing to do with each other."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 6), nn.Linear(3, 6)
        self.out_a, self.out_b = nn.Linear(6, 2), nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out_a(self.a(x).relu()) + self.out_b(self.b(x).tanh())


def test_all_axes_of_a_sound_graph_are_proved() -> None:
    proof = mk.trace(seeded(TwoBranches), torch.randn(4, 3)).axes.verify()
    assert (proof.ok, proof.wrong, proof.not_proved) == (True, [], [])
    assert proof.proved == ["a.out", "b.out"]
    assert proof.error < 1e-12
    assert proof.bipartitions == 8
    assert proof["a.out"].status == PROVED


def test_a_missing_coupling_is_found_and_named() -> None:
    axes = mk.trace(seeded(TwoBranches), torch.randn(4, 3)).axes
    # as if the rule of `linear` had forgotten that it sums over the hidden width
    node = axes.graph.state["out_a.weight"]
    axes.inference.dims(node)[1] = axes.inference.algebra.fresh(6)
    proof = axes.verify()
    assert (proof.ok, proof.wrong) == (False, ["a.out"])
    assert proof["b.out"].status == PROVED
    assert proof["a.out"].status == WRONG


def test_two_independent_axes_that_were_merged_are_found() -> None:
    axes = mk.trace(seeded(TwoBranches), torch.randn(4, 3)).axes
    first, second = (find(axes.term(name, 0)) for name in ("a.weight", "b.weight"))
    second.link = first
    axes.tensor_dims[first] = [*axes.tensor_dims[first], *axes.tensor_dims.pop(second)]
    del axes._axes[second]
    proof = axes.verify(bipartitions=100)
    # permuting all of it is right, but half of it can be permuted without the rest
    assert proof["a.out"].status == NOT_PROVED
    assert "without the others" in proof["a.out"].note


def test_a_silent_member_is_not_proved() -> None:
    model = seeded(lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)))
    # in training a bias before a batch normalisation is taken away again
    proof = mk.trace(model, torch.randn(5, 3), training=True).axes.verify()
    assert proof.ok
    assert proof["0.out"].status == NOT_PROVED
    assert "0.bias" in proof["0.out"].note


def test_weak_weights_do_not_hide_an_error() -> None:
    model = seeded(TwoBranches)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1e-12)
        model.out_b.weight.zero_()
    axes = mk.trace(model, torch.randn(4, 3)).axes
    node = axes.graph.state["out_b.weight"]
    axes.inference.dims(node)[1] = axes.inference.algebra.fresh(6)
    assert axes.verify().wrong == ["b.out"]


class Cached(nn.Module):
    """Keeps what it computes from its weights, and starts with an empty cache."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(5))
        self.a, self.b = nn.Linear(3, 5), nn.Linear(5, 2)
        self.kept: dict[str, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if "bias" not in self.kept:
            self.kept["bias"] = self.bias * 2
        return self.b(self.a(x) + self.kept["bias"])


def test_a_model_that_caches_tensors_is_restored_and_proved() -> None:
    model = seeded(Cached).eval()
    x = torch.randn(2, 3)
    graph = mk.trace(model, x)
    assert model.kept == {}
    assert graph.axes.verify().ok
    assert model.kept == {}
    assert model(x).device.type == "cpu"
    expected = model(x)
    # with a full cache the parameter is not read: it is listed and frozen, never free
    again = mk.trace(model, x)
    assert again.axes.unread == ["bias"]
    assert "not read" in str(again.axes["bias", 0].frozen)
    assert torch.equal(model(x), expected)
    assert list(model.kept) == ["bias"]


class Counts(nn.Module):
    """Adds to a plain tensor in every forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.held = nn.Linear(3, 4), torch.zeros(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        self.held.add_(y.detach().mean(0).to(self.held.dtype))
        return y.sum(1)


def test_plain_tensors_are_as_before() -> None:
    model = seeded(Counts)
    held = model.held
    mk.trace(model, torch.randn(5, 3)).axes.verify()
    assert model.held is held
    assert torch.equal(held, torch.zeros(4))


def test_the_model_is_as_before() -> None:
    model = seeded(lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2))).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    graph = mk.trace(model, torch.randn(5, 3, generator=torch.Generator().manual_seed(1)))
    assert graph.axes.verify().ok
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.get_default_dtype() == torch.float32
    assert all(module.training for module in model.modules())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())


def test_a_model_without_weights_cannot_be_proved() -> None:
    with torch.device("meta"):
        model = TwoBranches()
    axes = mk.trace(model, torch.randn(4, 3)).axes
    assert [axis.name for axis in axes.free] == ["a.out", "b.out"]
    with pytest.raises(mk.ModuleKGError, match="meta device"):
        axes.verify()


def test_other_inputs_can_be_given() -> None:
    axes = mk.trace(seeded(TwoBranches), torch.randn(4, 3)).axes
    assert axes.verify((torch.randn(4, 3),)).ok


def test_a_model_that_was_cut_is_traced_anew() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    graph = mk.trace(model, torch.randn(2, 3))
    receipt = mk.plan(graph, ratio=0.5).cut(model)
    with pytest.raises(mk.ModuleKGError, match="trace the model again"):
        graph.axes.verify()
    receipt.undo()
    assert graph.axes.verify().ok


class Backwardless(torch.autograd.Function):
    """Goes forward only, as a reversible layer does in eval mode."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.relu()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        raise AssertionError("no backward in eval mode")


def test_a_backward_that_raises_is_done_without() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(Backwardless.apply(self.a(x)))  # pyright: ignore[reportArgumentType]

    found = mk.trace(Model(), torch.randn(3, 4)).axes.verify()
    assert found.ok
    assert found.proved == ["a.out"]
