"""Function modules through what happens to a model: branches, hooks, copies, pickles, other threads."""

from __future__ import annotations

import copy
import gc
import io
import threading
import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import modulekg_widgets as mk
from checks.model_state import unchanged
from models.functional import Lambda
from rewriting.samples import net

rw = mk.rewrite
function_modules = rw.function_modules
x = torch.randn(2, 3)
relu = Lambda(lambda m, x: F.relu(x))


def keeps_its_results(model: nn.Module, *given: Any, **named: Any) -> None:
    expected = model(*given, **named)
    with unchanged(model, *given), function_modules(model, given, named):
        torch.testing.assert_close(model(*given, **named), expected, rtol=0, atol=0)


def test_forwards_that_ask_for_the_device_or_for_data() -> None:
    keeps_its_results(Lambda(lambda m, x: F.relu(x * 1 if x.device.type == "cpu" else x)), x)
    keeps_its_results(Lambda(lambda m, x: F.relu(x) if x.sum() > x.sum() - 1 else F.gelu(x)), x)


@pytest.mark.parametrize("gradients", [True, False])
def test_forwards_that_ask_for_gradients(gradients: bool) -> None:
    model = Lambda(lambda m, x: F.relu(m.inner(x)) if torch.is_grad_enabled() else torch.tanh(m.inner(x)),
                  inner=nn.Linear(3, 3))  # fmt: skip
    with torch.set_grad_enabled(gradients), function_modules(model, x):
        for now in (gradients, not gradients):
            with torch.set_grad_enabled(now):
                model(x)


@pytest.mark.parametrize("gradients", [True, False])
def test_padding_in_a_transformer(gradients: bool) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 1).eval()
    mask = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with torch.set_grad_enabled(gradients):
        keeps_its_results(model, torch.rand(2, 5, 8), src_key_padding_mask=mask)


