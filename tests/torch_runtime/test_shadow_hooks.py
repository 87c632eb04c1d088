"""Hooks and shadows: they run on the copy, and what a forward registers is registered there."""

from __future__ import annotations

import copy
import gc
import pickle
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from checks.model_state import unchanged
from models.functional import Lambda
from modulekg_widgets.engine.torch_runtime.isolation.sandbox import run_isolated
from modulekg_widgets.engine.torch_runtime.isolation.shadow import Shadow


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2)).eval()


def test_hooks_run_on_the_copy_and_write_nothing_down() -> None:
    model, seen = net(), []
    model[0].register_forward_hook(lambda module, args, output: seen.append(output))
    model[1].register_forward_pre_hook(lambda module, args: (args[0] * module.scale,))
    model[1].scale = torch.tensor(2.0)
    model.counted = 0

    def count(module: nn.Module, args: Any) -> None:
        model.counted += 1

    handle = model.register_forward_pre_hook(count)
    x = torch.randn(3, 4)
    with unchanged(model, x, seen):
        graph = mk.trace(model, x)
        assert "aten::mul" in {operator.name for operator in graph.operators}
        assert mk.plan(graph, ratio=0.5).axes
    assert (seen, model.counted) == ([], 0)
    handle.remove()
    assert len(Shadow(model).model._forward_pre_hooks) == 0


def _hooks_a_child(model: Any, x: torch.Tensor) -> torch.Tensor:
    handle = model.first.register_forward_hook(lambda module, args, output: output * 2)
    x = model.second(model.first(x))
    handle.remove()
    return x


def _hooks_and_swallows(model: Any, x: torch.Tensor) -> torch.Tensor:
    with suppress(BaseException):
        model.first.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    return model.second(model.first(x))


def _hooks_and_raises_another(model: Any, x: torch.Tensor) -> torch.Tensor:
    try:
        model.first.register_forward_hook(lambda module, args, output: output * 2)
    except BaseException as error:
        raise ValueError from error
    return model.second(model.first(x))


def _hooks_a_copy(model: Any, x: torch.Tensor) -> torch.Tensor:
    first = copy.deepcopy(model.first)
    first._forward_hooks.update({-1: lambda module, args, output: output * 2})
    return model.second(first(x))


def _hooks_what_pickle_makes(model: Any, x: torch.Tensor) -> torch.Tensor:
    first = pickle.loads(pickle.dumps(model.first))
    first.register_forward_hook(lambda module, args, output: output * 2)
    return model.second(first(x))


def _looks_inside(model: Any, x: torch.Tensor) -> torch.Tensor:
    if not model.looked:
        model.looked = True
        inner = Lambda(_hooks_a_child, first=model.first, second=model.second)
        model.count = [operator.name for operator in mk.trace(inner, x).operators].count("aten::mul")
    return _hooks_a_child(model, x * model.count)


@pytest.mark.parametrize(
    "forward",
    [_hooks_a_child, _hooks_and_swallows, _hooks_and_raises_another, _hooks_a_copy, _hooks_what_pickle_makes,
     _looks_inside],
)  # fmt: skip
def test_a_forward_that_registers_a_hook(forward: Callable[..., Any]) -> None:
    """For one module alone, though the modules of a shadow share the registries that are empty."""
    model = Lambda(forward, first=nn.Linear(4, 4), second=nn.Linear(4, 4), looked=False)
    x = torch.randn(2, 4)
    with unchanged(model, x):
        graph = mk.trace(model, x)
    assert graph.notes == []
    found = [operator for operator in graph.operators if operator.name == "aten::mul"]
    assert len(found) == (2 if forward is _looks_inside else 1)
    assert torch.equal(graph.forward(x), copy.deepcopy(model)(x))


def test_what_is_empty_is_shared_in_a_look_and_nowhere_else() -> None:
    model, shared = net(), []

    def run(sandbox: Any) -> None:
        registries = [module._forward_hooks for module in sandbox.modules]
        assert all(registry is registries[0] and registry == OrderedDict() for registry in registries)
        shared.append(registries[0])
        copy.deepcopy(sandbox.model).train().state_dict()

    run_isolated([*model.modules()], (), run)
    assert len(shared) == 1
    assert all(module._forward_hooks is not shared[0] for module in model.modules())
    own = [module._forward_hooks for module in Shadow(model).model.modules()]
    assert len({id(registry) for registry in own}) == len(own)


def test_tensors_get_no_attributes_by_being_looked_at() -> None:
    model = net()
    model[0].weight.note = [model[3]]
    assert Shadow(model).model[0].weight.note[0] is not model[3]
    held = [type(part) for part in gc.get_referents(model[3].weight)]
    assert dict not in held


def test_a_hook_that_removes_itself() -> None:
    model, x = net(), torch.randn(3, 4)
    model.handle = model[0].register_forward_hook(lambda *_: model.handle.remove())
    with unchanged(model, x):
        mk.trace(model, x)
    assert len(model[0]._forward_hooks) == 1
