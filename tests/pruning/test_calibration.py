"""Passes over batches: what they leave alone, what a batch may be, and what is said of one that is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import modulekg_widgets as mk
from models import seeded
from modulekg_widgets.engine.errors import CutError
from modulekg_widgets.engine.pruning.importance.activations import Activation
from modulekg_widgets.engine.pruning.importance.loss_criteria import Hessian, Taylor
from modulekg_widgets.engine.pruning.importance.scoring import score
from pruning.importance_samples import each_criterion, image, labels, pairs, snapshot, terms, traced

Tensor = torch.Tensor


# ------------------------------------------------------- what is left alone


@each_criterion
@pytest.mark.parametrize("mode", [True, False], ids=["training", "evaluation"])
def test_the_model_is_as_it_was(make: Any, mode: bool) -> None:
    model, graph = traced(mode)
    F.cross_entropy(model(image()), labels()).backward()
    model.stem.weight.requires_grad_(False)
    model.head.bias.grad = None
    before, kept = snapshot(model), {id(node): node.value for node in graph.values}
    with torch.inference_mode():
        score(graph.axes, terms(graph), make())
    assert snapshot(model) == before
    assert all(node.value is kept[id(node)] for node in graph.values)


def test_the_model_is_as_it_was_after_an_error() -> None:
    model, graph = traced(True)
    before = snapshot(model)

    def interrupted(output: Tensor, target: Tensor) -> Tensor:
        raise KeyboardInterrupt

    def wrong(output: Tensor, target: Tensor) -> Tensor:
        raise ValueError("no")

    for loss, error in ((interrupted, KeyboardInterrupt), (wrong, CutError)):
        with pytest.raises(error):
            score(graph.axes, terms(graph), Taylor(pairs(), loss))
        assert snapshot(model) == before
    batches = [image(), torch.ones(2, 4, 4, 4)]  # the second has a channel too many
    with pytest.raises(CutError, match="does not go through ConvAttention"):
        score(graph.axes, terms(graph), Activation(batches))
    assert snapshot(model) == before


def test_inputs_and_user_hooks_are_left_alone() -> None:
    class Rude(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 6)
            self.last = nn.Linear(6, 2)
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            x.mul_(2)
            return self.last(F.relu(self.first(x)))

    model = Rude()
    hook = model.first.register_forward_hook(lambda module, args, output: None)
    x = torch.randn(3, 4)
    graph, before = mk.trace(model, (x,)), x.clone()
    for criterion in (Activation([x]), Taylor([x], lambda output: output.sum())):
        score(graph.axes, terms(graph), criterion)
    assert torch.equal(x, before)
    assert x._version == 0
    assert model.calls == 0
    assert list(model.first._forward_hooks) == [hook.id]


def test_passes_are_reproducible_in_training_mode() -> None:
    _, graph = traced(True)
    for criterion in (Activation([image()]), Taylor(pairs(), F.cross_entropy)):
        first = score(graph.axes, terms(graph), criterion)
        torch.manual_seed(99)
        again = score(graph.axes, terms(graph), criterion)
        assert all(np.array_equal(first[term], again[term]) for term in first)


def test_the_mode_of_the_passes_can_be_set() -> None:
    model, graph = traced(True)
    in_training = score(graph.axes, terms(graph), Activation([image()]))
    at_rest = score(graph.axes, terms(graph), Activation([image()], training=False))
    assert any(not np.allclose(in_training[term], at_rest[term]) for term in at_rest)
    own = mk.trace(model.eval(), (image(),))
    expected = score(own.axes, terms(own), Activation([image()]))
    assert all(np.array_equal(a, b) for a, b in zip(at_rest.values(), expected.values(), strict=True))


def test_parameters_that_need_no_gradient_count_all_the_same() -> None:
    model, graph = traced()
    expected = score(graph.axes, terms(graph), Taylor(pairs(), F.cross_entropy))
    model.requires_grad_(False)
    found = score(graph.axes, terms(graph), Taylor(pairs(), F.cross_entropy))
    assert all(np.array_equal(found[term], expected[term]) for term in expected)
    assert not any(tensor.requires_grad for tensor in model.parameters())


# ------------------------------------------------------------------ batches


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(3, 5)
        self.right = nn.Linear(4, 5)
        self.last = nn.Linear(5, 2)

    def forward(self, a: Tensor, b: Tensor, scale: float = 1.0) -> Tensor:
        return self.last(torch.tanh(self.left(a) + self.right(b))) * scale


def test_batches_come_as_arguments_keywords_or_pairs() -> None:
    model = seeded(TwoInputs)
    a, b, y = torch.randn(6, 3), torch.randn(6, 4), torch.zeros(6, 2)
    graph = mk.trace(model, (a[:2], b[:2]), {"scale": 2.0})
    readings = [
        score(graph.axes, terms(graph), Activation([batch]))
        for batch in ((a, b), [a, b, y], ((a, b), y), {"a": a, "b": b})
    ]
    gradients = [
        score(graph.axes, terms(graph), Taylor([batch], loss))
        for batch, loss in (
            (((a, b), y), F.mse_loss),
            (({"a": a, "b": b}, y), nn.MSELoss()),
            ((a, b), lambda output: F.mse_loss(output, y)),
            ({"a": a, "b": b, "scale": 2.0}, lambda output, weight=None: F.mse_loss(output, y)),
        )
    ]
    for several in (readings, gradients):
        for other in several[1:]:
            assert all(np.array_equal(other[term], several[0][term]) for term in other)


def test_a_model_that_takes_a_list_gets_one() -> None:
    class OfImages(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(3, 4)
            self.last = nn.Linear(4, 2)

        def forward(self, images: list[Tensor]) -> Tensor:
            return self.last(torch.tanh(self.first(torch.stack(images))))

    images = [torch.randn(3), torch.randn(3)]
    graph = mk.trace(seeded(OfImages), ([torch.randn(3)],))
    found = [
        score(graph.axes, terms(graph), Activation([batch])) for batch in (images, (images,), (images, torch.zeros(2)))
    ]
    gradients = [
        score(graph.axes, terms(graph), Taylor([batch], loss))
        for batch, loss in (
            ((images, torch.zeros(2, 2)), F.mse_loss),
            (images, lambda output: F.mse_loss(output, torch.zeros(2, 2))),
        )
    ]
    for several in (found, gradients):
        for other in several[1:]:
            assert all(np.array_equal(other[term], several[0][term]) for term in other)


@pytest.mark.parametrize(
    ("batches", "loss", "message"),
    [
        ([], F.cross_entropy, "the batches are empty"),
        ([image()], F.cross_entropy, r"pairs \(inputs, target\), got a Tensor"),
        ([(image(), labels(), labels())], F.cross_entropy, "got 3 items"),
        ([(image(), labels())], lambda output, target: output, r"the shape \[2, 3\]: return one number"),
        ([(image(), labels())], lambda output, target: 3.0, "the loss returned a float"),
        ([(image(), labels())], lambda output, target: output.detach().sum(), "does not depend on the parameters"),
        ([(image(), labels(5))], F.cross_entropy, r"the loss stopped .* loss\(output, target\)"),
        ([(image().to("meta"), labels())], F.cross_entropy, "meta device has no data"),
        ([("text", labels())], F.cross_entropy, "batch 0 does not go through ConvAttention"),
        ([pairs()[0], (torch.ones(2, 4, 4, 4), labels())], F.cross_entropy, "batch 1 does not go through Conv"),
        ([pairs()[0], (image()[:0], labels()[:0])], F.cross_entropy, "batch 1 has no samples"),
        ([(image(), labels())], lambda output, target: output.sum() / 0, "the loss of batch 0 is -?inf: look for"),
        ([pairs()[0], (image() * float("nan"), labels())], F.cross_entropy, "the loss of batch 1 is nan: look for"),
    ],
)
def test_what_is_wrong_with_batches_or_loss_is_said(batches: Any, loss: Any, message: str) -> None:
    _, graph = traced()
    for criterion in (Taylor, Hessian):
        with pytest.raises(CutError, match=message):
            score(graph.axes, terms(graph), criterion(batches, loss))


def test_a_generator_gives_its_batches_once() -> None:
    _, graph = traced()
    criterion = Taylor(iter(pairs()), F.cross_entropy)
    score(graph.axes, terms(graph), criterion)
    with pytest.raises(CutError, match="a generator yields its items once"):
        score(graph.axes, terms(graph), criterion)