def test_a_parent_that_goes_over_the_children_of_a_child() -> None:
    class Part(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.relu(super().forward(x))

    for forward in (lambda m, x: m.part(x) * len(m.part), lambda m, x: [layer(x) for layer in m.part][-1]):
        keeps_its_results(Lambda(forward, part=Part(nn.Linear(3, 3), nn.Linear(3, 3))), x)


def test_a_branch_that_was_not_taken_and_calls_no_function() -> None:
    experts = nn.ModuleList([nn.Sequential(nn.Linear(3, 3), nn.ReLU()) for _ in range(2)])
    model = Lambda(lambda m, x, i: m.experts[i](x), experts=experts)
    with function_modules(model, (x, 0)):
        assert torch.equal(model(x, 1), experts[1](x))


def test_leaving_while_a_forward_runs() -> None:
    model = Lambda(lambda m, x: F.relu(m.inner(x)), inner=nn.Linear(3, 3))
    expected = model(x)
    functions = rw.activate(model, x)
    handle = rw.get(model, "inner").register_forward_hook(lambda *_: rw.deactivate(model))
    assert torch.equal(model(x), expected)
    handle.remove()
    assert list(model._modules) == ["inner"]
    assert not functions.is_active()
    assert not rw.find(model, rw.FunctionModule)


def test_in_place_calls_whose_result_is_not_used() -> None:
    def statement(m: Any, x: torch.Tensor) -> torch.Tensor:
        y = x - 0.5
        y.relu_()
        return y

    def assignment(m: Any, x: torch.Tensor) -> torch.Tensor:
        return (x - 0.5).relu_()

    for args in (None, x):
        with function_modules(Lambda(statement), x) as functions:
            with pytest.raises(mk.ModuleKGError, match=r"would do nothing: relu at .* is called for what it writes"):
                rw.replace(functions.model, "function_modules.relu_0", lambda name, module: nn.Sigmoid(), args=args)
            rw.replace(functions.model, "function_modules.relu_0", lambda name, module: nn.Identity(), args=args)
            assert torch.equal(functions.model(x), x - 0.5)
    with function_modules(Lambda(assignment), x) as functions:
        rw.replace(functions.model, "function_modules.relu_0", lambda name, module: nn.Sigmoid())
        assert torch.equal(functions.model(x), (x - 0.5).sigmoid())


def test_an_operator_that_only_writes() -> None:
    @torch.library.custom_op("mkg_tests::increase_", mutates_args=("x",))
    def increase(x: torch.Tensor) -> None:
        x.add_(1)

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        increase(y)
        return F.relu(y)

    model = Lambda(forward)
    with function_modules(model, x) as functions:
        assert rw.find(model, increase) == ["function_modules.increase_0"]
        assert len(functions) == 3
        assert torch.equal(model(x), F.relu(x * 2 + 1))


@pytest.mark.slow
def test_the_last_function_modules_come_back() -> None:
    model = Lambda(lambda m, x: F.relu(x))
    rw.activate(model, x)
    rw.deactivate(model)
    gc.collect()
    assert rw.activate(model).is_active()
    rw.deactivate(model)
    rw.activate(model, x)
    rw.replace(model, "function_modules.relu_0", lambda name, module: nn.Sigmoid())
    rw.deactivate(model)
    rw.activate(model)
    assert torch.equal(model(x), x.sigmoid())
    rw.deactivate(model)
    with function_modules(model, x):
        pass
    with pytest.raises(mk.ModuleKGError, match="no function modules yet: pass args"):
        rw.activate(model)


def test_nested_contexts_end_with_the_outer_one() -> None:
    with function_modules(relu, x) as functions:
        with functions:
            pass
        assert functions.is_active()
    assert not functions.is_active()


def test_modules_that_were_replaced_meanwhile() -> None:
    model, images = net()
    functions = function_modules(model, images)
    rw.replace(model, "tail.0", lambda name, module: copy.deepcopy(module))
    with unchanged(model), pytest.raises(mk.ModuleKGError, match="modules were replaced since"):
        functions.activate()


def test_a_saved_forward_serves_no_more_afterwards() -> None:
    model = Lambda(lambda m, x: F.relu(x))
    with function_modules(model, x):
        rw.replace(model, "function_modules.relu_0", lambda name, module: nn.Sigmoid())
        kept = model.forward
        model.forward = lambda x: kept(x)
        assert torch.equal(model(x), x.sigmoid())
    assert torch.equal(model(x), x.relu())


def test_a_part_of_a_copy() -> None:
    model, images = net()
    with function_modules(model, images):
        part = copy.deepcopy(model.tail[0])
        features = torch.randn(1, 4, 4, 4)
        assert torch.equal(part(features), model.tail[0](features))
        rw.deactivate(part)
        assert list(part._modules) == ["conv", "norm"]
        assert torch.equal(part(features), model.tail[0](features))


def test_pickles_are_refused_by_name() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    with function_modules(model, x), pytest.raises(mk.ModuleKGError, match="cannot be pickled: save its state_dict"):
        torch.save(model, io.BytesIO())
    torch.save(model, io.BytesIO())


@pytest.mark.slow
def test_a_model_dies_when_nobody_holds_it() -> None:
    gc.collect()
    gc.disable()
    try:
        model = Lambda(lambda m, x: F.relu(x))
        with function_modules(model, x):
            model(x)
        rw.activate(model, x)
        rw.deactivate(model)
        rw.find_chains(mk.trace(model, x), [F.relu])
        dead = weakref.ref(model)
        gc.collect()  # a trace has cycles of its own
        with function_modules(model, x) as functions:
            model(x)
        del model, functions
        assert dead() is None
    finally:
        gc.enable()


def test_threads() -> None:
    model, images = net()
    expected = model(images)
    results: list[torch.Tensor] = []
    with function_modules(model, images):
        threads = [threading.Thread(target=lambda: results.extend(model(images) for _ in range(20))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(rw.find(model, rw.FunctionModule)) == 8
    assert len(results) == 80
    assert all(torch.equal(result, expected) for result in results)


def test_names_in_both_modes() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        if m.training:
            x = F.relu(x) * 1
        return F.relu(x + 1)

    model = Lambda(forward, function_modules=nn.Identity())  # a child of that name
    for made in (True, False):
        for searched in (True, False):
            graph = mk.trace(model.train(searched), x)
            alone = rw.find_chains(graph, [torch.add, F.relu])
            with function_modules(model.train(made), x):
                assert rw.find_chains(mk.trace(model.train(searched), x), [torch.add, F.relu]) == alone
                assert alone == [["function_modules_.add_0", "function_modules_.relu_0"]]
