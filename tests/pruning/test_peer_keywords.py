"""Keywords of other tools are told what says the same here; one batch in the place of several is told too."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.keywords import KEYWORD_ADVICE

MODEL = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
X = torch.randn(5, 4)
CALLS: dict[str, Callable[..., Any]] = {
    "mk.plan": lambda **how: mk.plan(mk.trace(MODEL, X), **how),
    "mk.trace": lambda **how: mk.trace(MODEL, X, **how),
    "mk.Monitor": lambda **how: mk.Monitor(MODEL, **how),
    "mk.rewrite.find": lambda **how: mk.rewrite.find(MODEL, nn.Linear, **how),
    "mk.rewrite.replace": lambda **how: mk.rewrite.replace(MODEL, "0", lambda name, module: module, **how),
    "mk.rewrite.fold_conv_bn": lambda **how: mk.rewrite.fold_conv_bn(MODEL, X, **how),
    "mk.rewrite.fake_quant": lambda **how: mk.rewrite.fake_quant(MODEL, X, **how),
    "mk.rewrite.low_rank": lambda **how: mk.rewrite.low_rank(MODEL, **how),
    "mk.speedup": lambda **how: mk.speedup(MODEL, None, X, **how),
}


@pytest.mark.parametrize(
    ("call", "there", "here"),
    [
        ("mk.plan", "ignored_layers", "keep="),
        ("mk.plan", "pruning_ratio", "ratio="),
        ("mk.plan", "global_pruning", "scope='global'"),
        ("mk.plan", "num_heads", "granularity='head'"),
        ("mk.plan", "example_inputs", "args of mk.trace"),
        ("mk.plan", "config_list", "per_axis="),
        ("mk.plan", "sparsity", "ratio="),
        ("mk.trace", "dummy_input", "args of mk.trace"),
        ("mk.trace", "example_inputs", "args of mk.trace"),
        ("mk.trace", "input_size", "torch.randn"),
        ("mk.Monitor", "log_freq", "linear(5, 0)"),
        ("mk.Monitor", "wandb", "sinks="),
        ("mk.rewrite.find", "target_class", "cls"),
        ("mk.rewrite.replace", "inplace", "undo()"),
        ("mk.rewrite.fold_conv_bn", "modules_to_fuse", "fold_conv_bn"),
        ("mk.rewrite.fake_quant", "qconfig", "bits=8"),
        ("mk.rewrite.low_rank", "r", "rank=8"),
        ("mk.speedup", "dummy_input", "args of mk.trace"),
        ("mk.plan", "ratoi", "'ratio'"),  # of no tool
        ("mk.trace", "trainig", "'training'"),
    ],
)
def test_a_keyword_of_another_tool_is_told_ours(call: str, there: str, here: str) -> None:
    with pytest.raises(TypeError) as caught:
        CALLS[call](**{there: 1})
    assert isinstance(caught.value, mk.ModuleKGError)
    text = str(caught.value)
    assert text.startswith(f"{call} takes no keyword '{there}'")
    assert here in text


@pytest.mark.parametrize("call", CALLS)
def test_no_keyword_of_another_tool_hides_one_of_ours(call: str) -> None:
    function = mk
    for name in call.split(".")[1:]:
        function = getattr(function, name)
    ours = inspect.signature(function).parameters
    assert "kwargs" not in KEYWORD_ADVICE
    for keyword in KEYWORD_ADVICE.keys() - ours.keys():
        with pytest.raises(TypeError, match="takes no keyword"):
            CALLS[call](**{keyword: 1})


@pytest.mark.parametrize("batches", [(X, torch.zeros(5, dtype=torch.long)), [X, torch.zeros(5)], X, {"input": X}])
@pytest.mark.parametrize(
    "criterion",
    [
        lambda batches: mk.pruning.Taylor(batches),
        lambda batches: mk.pruning.Taylor(batches, nn.functional.cross_entropy),
        lambda batches: mk.pruning.Hessian(batches, nn.functional.cross_entropy),
        lambda batches: mk.pruning.Activation(batches),
    ],
)
def test_one_batch_in_the_place_of_batches_is_told(batches: Any, criterion: Callable[[Any], Any]) -> None:
    with pytest.raises(mk.ModuleKGError, match=r"write \[\(X, y\)\]"):
        criterion(batches)


def test_a_pair_that_could_be_two_batches_is_told_when_it_fails() -> None:
    graph = mk.trace(MODEL, X)
    with pytest.raises(mk.ModuleKGError, match=r"write \[\(X, y\)\]"):
        mk.plan(graph, ratio=0.5, importance=mk.pruning.Taylor((X, torch.zeros(5, 3)), nn.MSELoss()))
    with pytest.raises(mk.ModuleKGError, match=r"write \[\(X, y\)\]"):
        mk.plan(graph, ratio=0.5, importance=mk.pruning.Activation((X, torch.zeros(5, 3))))


def test_batches_are_what_they_were() -> None:
    graph = mk.trace(MODEL, X)
    for batches in ([X, X[:2]], (X, X), [(X, torch.zeros(5, 3))]):
        assert mk.plan(graph, ratio=0.5, importance=mk.pruning.Activation(batches)).axes
    pair = [(X, torch.zeros(5, dtype=torch.long))]
    assert mk.plan(graph, ratio=0.5, importance=mk.pruning.Taylor(pair, nn.functional.cross_entropy)).axes
