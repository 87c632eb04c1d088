"""What holds for every recipe."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from checks.model_state import surroundings, unchanged
from modulekg_widgets.engine.errors import NotAModuleError, RewritingError
from modulekg_widgets.engine.rewriting.recipes.folding import fold_conv_bn
from modulekg_widgets.engine.rewriting.recipes.low_rank import low_rank
from modulekg_widgets.engine.rewriting.recipes.quantization import fake_quant
from modulekg_widgets.engine.rewriting.recipes.separable import depthwise_separable
from modulekg_widgets.engine.rewriting.undo import Recipe
from rewriting.recipes.samples import images, net, outputs

RECIPES: dict[str, Callable[..., Any]] = {
    "fold_conv_bn": lambda model: fold_conv_bn(model, images()),
    "depthwise_separable": depthwise_separable,
    "fake_quant": lambda model: fake_quant(model, images()),
    "low_rank": lambda model: low_rank(model, rank=1),
}

each_recipe = pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)


@each_recipe
def test_byte_exact_after_undo_and_undone_once(recipe: Callable[..., Any]) -> None:
    model = net()
    model.head.register_buffer("extra", torch.ones(2))
    model.block.register_forward_hook(lambda module, args, output: None)
    before = surroundings()
    with unchanged(model):
        rewrite = recipe(model)
        assert surroundings() == before
        assert isinstance(rewrite, Recipe)
        assert rewrite.names
        rewrite.undo()
        with pytest.raises(RewritingError, match="undone already"):
            rewrite.undo()
    assert "undone" in repr(rewrite).splitlines()[0]


@each_recipe
def test_under_inference_mode(recipe: Callable[..., Any]) -> None:
    model, x = net(), images()
    with torch.inference_mode():
        recipe(model)
    assert not any(tensor.is_inference() for tensor in (*model.parameters(), *model.buffers()))
    model.train()(x).sum().backward()
    assert any(parameter.grad is not None for parameter in model.parameters())


@each_recipe
def test_a_pickled_model(recipe: Callable[..., Any]) -> None:
    model, x, file = net(), images(), io.BytesIO()
    recipe(model)
    torch.save(model, file)
    file.seek(0)
    assert torch.equal(outputs(torch.load(file, weights_only=False), x)[0], outputs(model, x)[0])


@each_recipe
@pytest.mark.parametrize("model", [nn.Linear, "net", None])
def test_what_is_no_model(recipe: Callable[..., Any], model: Any) -> None:
    with pytest.raises(NotAModuleError):
        recipe(model)


@each_recipe
def test_hostile_names_in_the_record(recipe: Callable[..., Any]) -> None:
    model = net()
    name = "a\n\x1b[31m<b>" * 30
    inner = nn.Sequential()
    for kind, module in {"conv": nn.Conv2d(3, 4, 3), "norm": nn.BatchNorm2d(4), "linear": nn.Linear(6, 6)}.items():
        inner.add_module(name + kind, module)
    model.stem = nn.Sequential(inner.eval(), nn.Conv2d(4, 4, 1))
    found = recipe(model)
    assert any(name in replaced for replaced in found.names)
    assert all(line.isprintable() and len(line) < 400 for line in repr(found).splitlines())
