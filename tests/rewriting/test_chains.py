"""Chains follow the data, through containers, branches and functions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import modulekg_widgets as mk
from checks.model_state import unchanged
from models.functional import Lambda
from models.zoo import zoo_case
from rewriting.samples import Block, net

find_chains = mk.rewrite.find_chains
RELU = "function_modules.relu_0"


def chains(model: nn.Module, pattern: list[Any], *inputs: torch.Tensor, **options: Any) -> list[list[str]]:
    return find_chains(mk.trace(model, inputs), pattern, **options)


def test_modules_through_containers() -> None:
    model, x = net()
    assert chains(model, [nn.Conv2d, nn.BatchNorm2d, nn.ReLU], x) == [["stem.0", "stem.1", "stem.2"]]
    convs = ["stem", "blocks.0", "blocks.1", "tail.0"]
    found = chains(model, [nn.Conv2d, nn.BatchNorm2d], x)
    assert found == [["stem.0", "stem.1"], *([f"{path}.conv", f"{path}.norm"] for path in convs[1:])]
    assert chains(model, [Block, Block, Block], x) == [
        ["blocks.0", "blocks.1", "blocks.0"],
        ["blocks.1", "blocks.0", "tail.0"],
    ]
    assert chains(model, [nn.ReLU, Block], x) == [["stem.2", "blocks.0"]]
    assert chains(model, [nn.Sequential, Block], x) == [["stem", "blocks.0"]]


def test_functions() -> None:
    model, x = net()
    conv_norm_relu = chains(model, [nn.Conv2d, nn.BatchNorm2d, F.relu], x)
    assert conv_norm_relu == [[f"{at}.conv", f"{at}.norm", f"{at}.{RELU}"] for at in ("blocks.0", "blocks.1", "tail.0")]
    assert chains(model, [torch.add, nn.MaxPool2d], x) == [["tail.0.function_modules.add_0", "tail.1"]]
    assert chains(model, [F.relu, torch.add], x) == []  # the sum has two inputs
    assert chains(model, [F.adaptive_avg_pool2d, torch.flatten, nn.Linear], x) == [
        ["function_modules.adaptive_avg_pool2d_0", "function_modules.flatten_0", "head"]
    ]
    assert chains(model, [nn.BatchNorm2d, (nn.ReLU, F.relu)], x)[0] == ["stem.1", "stem.2"]
    assert len(chains(model, [nn.BatchNorm2d, (nn.ReLU, F.relu)], x)) == 4


def test_the_names_are_those_of_the_function_modules() -> None:
    model, x = net()
    pattern = [nn.Conv2d, nn.BatchNorm2d, F.relu]
    graph = mk.trace(model, x)
    before = find_chains(graph, pattern)
    with mk.rewrite.function_modules(model, x) as functions:
        assert {names[-1] for names in before} <= set(functions.names)
        assert find_chains(mk.trace(model, x), pattern) == before
        assert find_chains(graph, pattern) == before  # a graph of before
        assert find_chains(mk.trace(model, x), [nn.BatchNorm2d, mk.rewrite.FunctionModule])[0][0] == "blocks.0.norm"


def test_exact_classes() -> None:
    class MyConv(nn.Conv2d):
        pass

    model = nn.Sequential(MyConv(3, 3, 1), nn.ReLU(), nn.Conv2d(3, 3, 1), nn.ReLU())
    x = torch.randn(1, 3, 4, 4)
    assert chains(model, [nn.Conv2d, nn.ReLU], x) == [["0", "1"], ["2", "3"]]
    assert chains(model, [nn.Conv2d, nn.ReLU], x, include_super_class=False) == [["2", "3"]]


def test_a_branch_is_in_every_chain_that_reads_it() -> None:
    model = Lambda(lambda m, x: m.b(m.a(x)) + m.c(m.a(x)), a=nn.ReLU(), b=nn.Linear(3, 3), c=nn.Linear(3, 3))
    assert chains(model, [nn.ReLU, nn.Linear], torch.randn(2, 3)) == [["a", "b"], ["a", "c"]]
    once = Lambda(lambda m, x: (lambda y: m.b(y) + m.c(y))(m.a(x)), a=nn.ReLU(), b=nn.Linear(3, 3), c=nn.Linear(3, 3))
    assert chains(once, [nn.ReLU, nn.Linear], torch.randn(2, 3)) == [["a", "b"], ["a", "c"]]


def test_weights_are_no_inputs() -> None:
    model = Lambda(lambda m, x: m.b(F.linear(m.a(x), m.b.weight.t() * 2)), a=nn.ReLU(), b=nn.Linear(3, 3, bias=False))
    found = chains(model, [nn.ReLU, F.linear, nn.Linear], torch.randn(2, 3))
    assert found == [["a", "function_modules.linear_0", "b"]]


def test_something_between_ends_a_chain() -> None:
    model = Lambda(lambda m, x: m.b(m.a(x) * 2), a=nn.ReLU(), b=nn.Linear(3, 3))
    assert chains(model, [nn.ReLU, nn.Linear], torch.randn(2, 3)) == []
    assert chains(model, [nn.ReLU, torch.mul, nn.Linear], torch.randn(2, 3)) == [["a", "function_modules.mul_0", "b"]]


def test_what_does_nothing_is_passed_through_and_found() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(), nn.Identity(), nn.ReLU()).eval()
    x = torch.randn(2, 3)
    assert chains(model, [nn.Linear, nn.ReLU], x) == [["0", "3"]]
    assert chains(model, [nn.Linear, nn.Dropout, nn.ReLU], x) == [["0", "1", "3"]]
    model.train()
    assert chains(model, [nn.Linear, nn.ReLU], x) == []
    assert chains(model, [nn.Linear, nn.Dropout, nn.ReLU], x) == [["0", "1", "3"]]


def test_a_model_that_can_only_be_traced() -> None:
    huge = torch.empty(1 << 45, 3, device="meta")
    assert chains(
        nn.Sequential(nn.Linear(3, 3, device="meta"), Lambda(lambda m, x: F.relu(x))), [nn.Linear, F.relu], huge
    ) == [["0", "1.function_modules.relu_0"]]

    def forward(m: Lambda, x: torch.Tensor) -> torch.Tensor:
        if not x.is_meta:
            raise MemoryError("too large")
        return F.relu(m.inner(x))

    model = Lambda(forward, inner=nn.Linear(3, 3))
    assert chains(model, [nn.Linear, F.relu], torch.randn(2, 3)) == [["inner", "function_modules.relu_0"]]


def test_several_results_and_keywords() -> None:
    model = Lambda(lambda m, x: m.head(m.lstm(x)[0]), lstm=nn.LSTM(3, 4), head=nn.Linear(4, 2))
    assert chains(model, [nn.LSTM, nn.Linear], torch.randn(5, 2, 3)) == [["lstm", "head"]]
    named = Lambda(lambda m, x: m.b(input=m.a(input=x)), a=nn.ReLU(), b=nn.Linear(3, 3))
    assert chains(named, [nn.ReLU, nn.Linear], torch.randn(2, 3)) == [["a", "b"]]


@pytest.mark.slow
def test_the_whole_zoo_has_the_chains_that_it_is_built_of() -> None:
    for name, pairs in {"resnet50": 53, "mobilenet_v2": 52, "densenet121": 59, "googlenet": 57}.items():
        model, inputs = zoo_case(name)
        graph = mk.trace(model, inputs)
        with unchanged(model, inputs):
            assert len(find_chains(graph, [nn.Conv2d, nn.BatchNorm2d])) == pairs, name
    assert len(find_chains(graph, [nn.Conv2d, nn.BatchNorm2d, F.relu])) == 57


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ([], "by a list of classes"),
        ("conv", "by a list of classes"),
        (nn.Conv2d, "by a list of classes"),
        ([nn.Conv2d, "relu"], "neither a module class nor a function"),
        ([int], "no module is of the class int"),
    ],
)
def test_bad_patterns(pattern: Any, message: str) -> None:
    model, x = net()
    with pytest.raises(mk.ModuleKGError, match=message):
        find_chains(mk.trace(model, x), pattern)


def test_a_model_is_no_graph() -> None:
    with pytest.raises(mk.ModuleKGError, match=r"what mk\.trace"):
        find_chains(net()[0], [nn.Conv2d])  # type: ignore[arg-type]
