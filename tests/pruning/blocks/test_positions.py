"""Layers that go where forward, a number or a configuration tells places apart: the rest computes as it did."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from models.transformers_models import build
from pruning.blocks.test_blocks import Residual

Tensor = torch.Tensor
DEPTH, WIDTH, GONE = 4, 6, 1


class Placed(nn.Module):
    """What it does to a layer depends on the layer's place, as `step` tells it."""

    def __init__(self, step: Callable[[Any, int, nn.Module, Tensor, list[Tensor]], Tensor]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Residual(WIDTH) for _ in range(DEPTH))
        self.rates = [0.5, 1.0, 2.0, 4.0]
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(DEPTH))
        self.step = step

    def forward(self, x: Tensor) -> Tensor:
        seen: list[Tensor] = []
        for at, layer in enumerate(self.layers):
            x = self.step(self, at, layer, x, seen)
            seen.append(x)
        return x + seen[2]


STEPS: dict[str, Callable[[Any, int, nn.Module, Tensor, list[Tensor]], Tensor]] = {
    "a state of one place": lambda model, at, layer, x, seen: layer(x),
    "a factor by place": lambda model, at, layer, x, seen: layer(x * (at + 1)),
    "a rate by place": lambda model, at, layer, x, seen: layer(x * model.rates[at]),
    "a tensor by place": lambda model, at, layer, x, seen: layer(x * torch.tensor(model.rates[at])),
    "every other one": lambda model, at, layer, x, seen: layer(x.flip(-1) if at % 2 else x),
    "a share of all": lambda model, at, layer, x, seen: layer(x / len(model.layers)),
    "a skip from before": lambda model, at, layer, x, seen: layer(x * seen[0] if at == 3 else x),
    "a module by place": lambda model, at, layer, x, seen: layer(model.norms[at](x)),
}


class Bypass(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


@pytest.mark.parametrize("layers", ["free", "uniform"])
@pytest.mark.parametrize("name", STEPS)
def test_the_rest_of_a_model_that_knows_places_computes_as_before(name: str, layers: str) -> None:
    model = Placed(STEPS[name]).eval()
    bypassed = copy.deepcopy(model)
    bypassed.layers[GONE] = Bypass()
    x = torch.randn(3, WIDTH)
    graph = mk.trace(model, x)
    assert f"layers.{GONE}" in list(graph.blocks()["path"])
    receipt = mk.plan(graph, blocks=[f"layers.{GONE}"], layers=layers).cut(model)
    assert len(model.layers) == DEPTH  # something stands in the place
    assert torch.equal(model(x), bypassed(x))
    receipt.undo()


class Numbered(Residual):
    """It computes with its number."""

    def __init__(self, width: int, place: int) -> None:
        super().__init__(width)
        self.place = place

    def forward(self, x: Tensor) -> Tensor:
        return x + self.f(x) / (self.place + 1)


def test_a_number_that_the_layer_computes_with_stays() -> None:
    model: Any = nn.Sequential(*(Numbered(WIDTH, at) for at in range(DEPTH))).eval()
    x = torch.randn(3, WIDTH)
    expected = model[3](model[2](model[0](x)))
    mk.plan(mk.trace(model, x), blocks=["1"]).cut(model)
    assert torch.equal(model(x), expected)


def transformers_model(cls: str, config: str, **values: Any) -> tuple[Any, Any]:
    transformers = pytest.importorskip("transformers")
    common = {"hidden_size": 32, "num_attention_heads": 4, "vocab_size": 100}
    made = getattr(transformers, config)(**{**common, **values})
    torch.manual_seed(0)
    return getattr(transformers, cls)(made).eval(), transformers


def without(model: Any, path: str, args: Any = (), **kwargs: Any) -> Any:
    return mk.plan(mk.trace(model, args, kwargs), blocks=[path], layers="uniform").cut(model)


@pytest.mark.slow
def test_lists_of_numbers_by_layer_follow_where_layers_would_be_others(tmp_path: Path) -> None:
    model, _ = transformers_model(
        "SmolLM3ForCausalLM", "SmolLM3Config", intermediate_size=48, num_hidden_layers=6, num_key_value_heads=2,
        no_rope_layer_interval=3, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    assert model.config.no_rope_layers == [1, 1, 0, 1, 1, 0]
    receipt = without(model, "model.layers.2", input_ids=torch.arange(7)[None], use_cache=False)
    assert model.config.no_rope_layers == [1, 1, 1, 1, 0]
    saved = receipt.save_pretrained(tmp_path / "folder")
    assert saved.plain, saved.reason
    receipt.undo()
    assert model.config.no_rope_layers == [1, 1, 0, 1, 1, 0]


@pytest.mark.slow
def test_lists_that_are_as_long_by_chance_stay(tmp_path: Path) -> None:
    model, transformers = transformers_model(
        "LongformerModel", "LongformerConfig", intermediate_size=48, num_hidden_layers=4, attention_window=[4, 8, 4, 8],
        max_position_embeddings=64, eos_token_id=[2, 3, 4, 5],
    )  # fmt: skip
    receipt = without(model, "encoder.layer.1", input_ids=torch.arange(16)[None])
    assert model.config.attention_window == [4, 4, 8]
    assert model.config.eos_token_id == [2, 3, 4, 5]
    assert receipt.save_pretrained(tmp_path / "folder").plain
    assert transformers.AutoConfig.from_pretrained(tmp_path / "folder").eos_token_id == [2, 3, 4, 5]


def test_numbers_follow_also_where_one_layer_of_its_kind_has_one() -> None:
    model, _ = transformers_model(
        "Lfm2ForCausalLM", "Lfm2Config", intermediate_size=48, num_hidden_layers=5, num_key_value_heads=2,
        layer_types=["conv", "conv", "conv", "full_attention", "conv"], pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    start = torch.arange(7)[None]
    without(model, "model.layers.0", input_ids=start, use_cache=False)
    assert model.model.layers[2].self_attn.layer_idx == 2
    texts = [
        model.generate(start, max_new_tokens=5, min_new_tokens=5, do_sample=False, use_cache=use)
        for use in (True, False)
    ]
    assert torch.equal(*texts)


def test_a_configuration_within_another_stays_the_same_object_as_that_of_its_model(tmp_path: Path) -> None:
    model, kwargs = build("clip")
    model = model.eval()
    inner = model.config.text_config
    assert model.text_model.config is inner
    plan = mk.plan(mk.trace(model, (), kwargs), blocks=0.25, layers="uniform")
    before = inner.num_hidden_layers, model.config.vision_config.num_hidden_layers
    receipt = plan.cut(model)
    assert model.config.text_config is model.text_model.config
    assert model.config.vision_config is model.vision_model.config
    now = model.config.text_config.num_hidden_layers, model.config.vision_config.num_hidden_layers
    assert sum(now) == sum(before) - len(plan.blocks)
    assert receipt.save_pretrained(tmp_path / "folder").plain
    receipt.undo()
    assert model.config.text_config is inner
    assert model.text_model.config is inner


def test_a_cache_that_asks_a_layer_which_is_none_any_more_is_told_of() -> None:
    model, kwargs = build("llama")
    graph = mk.trace(model.eval(), (), kwargs)
    (note,) = mk.plan(graph, blocks=["model.layers.0.self_attn"]).notes
    assert "use_cache=False" in note
    for harmless in ("model.layers.1.self_attn", "model.layers.0.mlp", "model.layers.0"):
        assert mk.plan(graph, blocks=[harmless]).notes == ()
