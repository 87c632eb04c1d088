"""Nothing holds on to blocks that went: neither the optimizer nor what the package keeps of graphs."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from pruning.blocks.test_blocks import Iterated

Rate = dict[str, Any]


def trained(*groups: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model and an optimizer with a group for each prefix of names, or with one for all."""
    torch.manual_seed(0)
    model = Iterated(6, 4)
    own: list[Rate] = [
        {"params": [each for name, each in model.named_parameters() if name.startswith(start)]}
        for start in groups or ("",)
    ]
    optimizer = torch.optim.AdamW(own, lr=0.01)
    step(model, optimizer)
    return model, optimizer


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(3, 4)).square().sum().backward()
    optimizer.step()


def trained_by(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [each for group in optimizer.param_groups for each in group["params"]]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


GROUPS = [(), ("into", "layers.2", "layers.0", "layers.1", "layers.3", "head")]


@pytest.mark.parametrize("groups", GROUPS, ids=["one", "several"])
@pytest.mark.parametrize("undo", [True, False])
def test_an_optimizer_trains_what_is_left(groups: tuple[str, ...], undo: bool) -> None:
    model, optimizer = trained(*groups)
    plan = mk.plan(mk.trace(model, torch.ones(3, 4)), blocks=["layers.0", "layers.2"], ratio=0.3)
    plan.cut(model, optimizer, undo=undo)
    left = {id(each) for each in model.parameters()}
    assert {id(each) for each in trained_by(optimizer)} == left
    assert {id(each) for each in optimizer.state} == left
    step(model, optimizer)
    again = torch.optim.AdamW(model.parameters())
    if not groups:
        again.load_state_dict(optimizer.state_dict())  # of another process, say


@pytest.mark.parametrize("groups", GROUPS, ids=["one", "several"])
@pytest.mark.parametrize("way", ["undo", "restore"])
def test_it_trains_all_again_in_their_order(groups: tuple[str, ...], way: str) -> None:
    model, optimizer = trained(*groups)
    before = trained_by(optimizer)
    lists = [list(group["params"]) for group in optimizer.param_groups]
    state = {each: {key: value.clone() for key, value in own.items()} for each, own in optimizer.state.items()}
    gone = list(model.get_submodule("layers.2").parameters())
    receipt = mk.plan(mk.trace(model, torch.ones(3, 4)), blocks=["layers.2"], ratio=0.3).cut(model, optimizer)
    step(model, optimizer)
    added = nn.Parameter(torch.zeros(2))
    if way == "restore":
        optimizer.param_groups[0]["params"].append(added)
        lists[0].append(added)
    getattr(receipt, way)()
    assert [same(a["params"], b) for a, b in zip(optimizer.param_groups, lists, strict=True)] == [True] * len(lists)
    for each in before if way == "undo" else gone:
        for key, value in optimizer.state[each].items():
            assert torch.equal(value, state[each][key]), key
    step(model, optimizer)


def test_a_parameter_that_others_use_too_stays() -> None:
    model, _ = trained()
    assert isinstance(model, Iterated)
    model.layers[1].f.out.weight = model.layers[2].f.out.weight  # pyright: ignore
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step(model, optimizer)
    mk.plan(mk.trace(model, torch.ones(3, 4)), blocks=["layers.2"]).cut(model, optimizer)
    assert {id(each) for each in trained_by(optimizer)} == {id(each) for each in model.parameters()}


@pytest.mark.parametrize("asked", [{"blocks": 2}, {"blocks": 2, "layers": "uniform"}, {}], ids=str)
@pytest.mark.slow
def test_a_graph_goes_with_its_model(asked: dict[str, Any]) -> None:
    """What is known of the blocks of a graph leads back to it."""

    def seen() -> list[weakref.ref[Any]]:
        model, optimizer = trained()
        graph = mk.trace(model, torch.ones(3, 4))
        graph.blocks()
        plan = mk.plan(graph, ratio=0.3, **asked)
        gone = [weakref.ref(each) for path in plan.blocks for each in model.get_submodule(path).parameters()]
        assert bool(gone) == bool(asked)
        plan.cut(model, optimizer, undo=False)
        del plan, graph
        gc.collect()
        assert not any(each() is not None for each in gone)
        return [weakref.ref(model), weakref.ref(optimizer)]

    found = seen()
    gc.collect()
    assert [each() for each in found] == [None, None]
