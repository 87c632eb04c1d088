"""Functions as modules in all kinds of models, in training, in copies, compiled and exported."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import modulekg_widgets as mk
from cases.nasty_modules import NASTY
from checks.model_state import unchanged
from models.functional import Lambda
from models.nasty import nasty_module
from models.zoo import float_models, zoo_case
from rewriting.samples import net

rw = mk.rewrite
function_modules = rw.function_modules
BLOCKS = ["blocks.0", "blocks.1", "tail.0"]


def test_what_a_forward_sees_of_its_own_children_stays() -> None:
    class Dense(nn.ModuleDict):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            parts = [x]
            for layer in self.values():
                parts.append(layer(torch.cat(parts, 1)))
            return torch.cat(parts, 1) + len(list(self.modules()))

    model, x = Dense({"a": nn.Linear(2, 2), "b": nn.Linear(4, 2)}), torch.randn(3, 2)
    expected = model(x)
    with function_modules(model, x):
        assert torch.equal(model(x), expected)
        assert "function_modules" in dict(model.named_children())


def test_fused_attention_stays_fused() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval(), torch.randn(2, 5, 8)
    with torch.no_grad():
        expected = model(x)
        with function_modules(model, x):
            assert torch.equal(model(x), expected)
            found = rw.find(model, F.multi_head_attention_forward)
            assert found == [f"layers.{i}.self_attn.function_modules.multi_head_attention_forward_0" for i in range(2)]
            seen: list[int] = []
            rw.get(model, found[1]).register_forward_hook(lambda *_: seen.append(1))
            torch.testing.assert_close(model(x), expected)
            assert seen == [1]
    with function_modules(model.train(), x) as functions:
        assert "layers.0.function_modules.add_0" in functions.names


def test_a_custom_operator() -> None:
    @torch.library.custom_op("mkg_tests::thrice", mutates_args=())
    def thrice(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    thrice.register_fake(lambda x: torch.empty_like(x))
    model, x = Lambda(lambda m, x: torch.ops.mkg_tests.thrice(thrice(x))), torch.randn(2)
    with function_modules(model, x):
        assert torch.equal(model(x), x * 3 * 3)
        assert rw.find(model, thrice) == ["function_modules.thrice_0", "function_modules.thrice_1"]


def test_a_forward_of_the_instance_itself() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    own = lambda x: F.gelu(model[0](x))  # noqa: E731
    model.forward = own
    x = torch.randn(1, 2)
    expected = model(x)
    with function_modules(model, x) as functions:
        assert functions.names == ["function_modules.gelu_0"]
        assert torch.equal(model(x), expected)
    assert model.forward is own


def test_hooks_of_the_user_run_as_before() -> None:
    model, x = net()
    seen: list[str] = []
    model.blocks[0].register_forward_pre_hook(lambda m, i: seen.append("before") or (i[0] * 2,))
    model.blocks[0].register_forward_hook(lambda m, i, o: seen.append("after") or o.tanh())
    expected = model(x)
    seen.clear()
    with function_modules(model, x):
        seen.clear()  # the trace runs them as well
        assert torch.equal(model(x), expected)
        assert seen == ["before", "after"] * 2


def test_copies_exports_and_compilation() -> None:
    model, x = net()
    with function_modules(model, x):
        rw.replace(model, rw.find(model, F.relu), lambda name, module: nn.Tanh())
        expected = model(x)
        twin = copy.deepcopy(model)
        assert torch.equal(twin(x), expected)
        nn.init.zeros_(model.head.weight)
        assert not torch.equal(model(x), expected)
        assert torch.equal(twin(x), expected)
        model.load_state_dict(twin.state_dict())
        assert torch.allclose(torch.export.export(model, (x,)).module()(x), expected)
        torch._dynamo.reset()
        assert torch.allclose(torch.compile(model, backend="eager")(x), expected)
    assert rw.is_active(twin)
    rw.deactivate(twin)
    assert not rw.find(twin, (nn.Tanh, rw.FunctionModule))
    assert torch.equal(twin(x), model(x))


def test_training_gives_the_same_gradients() -> None:
    losses = []
    for active in (False, True):
        model, x = net()
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        functions = function_modules(model, x)
        if active:
            functions.activate()
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        functions.deactivate()
    assert losses[:3] == losses[3:]


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_compute_the_same_gradients(reentrant: bool) -> None:
    def whole(m: Any, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(m.block, x, use_reentrant=reentrant) * 2

    def part(m: Any, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda y: F.relu(m.block(y)), x, use_reentrant=reentrant) * 2

    for forward in (whole, part):
        model = Lambda(forward, block=Lambda(lambda m, x: torch.sigmoid(m.inner(x)), inner=nn.Linear(3, 3)))
        x = torch.randn(2, 3, requires_grad=True)
        with function_modules(model, x) as functions:
            assert functions.names == ["block.function_modules.sigmoid_0", "function_modules.mul_0"]
            rw.replace(model, functions.names[0], lambda name, module: nn.Tanh())
            inner = rw.get(model, "block.inner")
            plain = Lambda(forward, block=Lambda(lambda m, x: torch.tanh(m.inner(x)), inner=inner))
            gradients = []
            for each in (model, plain):
                inner.zero_grad()
                each(x).square().sum().backward()
                gradients.append(inner.weight.grad)
        assert torch.equal(*gradients)


def test_a_monitor_watches_them() -> None:
    model, x = net()
    config = {"blocks.0.function_modules.relu_0": ["DeadNeuronFraction"], rw.FunctionModule: ["InputMean"]}
    with function_modules(model.train(), x), mk.Monitor(model, config) as monitor:
        model(x).sum().backward()
        monitor.track(0)
    output = monitor.get_output()
    own = ["function_modules.adaptive_avg_pool2d_0", "function_modules.flatten_0"]
    of_blocks = [f"{block}.function_modules.{name}_0" for block in BLOCKS for name in ("relu", "add")]
    assert set(output) == {*own, *of_blocks}
    assert len(output["blocks.0.function_modules.relu_0"]["InputMean"][0]) == 2  # the block is used twice


@pytest.mark.parametrize("name", sorted(set(NASTY) - {"wide_100k"}))
def test_nasty_modules(name: str) -> None:
    model = nasty_module(name)
    given = (NASTY[name]["inp"] or tuple)() or ()
    with unchanged(model, given):
        try:
            functions = function_modules(model, given)
        except mk.ModuleKGError:
            return
        with functions:
            assert functions.is_active()


SAMPLE = ["googlenet", "shufflenet_v2_x0_5", "swin_t", "densenet121", "ssdlite320_mobilenet_v3_large"]


def same_results(name: str) -> None:
    model, inputs = zoo_case(name)
    torch.manual_seed(1)
    with torch.no_grad():
        expected = copy.deepcopy(model)(*inputs)
    with unchanged(model, *inputs):
        functions = function_modules(model, inputs)
        twin = copy.deepcopy(model)
        with functions, torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            found = copy.deepcopy(model)(*inputs)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    assert [*twin.state_dict()] == [*model.state_dict()]


@pytest.mark.parametrize("name", SAMPLE)
@pytest.mark.slow
def test_the_zoo_computes_the_same(name: str) -> None:
    same_results(name)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in float_models() if name not in SAMPLE])
def test_all_of_the_zoo_computes_the_same(name: str) -> None:
    same_results(name)
