"""The rows of "Coming from TorchPruner" on function modules and model tools."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import modulekg_widgets as mk
from migration.models import IMAGE, Block, ResNet, new, run, shapes, state
from migration.tables import Rows

rewriting = Rows()
CONVOLUTIONS = ["conv1", "layer1.0.conv1", "layer1.0.conv2", "layer1.1.conv1", "layer1.1.conv2"]


# ------------------------------------------------------------ function modules


@rewriting("`activate_function_module()` · `init_function_module(model, inputs)`")
def _activate() -> None:
    model, args = new(ResNet), (IMAGE,)
    before = run(model)
    mk.rewrite.activate(model, args)
    assert torch.equal(run(model), before)
    assert len(mk.rewrite.find(model, F.relu)) == 5
    assert not mk.rewrite.is_active(new(ResNet))  # no other model is touched
    mk.rewrite.deactivate(model)


@rewriting("`deactivate_function_module()`")
def _deactivate() -> None:
    model = new(ResNet)
    names, before = [name for name, _ in model.named_modules()], state(model)
    mk.rewrite.activate(model, IMAGE)
    assert len(list(model.named_modules())) > len(names)
    mk.rewrite.deactivate(model)
    assert [name for name, _ in model.named_modules()] == names
    assert state(model) == before


@rewriting("`function_module_activate()`")
def _is_active() -> None:
    model = new(ResNet)
    assert not mk.rewrite.is_active(model)
    mk.rewrite.activate(model, IMAGE)
    assert mk.rewrite.is_active(model)
    mk.rewrite.deactivate(model)
    assert not mk.rewrite.is_active(model)


@rewriting("all of them around a few lines")
def _context() -> None:
    model, args = new(ResNet), (IMAGE,)
    before = run(model)
    with mk.rewrite.function_modules(model, args) as functions:
        assert mk.rewrite.is_active(model)
        assert set(functions.names) <= dict(model.named_modules()).keys()
        assert torch.equal(run(model), before)
    assert not mk.rewrite.is_active(model)


@rewriting("`relu`, `add`, `mul`, `cat` in `_function_module_list`")
def _listed() -> None:
    model = new(ResNet)
    with mk.rewrite.function_modules(model, IMAGE) as functions:
        relus = mk.rewrite.find(model, F.relu)
        owners = [name.partition("function_modules")[0].rstrip(".") for name in relus]
        assert sorted(owners) == ["", "layer1.0", "layer1.0", "layer1.1", "layer1.1"]
        others = set(functions.names) - set(relus)
        assert {name.rpartition(".")[2].rpartition("_")[0] for name in others} == {"add", "mean"}
        mk.rewrite.replace(model, relus, lambda name, module: nn.Sigmoid())
        replaced = run(model)
    assert not torch.allclose(replaced, run(model))  # it held inside, and the model is as it was again


# ----------------------------------------------------------------- model tools


@rewriting('`get_object(model, "self.conv1")`')
def _get() -> None:
    model = new(ResNet)
    assert mk.rewrite.get(model, "self.conv1") is mk.rewrite.get(model, "conv1") is model.conv1
    assert mk.rewrite.get(model, "self") is model
    with pytest.raises(mk.ModuleKGError, match="conv1"):
        mk.rewrite.get(model, "self.conv9")


@rewriting('`set_object(model, "self.conv1", module)`')
def _set() -> None:
    model, module = new(ResNet), nn.Conv2d(3, 8, 1)
    names = [name for name, _ in model.named_children()]
    mk.rewrite.set(model, "conv1", module)
    assert model.conv1 is module
    assert [name for name, _ in model.named_children()] == names  # in its old place


@rewriting("`get_names_by_class(model, nn.Conv2d)`")
def _find() -> None:
    model = new(ResNet)
    assert mk.rewrite.find(model, nn.Conv2d) == CONVOLUTIONS
    assert mk.rewrite.find(model, nn.Module) == [""]  # it stops at the first match


@rewriting("`include_super_class=False`")
def _find_exactly() -> None:
    model = new(ResNet)
    assert mk.rewrite.find(model, nn.Module, include_super_class=False) == []
    assert mk.rewrite.find(model, Block, include_super_class=False) == ["layer1.0", "layer1.1"]


@rewriting("`get_name_groups_by_classes(graph, classes)`")
def _chains() -> None:
    graph = mk.trace(new(ResNet), IMAGE)
    chains = mk.rewrite.find_chains(graph, [nn.Conv2d, nn.BatchNorm2d, (nn.ReLU, F.relu)])
    assert [chain[:2] for chain in chains] == [
        ["conv1", "bn1"],
        ["layer1.0.conv1", "layer1.0.bn1"],
        ["layer1.1.conv1", "layer1.1.bn1"],
    ]


@rewriting("`replace_object_by_names(model, names, fn)`")
def _replace() -> None:
    model, names = new(ResNet), ["layer1.0.bn1", "layer1.1.bn1"]
    before, norm = state(model), model.layer1[0].bn1

    def fn(name: str, module: nn.Module) -> nn.Module:
        return nn.GroupNorm(1, module.get_parameter("weight").shape[0])

    rewrite = mk.rewrite.replace(model, names, fn)
    assert mk.rewrite.find(model, nn.GroupNorm) == names
    assert run(model).shape == (2, 5)
    rewrite.undo()
    assert model.layer1[0].bn1 is norm
    assert state(model) == before


@rewriting("`replace_object_by_class(model, nn.Conv2d, fn)`")
def _replace_class() -> None:
    model = new(ResNet)

    def fn(name: str, module: nn.Module) -> nn.Module:
        assert isinstance(module, nn.Conv2d)
        return nn.Conv2d(module.in_channels, module.out_channels, 1)

    mk.rewrite.replace(model, mk.rewrite.find(model, nn.Conv2d), fn)
    assert {model.get_submodule(name).get_parameter("weight").shape[2:] for name in CONVOLUTIONS} == {(1, 1)}
    assert run(model).shape == (2, 5)


@rewriting("`replace_object_by_name_groups(model, groups, fn)`")
def _replace_chains() -> None:
    model = new(ResNet)
    chains = mk.rewrite.find_chains(mk.trace(model, IMAGE), [nn.Conv2d, nn.BatchNorm2d])
    taken: list[list[str]] = []

    def fn(names: list[str], modules: list[nn.Module]) -> list[nn.Module]:
        taken.append(names)
        return [modules[0], nn.Identity()]

    mk.rewrite.replace_chains(model, chains, fn)
    assert taken == chains
    assert len(chains) == 5
    assert mk.rewrite.find(model, nn.BatchNorm2d) == []


@rewriting("its example `merge_conv_bn(conv, bn)`")
def _fold() -> None:
    model, args = new(ResNet), (IMAGE,)
    before = run(model)
    mk.rewrite.fold_conv_bn(model, args)
    assert mk.rewrite.find(model, nn.BatchNorm2d) == []
    torch.testing.assert_close(run(model), before, rtol=1e-5, atol=1e-5)


@rewriting("its example of depthwise and pointwise convolutions")
def _separable() -> None:
    model = new(ResNet)
    count = sum(parameter.numel() for parameter in model.parameters())
    mk.rewrite.depthwise_separable(model)
    depthwise, pointwise = model.layer1[0].get_submodule("conv1").children()
    assert shapes(depthwise)["weight"] == (8, 1, 3, 3)
    assert shapes(pointwise)["weight"] == (6, 8, 1, 1)
    assert sum(parameter.numel() for parameter in model.parameters()) < count
    assert run(model).shape == (2, 5)


@rewriting("quantisation-aware training (`torchslim/quantizing`)")
def _quantise() -> None:
    model, args = new(ResNet), (IMAGE,)
    before = run(model)
    mk.rewrite.fake_quant(model, args)
    error = (run(model) - before).norm() / before.norm()
    assert 0 < error < 0.2
    model.train()(IMAGE).square().mean().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())  # it trains through the rounding
