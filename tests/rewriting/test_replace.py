"""Replacing: wholly or not at all, in place and in order, and back."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import modulekg_widgets as mk
from checks.model_state import differences, snapshot, unchanged
from models.functional import Lambda
from models.zoo import zoo_case
from rewriting.samples import Block, Net, net

rw = mk.rewrite


apart = partial(torch.random.fork_rng, devices=[])  # new layers draw their weights


def gelu(name: str, module: nn.Module) -> nn.Module:
    return nn.GELU()


def test_replace_and_undo() -> None:
    model, x = net()
    before = snapshot(model, x)
    keys, order = list(model.state_dict()), [name for name, _ in model.named_modules()]
    seen: list[tuple[str, nn.Module]] = []
    rewrite = rw.replace(model, ["self.stem.2"], lambda name, module: seen.append((name, module)) or nn.GELU())
    assert seen == [("self.stem.2", rewrite.replaced["self.stem.2"][0])]
    assert type(model.stem[2]) is nn.GELU
    assert not model.stem[2].training
    assert [name for name, _ in model.named_modules()] == order
    assert list(model.state_dict()) == keys
    assert "stem.2: ReLU → GELU" in repr(rewrite)
    rewrite.undo()
    assert not list(differences(before, snapshot(model, x)))
    assert "undone" in repr(rewrite)
    with pytest.raises(mk.ModuleKGError, match="undone already"):
        rewrite.undo()


def test_one_name_as_text() -> None:
    model, _ = net()
    assert rw.replace(model, "stem.2", gelu).names == ["stem.2"]


def test_a_shared_module_stays_shared() -> None:
    model, x = net()
    asked = []
    rewrite = rw.replace(model, ["again", "blocks.0"], lambda name, module: asked.append(name) or Block(), args=x)
    assert asked == ["again"]
    assert model.again is model.blocks[0]
    rewrite.undo()
    assert model.again is model.blocks[0] is rewrite.replaced["again"][0]


def test_identity_takes_a_module_out() -> None:
    model, x = net()
    rewrite = rw.replace(model, rw.find(model, (nn.MaxPool2d, nn.BatchNorm2d)), lambda name, module: nn.Identity())
    assert rw.find(model, nn.BatchNorm2d) == []
    assert model(x).shape == (2, 5)
    rewrite.undo()
    assert len(rw.find(model, nn.BatchNorm2d)) == 4


def test_what_fn_keeps_is_not_replaced() -> None:
    model, _ = net()
    rewrite = rw.replace(model, rw.find(model, nn.Linear), lambda name, module: module)
    assert rewrite.names == []


def test_a_replacement_may_hold_the_old_module() -> None:
    model, x = net()
    expected = model(x).relu()
    rewrite = rw.replace(model, "head", lambda name, module: nn.Sequential(module, nn.ReLU()))
    assert torch.equal(model(x), expected)
    rewrite.undo()
    assert type(model.head) is nn.Linear


def test_chains_in_place() -> None:
    model, x = net()
    graph = mk.trace(model, x)
    chains = rw.find_chains(graph, [nn.Conv2d, nn.BatchNorm2d])
    seen = []

    def fused(names: list[str], modules: list[nn.Module]) -> tuple[nn.Module, nn.Module]:
        seen.append(names)
        return torch.nn.utils.fuse_conv_bn_eval(*modules), nn.Identity()  # type: ignore[arg-type]

    expected = model(x)
    with unchanged(model, x):
        rewrite = rw.replace_chains(model, chains, fused, args=x)
        assert seen == chains
        torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-5)
        assert rw.find(model, nn.BatchNorm2d) == []
        rewrite.undo()
    assert torch.equal(model(x), expected)


def test_undo_wants_what_came_later_undone_first() -> None:
    model, _ = net()
    first = rw.replace(model, "stem.2", gelu)
    second = rw.replace(model, ["stem.2", "head"], lambda name, module: copy.deepcopy(module))
    before = snapshot(model)
    with pytest.raises(mk.ModuleKGError, match="undo what came later first"):
        first.undo()
    assert not list(differences(before, snapshot(model)))
    second.undo()
    first.undo()
    assert type(model.stem[2]) is nn.ReLU


def test_the_mode_of_an_eval_model_is_kept() -> None:
    model, _ = net()
    rw.replace(model, "stem.2", lambda name, module: nn.Sequential(nn.Dropout(), nn.ReLU()))
    assert not any(module.training for module in model.modules())


def test_a_compiled_child_goes_as_a_whole() -> None:
    model = nn.Sequential(nn.Linear(2, 2), torch.compile(nn.ReLU()))
    wrapper = model[1]
    rewrite = rw.replace(model, "1", gelu)
    assert type(model[1]) is nn.GELU
    rewrite.undo()
    assert model[1] is wrapper


BAD: list[tuple[str, Any, Callable[..., Any], str]] = [
    ("unknown name", ["haed"], gelu, "did you mean 'head'"),
    ("an unknown name after a good one", ["stem.2", "nothing"], gelu, "there is no module 'nothing'"),
    ("the model", [""], gelu, "cannot be replaced in place"),
    ("no text", [3], gelu, "names are text"),
    ("a parameter", ["head.weight"], gelu, "there is no module 'head.weight'"),
    ("one inside another", ["stem", "stem.2"], gelu, "lies in 'stem'"),
    ("no module", ["stem.2"], lambda n, m: torch.relu, "give an instance of nn.Module"),
    ("a class", ["stem.2"], lambda n, m: nn.GELU, "is the class GELU"),
    ("nothing", ["stem.2"], lambda n, m: None, "give an instance of nn.Module"),
    ("wrong inputs", ["head"], lambda n, m: nn.Linear(3, 5), "does not fit.*it stops"),
    ("wrong outputs", ["head"], lambda n, m: nn.Linear(4, 6), r"shape \[2, 6\], and before it was \[2, 5\]"),
    ("wrong channels", ["stem.0"], lambda n, m: nn.Conv2d(3, 8, 3), "does not fit"),
    ("wrong stride", ["stem.0"], lambda n, m: nn.Conv2d(3, 4, 3, stride=2), "does not fit"),
    ("another number of results", ["head"], lambda n, m: nn.LSTM(4, 5), "the result is|shape of nothing"),
    ("a block", ["blocks.0"], lambda n, m: Block(6), "does not fit"),
    ("a norm", ["blocks.0.norm"], lambda n, m: nn.BatchNorm2d(5), "does not fit"),
    ("a recurrent layer", ["rnn"], lambda n, m: nn.LSTM(4, 9), "does not fit"),
    ("attention", ["attention"], lambda n, m: nn.MultiheadAttention(16, 2), "does not fit"),
    ("two inputs", ["both"], lambda n, m: nn.Bilinear(3, 4, 6), "does not fit"),
    ("no names", 5, gelu, "pass the names of modules"),
    ("a module for the function", ["stem.2"], nn.SiLU(), "fn is a SiLU: pass a function.*lambda name, module"),
    ("a class for the function", ["stem.2"], nn.SiLU, "fn is SiLU: pass a function"),
    ("nothing for the function", ["stem.2"], None, "fn is None: pass a function"),
    ("no shape yet", ["head"], lambda n, m: nn.LazyLinear(5), "run one forward pass"),
    ("the model in itself", ["head"], lambda n, m: nn.Sequential(MODEL[0]), "contains the module"),
]
MODEL = net()
for unused in (("rnn", nn.LSTM(4, 5)), ("attention", nn.MultiheadAttention(8, 2)), ("both", nn.Bilinear(3, 4, 5))):
    MODEL[0].add_module(*unused)


@pytest.mark.parametrize(("names", "fn", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_nothing_changes_when_something_is_wrong(names: Any, fn: Any, message: str) -> None:
    model, x = MODEL
    with unchanged(model, x), apart(), pytest.raises(mk.ModuleKGError, match=message):
        rw.replace(model, names, fn)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_of_fn_passes_through(error: type[BaseException]) -> None:
    model, x = net()

    def fn(name: str, module: nn.Module) -> nn.Module:
        if name == "head":
            raise error("mine")
        return nn.GELU()

    with unchanged(model, x), pytest.raises(error, match="mine"):
        rw.replace(model, ["stem.2", "head"], fn)


@pytest.mark.parametrize(
    ("chains", "fn", "message"),
    [
        ([["stem.0", "stem.1"]], lambda n, m: [nn.Identity()], "gave 1 modules for the chain stem.0 → stem.1"),
        ([["stem.0", "stem.1"]], lambda n, m: nn.Sequential(*m), "gave a Sequential"),
        ([["stem.0", "stem.1"], ["stem.1", "stem.2"]], lambda n, m: m, "'stem.1' stands in the chains twice"),
        ([["stem.0", "stem.9"]], lambda n, m: m, "there is no module 'stem.9'"),
        (["stem.0"], lambda n, m: m, "a chain is a list of names"),
        ([[]], lambda n, m: m, "a chain is a list of names"),
        ([["stem.0", "stem.1"]], nn.Identity(), "fn is an Identity: pass a function.*lambda names, modules"),
        ([["stem.0", "stem.1"]], lambda n, m: [nn.Conv2d(3, 4, 5), nn.Identity()], "stem.0 → stem.1 does not fit"),
        ([["blocks.0.norm", "blocks.0.function_modules.relu_0"]], lambda n, m: m, "while function_modules is active"),
    ],
)
def test_nothing_changes_when_a_chain_is_wrong(chains: Any, fn: Any, message: str) -> None:
    model, x = MODEL
    with unchanged(model, x), apart(), pytest.raises(mk.ModuleKGError, match=message):
        rw.replace_chains(model, chains, fn)


def test_a_chain_is_judged_as_a_whole() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 5))
    rw.replace_chains(model, [["0", "1"]], lambda names, modules: [nn.Linear(3, 7), nn.Linear(7, 5)])
    assert model(torch.randn(1, 3)).shape == (1, 5)


def test_with_inputs_the_whole_model_decides() -> None:
    model, x = net()
    with unchanged(model, x), apart():
        wider = {"blocks.0": Block(), "stem.0": nn.Conv2d(3, 4, 5)}
        rewrite = rw.replace(model, list(wider), lambda name, module: wider[name], args=x)
        rewrite.undo()
        with pytest.raises(mk.ModuleKGError, match="does not run with the replacements"):
            rw.replace(model, "stem.0", lambda name, module: nn.Conv2d(3, 6, 3), args=x)
        with pytest.raises(mk.ModuleKGError, match=r"with the replacements the result has the shape \[2, 7\]"):
            rw.replace(model, "head", lambda name, module: nn.Linear(4, 7), args=(x,))
        with pytest.raises(mk.ModuleKGError, match="Its inputs were x"):
            rw.replace(model, "stem.2", gelu, args=x[:, :1])
    rw.replace(model, "head", lambda name, module: nn.Linear(4, 7), check=False)
    assert model(x).shape == (2, 7)


def test_one_of_several_ways_to_call_a_layer_is_enough() -> None:
    model = nn.Sequential(nn.BatchNorm1d(6))
    rw.replace(model, "0", lambda name, module: nn.LayerNorm(6))
    assert type(model[0]) is nn.LayerNorm


def test_the_whole_model_is_tried_in_its_mode() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU()).eval()
    rw.replace(model, "1", lambda name, module: nn.BatchNorm1d(4), args=torch.rand(1, 3))  # one value per channel
    assert not model[1].training
    refused = nn.BatchNorm1d(5)
    with pytest.raises(mk.ModuleKGError, match="does not run"):
        rw.replace(model, "1", lambda name, module: refused, args=torch.rand(1, 3))
    assert refused.training


def test_fn_may_not_change_the_model() -> None:
    model, _ = net()

    def fn(name: str, module: nn.Module) -> nn.Module:
        model.tail = nn.Sequential(nn.Identity(), nn.Identity())
        return nn.Identity()

    with pytest.raises(mk.ModuleKGError, match="fn changed the model"):
        rw.replace(model, "tail.1", fn)


@pytest.mark.slow
def test_many_names_take_no_time() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.ReLU()) for _ in range(10_000)))
    names = [f"{number}.0" for number in range(10_000)]
    start = time.process_time()
    rewrite = rw.replace(model, names, gelu)
    rewrite.undo()
    assert time.process_time() - start < 5


def test_torchscript_is_refused() -> None:
    model = nn.Sequential(torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.ReLU())), nn.ReLU())
    with pytest.raises(mk.ModuleKGError, match="there is no module"):
        rw.replace(model, "0.1", gelu)
    rw.replace(model, "0", lambda name, module: nn.Linear(2, 2))
    assert type(model[0]) is nn.Linear


def test_a_rewritten_model_lives_on() -> None:
    model, x = net()
    rw.replace(model, rw.find(model, nn.ReLU), gelu)
    rw.replace(model, rw.find(model, Block), lambda name, module: nn.Sequential(module, nn.Tanh()))
    expected = model(x)
    assert torch.equal(copy.deepcopy(model)(x), expected)
    fresh = copy.deepcopy(model)
    nn.init.zeros_(fresh.head.weight)
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(x), expected)
    assert torch.allclose(torch.export.export(model, (x,)).module()(x), expected)
    torch._dynamo.reset()
    assert torch.allclose(torch.compile(model, backend="aot_eager", fullgraph=True)(x), expected)
    assert mk.trace(model, x).axes.verify().ok


def test_every_relu_of_the_zoo() -> None:
    for name in ("resnet18", "mobilenet_v3_small", "squeezenet1_0", "fasterrcnn_mobilenet_v3_large_320_fpn"):
        model, inputs = zoo_case(name)
        with unchanged(model), apart():
            rewrite = rw.replace(model, rw.find(model, (nn.ReLU, nn.Hardswish)), gelu)
            assert rewrite.names
            copy.deepcopy(model)(*inputs)  # a detector keeps its anchors
            rewrite.undo()


def test_a_fault_at_any_write_leaves_nothing_between() -> None:
    model = Net().eval()

    class Faulty(dict[str, Any]):
        left = 0

        def __setitem__(self, key: str, value: Any) -> None:
            if Faulty.left == 0:
                Faulty.left = -1
                raise OSError("no space")
            Faulty.left -= 1
            super().__setitem__(key, value)

    for owner in (model.stem, model.tail, model):
        owner.__dict__["_modules"] = Faulty(owner._modules)
    before = dict(model.named_modules(remove_duplicate=False))
    for at in range(3):
        Faulty.left = at
        with pytest.raises(OSError, match="no space"):
            rw.replace(model, ["stem.2", "tail.1", "head"], lambda name, module: copy.deepcopy(module))
        assert dict(model.named_modules(remove_duplicate=False)) == before
    Faulty.left = 3
    rewrite = rw.replace(model, ["stem.2", "tail.1", "head"], lambda name, module: copy.deepcopy(module))
    for at in range(3):
        Faulty.left = at
        now = dict(model.named_modules(remove_duplicate=False))
        with pytest.raises(OSError, match="no space"):
            rewrite.undo()
        assert dict(model.named_modules(remove_duplicate=False)) == now
    Faulty.left = 3
    rewrite.undo()
    assert dict(model.named_modules(remove_duplicate=False)) == before


def test_an_unused_head_cannot_be_judged_and_goes() -> None:
    model = Lambda(lambda m, x: x * 2, extra=Lambda(lambda m, x: x))
    rw.replace(model, "extra", gelu)
    parametrised = nn.Sequential(parametrizations.weight_norm(nn.Linear(3, 3)))
    rw.replace(parametrised, "0", lambda name, module: nn.Linear(3, 3))
    assert type(parametrised[0]) is nn.Linear
