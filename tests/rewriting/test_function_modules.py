"""Functions as modules: found, replaced, watched, with the same results, and gone without a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torchvision
from torch import nn

import modulekg_widgets as mk
from checks.model_state import differences, snapshot, unchanged
from models.functional import Lambda
from rewriting.samples import net

rw = mk.rewrite
function_modules = rw.function_modules
BLOCKS = ["blocks.0", "blocks.1", "tail.0"]


def test_the_functions_of_a_model_are_modules() -> None:
    model, x = net()
    expected = model(x)
    with unchanged(model, x), function_modules(model, x) as functions:
        assert torch.equal(model(x), expected)
        listed = [name for name, module in model.named_modules() if isinstance(module, rw.FunctionModule)]
        assert functions.names == listed
        assert list(functions.modules.values()) == [model.get_submodule(name) for name in listed]
        assert {name.rpartition(".")[2] for name in listed} == {"relu_0", "add_0", "adaptive_avg_pool2d_0", "flatten_0"}
        assert rw.find(model, F.relu) == [f"{block}.function_modules.relu_0" for block in BLOCKS]
        assert rw.find(model, (torch.add, torch.flatten))[:2] == [
            "blocks.0.function_modules.add_0",
            "blocks.1.function_modules.add_0",
        ]
        relu = rw.get(model, "blocks.0.function_modules.relu_0")
        assert relu.function is F.relu
        assert "samples.py" in repr(relu)
        assert repr(functions).startswith("<FunctionModules of Net: 8, active>")
    assert rw.find(model, F.relu) == []
    assert not functions.is_active()


def test_calls_go_through_the_modules() -> None:
    model, x = net()
    seen: list[str] = []
    with function_modules(model, x) as functions:
        for name, module in functions.modules.items():
            module.register_forward_hook(lambda m, i, o, name=name: seen.append(name))
        model(x)
    again = ["blocks.0.function_modules.relu_0", "blocks.0.function_modules.add_0"]
    assert [name for name in seen if name.startswith("blocks.0")] == 2 * again  # the block is used twice
    assert set(seen) == set(functions.names)


def test_replacing_and_leaving() -> None:
    model, x = net()
    expected = model(x)
    with unchanged(model, x), function_modules(model, x):
        rewrite = rw.replace(model, rw.find(model, F.relu), lambda name, module: nn.Tanh())
        assert rewrite.names == [f"{block}.function_modules.relu_0" for block in BLOCKS]
        replaced = model(x)
        assert not torch.equal(replaced, expected)
        rewrite.undo()
        assert torch.equal(model(x), expected)
        rw.replace(model, rw.find(model, F.relu), lambda name, module: nn.Identity())
        assert not torch.equal(model(x), expected)
    assert torch.equal(model(x), expected)


def test_a_replacement_gets_what_its_forward_takes() -> None:
    def forward(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([F.relu(x, inplace=False), x], 1)

    class Joined(nn.Module):
        def forward(self, parts: list[torch.Tensor], dim: int) -> torch.Tensor:
            return torch.cat(parts[::-1], dim)

    model, x = Lambda(forward), torch.randn(2, 3)
    with function_modules(model, x) as functions:
        assert functions.names == ["function_modules.relu_0", "function_modules.cat_0"]
        rw.replace(model, "function_modules.relu_0", lambda name, module: nn.Sigmoid())
        rw.replace(model, "function_modules.cat_0", lambda name, module: Joined())
        assert torch.equal(model(x), torch.cat([x, x.sigmoid()], 1))


@pytest.mark.parametrize(
    ("name", "new", "message"),
    [
        ("function_modules.linear_0", nn.Linear(4, 4), "does not fit.*it stops"),
        ("function_modules.linear_0", nn.Linear(3, 5), r"shape \[2, 5\], and before it was \[2, 3\]"),
        ("function_modules.add_0", nn.Identity(), "does not take what the function gets, which is 2 tensor"),
        ("function_modules.linear_9", nn.Identity(), "did you mean"),
    ],
)
def test_a_replacement_that_does_not_fit(name: str, new: nn.Module, message: str) -> None:
    model, x = Lambda(lambda m, x: F.linear(x, m.weight) + x), torch.randn(2, 3)
    model.weight = nn.Parameter(torch.randn(3, 3))
    with function_modules(model, x):
        before = snapshot(model, x)
        with pytest.raises(mk.ModuleKGError, match=message):
            rw.replace(model, name, lambda name, module: new)
        assert not list(differences(before, snapshot(model, x)))


def test_a_layer_for_a_function_gets_no_weights() -> None:
    model, x = Lambda(lambda m, x: F.batch_norm(F.linear(x, m.weight), m.mean, m.var)), torch.randn(2, 3)
    model.weight = nn.Parameter(torch.randn(3, 3))
    model.register_buffer("mean", torch.zeros(3))
    model.register_buffer("var", torch.ones(3))
    with function_modules(model, x) as functions:
        rw.replace(model, functions.names, lambda name, module: nn.Linear(3, 3) if "linear" in name else nn.Tanh())
        assert torch.equal(model(x), functions.modules["function_modules.linear_0"](x).tanh())


def test_off_and_on_again() -> None:
    model, x = net()
    expected = model(x)
    with unchanged(model, x):
        functions = function_modules(model, x)
        assert not rw.is_active(model)
        with functions:
            assert rw.is_active(model)
            assert rw.is_active(model.blocks[0])
            rw.replace(model, rw.find(model, F.relu), lambda name, module: nn.Tanh())
            changed = model(x)
            rw.deactivate(model)
            assert not rw.is_active(model)
            assert rw.find(model, rw.FunctionModule) == []
            assert torch.equal(model(x), expected)
            rw.deactivate(model)
            rw.activate(model)
            assert torch.equal(model(x), changed)
            functions.deactivate()
            functions.activate()
            assert torch.equal(model(x), changed)
        made = rw.activate(model, x)
        assert made.is_active()
        assert torch.equal(model(x), expected)
        rw.deactivate(model)


def test_active_twice_is_refused() -> None:
    model, x = net()
    with function_modules(model, x) as functions:
        for call in (
            lambda: function_modules(model, x),
            lambda: function_modules(model.tail, torch.randn(1, 4, 4, 4)),
            lambda: function_modules(nn.Sequential(model), x),
            lambda: rw.activate(model),
            functions.activate,
        ):
            with pytest.raises(mk.ModuleKGError, match="already"):
                call()
        with pytest.raises(mk.ModuleKGError, match="part of a model"):
            rw.deactivate(model.blocks[0])
    assert not rw.is_active(model)


def test_forward_is_left_when_it_raises() -> None:
    model, x = net()
    with unchanged(model, x), pytest.raises(RuntimeError, match="channels"), function_modules(model, x):
        model(x[:, :2])
    with unchanged(model, x), pytest.raises(mk.ModuleKGError, match="Its inputs were"):
        function_modules(model, x[:, :2])


# ----------------------------------------------------------------- changed calls


def loop(m: Any, x: torch.Tensor) -> torch.Tensor:
    for _ in range(m.times):
        x = F.relu(x)
    return x * 2


def branch(m: Any, x: torch.Tensor) -> torch.Tensor:
    if m.times == 2:
        x = F.relu(x)
    return x * 2


def choice(m: Any, x: torch.Tensor) -> torch.Tensor:
    function: Callable[[torch.Tensor], torch.Tensor] = F.relu if m.times == 2 else torch.tanh
    return function(x) * 2


@pytest.mark.parametrize("forward", [loop, branch, choice])
@pytest.mark.parametrize("times", [1, 3])
def test_changed_calls_are_told(forward: Callable[..., Any], times: int) -> None:
    model, x = Lambda(forward), torch.randn(2, 3)
    model.times = 2  # type: ignore[assignment]
    with function_modules(model, x):
        model(x)
        model.times = times  # type: ignore[assignment]
        with pytest.raises(mk.ModuleKGError, match=r"the forward of Lambda (calls|ended before).*test_function_mod"):
            model(x)
        rw.deactivate(model)
        assert torch.equal(model(x), forward(model, x))


def test_call_sites_are_told_apart_by_line_and_index() -> None:
    model, x = Lambda(loop), torch.randn(2, 3)
    model.times = 3  # type: ignore[assignment]
    with function_modules(model, x) as functions:
        assert functions.names == [*(f"function_modules.relu_{i}" for i in range(3)), "function_modules.mul_0"]
        sites = [module.site for module in functions.modules.values() if isinstance(module, rw.FunctionModule)]
        assert [site.index for site in sites] == [0, 1, 2, 0]
        assert len({site.source for site in sites[:3]}) == 1
        rw.replace(model, "function_modules.relu_1", lambda name, module: nn.Hardtanh(0.1, 0.2))
        assert torch.equal(model(x), x.relu().clamp(0.1, 0.2).relu() * 2)


@pytest.mark.slow
def test_both_modes_are_known() -> None:
    model = torchvision.models.efficientnet_b0(stochastic_depth_prob=0.9)
    x = torch.randn(2, 3, 64, 64)
    for training in (True, False, True):
        with function_modules(model.train(not training), x) as functions:
            model.train(training)
            model(x)
            model.train(not training)
            model(x)
            assert any(name.endswith("stochastic_depth.function_modules.bernoulli_0") for name in functions.names)


def test_tables_that_a_forward_makes_once() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        if m.table is None:
            m.table = torch.arange(3.0)
        return x + m.table

    model, x = Lambda(forward), torch.randn(2, 3)
    model.table = None  # type: ignore[assignment]
    with function_modules(model, x):
        assert model.table is None
        for _ in range(3):
            assert torch.equal(model(x), x + torch.arange(3.0))
