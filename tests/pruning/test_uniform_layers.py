"""`layers="uniform"`: repeated layers keep one size, whatever is asked for and whatever the code demands."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from models import transformers_models
from models.residual import ResidualMLP
from modulekg_widgets.engine.errors import CutError, UnknownNameError
from modulekg_widgets.engine.pruning.plan.planner import Planner
from modulekg_widgets.engine.pruning.plan.selection.repeated_layers import repeated_axes
from modulekg_widgets.engine.pruning.plan.selection.request import Request
from sampling import sampled


class Blocks(nn.Module):
    """Three blocks of one size and one of another."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(6, 12)
        self.blocks = nn.ModuleList(ResidualMLP(12, hidden) for hidden in (20, 20, 20, 28))
        self.head = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


X = torch.randn(2, 6, generator=torch.Generator().manual_seed(0))


def blocks() -> nn.Module:
    torch.manual_seed(0)
    return Blocks().eval()


def inner(plan: mk.PruningPlan) -> list[int]:
    """How many indices stay inside of each block."""
    left = {axis.name: axis.left for axis in plan.axes}
    return [left.get(f"blocks.{at}.up.out", size) for at, size in enumerate((20, 20, 20, 28))]


REQUESTS: dict[str, dict[str, Any]] = {
    "ratio": {"ratio": 0.4},
    "global": {"ratio": 0.4, "scope": "global"},
    "isomorphic": {"ratio": 0.4, "scope": "isomorphic"},
    "target": {"target": {"params": 0.6}, "keep": "stem"},
    "global target": {"target": {"flops": 0.6}, "scope": "global"},
    "two targets": {"target": {"flops": 0.62, "bytes": 0.63}},
    "per": {"target": {"flops": 0.6}, "scope": "global", "per": "flops"},
    "multiples": {"target": {"params": 0.6}, "round_to": 4},
    "floor of one": {"ratio": 0.7, "floor": {"blocks.1.up.out": 11}},
    "ceiling of one": {"ratio": 0.1, "ceiling": {"blocks.2.up.out": 5}},
    "one is named": {"per_axis": {"blocks.1.up.out": 0.5}},
    "indices of one": {"per_axis": {"blocks.1.up.out": [1, 4, 5]}, "ratio": 0.2, "round_to": 4},
}


@pytest.mark.parametrize("how", REQUESTS.values(), ids=REQUESTS)
def test_layers_that_repeat_one_another_keep_one_size(how: dict[str, Any]) -> None:
    model = blocks()
    plan = mk.plan(mk.trace(model, X), **how, layers="uniform")
    first, second, third, other = inner(plan)
    assert first == second == third
    assert first < 20 or "target" in how  # which may leave it to the axis that runs through all blocks
    assert other == 28 or "ratio" in how or "target" in how
    if "floor" in how:
        assert first == 11
    if "ceiling" in how:
        assert first == 5
    if "round_to" in how and "per_axis" not in how:
        assert first % 4 == 0
    for unit, wanted in how.get("target", {}).items():
        before, after = getattr(plan, unit)
        assert after / before == pytest.approx(wanted, abs=0.01 if "round_to" not in how else 0.05)
    kept = copy.deepcopy(model)
    receipt = plan.cut(model)
    assert model(X).shape == (2, 3)
    receipt.undo()
    assert torch.equal(model(X), kept(X))


def test_each_layer_loses_its_own_least_important() -> None:
    model = blocks()
    with torch.no_grad():
        model.blocks[0].up.weight[3] = model.blocks[1].up.weight[7] = 0  # type: ignore[union-attr]
    plan = mk.plan(mk.trace(model, X), ratio=0.05, layers="uniform")
    dropped = {axis.name: axis.dropped for axis in plan.axes}
    assert dropped["blocks.0.up.out"] == (3,)
    assert dropped["blocks.1.up.out"] == (7,)
    assert len(dropped["blocks.2.up.out"]) == 1


def test_what_one_layer_keeps_all_keep() -> None:
    graph = mk.trace(blocks(), X)
    plan = mk.plan(graph, ratio=0.5, keep="blocks.2.up", layers="uniform")
    assert inner(plan) == [20, 20, 20, 14]
    assert any("blocks.2.up.out" in note and "uniform" in note for note in plan.notes)
    with pytest.raises(CutError, match="only=… and keep=… protect it"):
        mk.plan(graph, ratio=0.5, only="blocks.0.up.out", layers="uniform")


def test_a_plan_is_made_again_from_its_repr_and_from_its_file(tmp_path: Any) -> None:
    graph = mk.trace(blocks(), X)
    plan = mk.plan(graph, ratio=0.5, layers="uniform")
    assert repr(plan) == "mk.plan(graph, ratio=0.5, layers='uniform')"
    assert eval(repr(plan), {"mk": mk, "graph": graph}) == plan
    plan.save(tmp_path / "plan.json")
    assert mk.load_plan(tmp_path / "plan.json") == plan


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "shares that differ": ({"per_axis": {"blocks.0.up.out": 0.5, "blocks.1.up.out": 0.2}}, "alike"),
    "limits": (
        {"ratio": 0.5, "floor": {"blocks.0.up.out": 9}, "ceiling": {"blocks.1.up.out": 8}},
        "must be cut together",
    ),
}


@pytest.mark.parametrize(("how", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_uniform_is_refused(how: dict[str, Any], message: str) -> None:
    with pytest.raises(CutError, match=message):
        mk.plan(mk.trace(blocks(), X), **how, layers="uniform")


def test_another_word_for_layers_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'uniform'"):
        mk.plan(mk.trace(blocks(), X), ratio=0.5, layers="unifrom")


def test_a_correction_of_one_layer_is_one_of_all() -> None:
    planner = Planner(mk.trace(blocks(), X), Request(ratio=0.5, layers="uniform"))
    selection = planner.selection(0.5)
    one, two = (planner.axes[f"blocks.{at}.up.out"].term for at in (0, 2))
    assert selection.with_count(one, 7).counts[two] == 7
    assert two in selection.pin([one], "why").pinned


@pytest.mark.slow
def test_whole_groups_of_heads_go_unless_indices_are_asked_for() -> None:
    model, inputs = transformers_models.build("llama")
    graph = mk.trace(model, (), inputs)
    by_group = {axis.name: axis.left for axis in mk.plan(graph, ratio=0.5, layers="uniform").axes}
    assert all(by_group[f"model.layers.{at}.self_attn.kv_heads"] == 1 for at in (0, 1))
    assert not any("head_dim" in name for name in by_group)
    by_index = [axis.name for axis in mk.plan(graph, ratio=0.5, granularity="index", layers="uniform").axes]
    assert not any("kv_heads" in name for name in by_index)


def test_attention_of_encoder_and_decoder_is_one_layer() -> None:
    model, inputs = transformers_models.build("t5")
    graph = mk.trace(model, (), inputs)
    groups = [{graph.axes.of(term).name for term in group} for group in repeated_axes(graph.axes)]
    inside = "DenseReluDense.wi.out"
    assert any({f"encoder.block.0.layer.1.{inside}", f"decoder.block.1.layer.2.{inside}"} <= group for group in groups)


# what the axes of an architecture are to its configuration
SAID = {
    "bert": {
        "hidden_size": "bert.embeddings.word_embeddings.hidden",
        "num_attention_heads": "bert.encoder.layer.0.attention.self.heads",
        "intermediate_size": "bert.encoder.layer.1.intermediate.dense.out",
    },
    "gpt2": {
        "n_embd": "transformer.wte.hidden",
        "n_head": "transformer.h.0.attn.heads",
        "n_inner": "transformer.h.0.mlp.c_fc.out",
    },
    "llama": {
        "hidden_size": "model.embed_tokens.hidden",
        "intermediate_size": "model.layers.0.mlp.gate_proj.out",
        "num_key_value_heads": "model.layers.0.self_attn.kv_heads",
    },
    "t5": {
        "d_model": "encoder.embed_tokens.hidden",
        "d_ff": "decoder.block.1.layer.2.DenseReluDense.wi.out",
        "num_heads": "decoder.block.0.layer.1.EncDecAttention.heads",
    },
}


@pytest.mark.parametrize("name", sampled(SAID, set(SAID) - {"t5"}))
@pytest.mark.parametrize("how", [{"ratio": 0.3}, {"target": {"flops": 0.6}}], ids=["ratio", "target"])
@pytest.mark.slow
def test_what_is_cut_is_what_the_configuration_can_say(name: str, how: dict[str, Any]) -> None:
    model, inputs = transformers_models.build(name)
    plan = mk.plan(mk.trace(model, (), inputs), **how, layers="uniform")
    plan.cut(model)
    left = {axis.name: axis.left for axis in plan.axes}
    config: Any = copy.deepcopy(model.config)
    for attribute, axis in SAID[name].items():
        if axis in left:
            setattr(config, attribute, left[axis])
    if "num_key_value_heads" in SAID[name]:
        config.num_attention_heads = 2 * config.num_key_value_heads
    with torch.device("meta"):
        built = type(model)(config)
    assert {key: value.shape for key, value in built.state_dict().items()} == {
        key: value.shape for key, value in model.state_dict().items()
    }


# the streams of CLIP are outputs; Falcon's heads are of one key, so that its rotary part alone could go
STAYS = {"clip": ("heads", "hidden", "head_dim"), "falcon": ("heads", "rot", "head_dim")}


@pytest.mark.parametrize(("name", "parts"), STAYS.items(), ids=STAYS)
@pytest.mark.slow
def test_what_a_configuration_could_not_say_stays(name: str, parts: tuple[str, ...]) -> None:
    model, inputs = transformers_models.build(name)
    graph = mk.trace(model, (), inputs)
    plan = mk.plan(graph, ratio=0.5, layers="uniform")
    assert plan.axes
    assert not any(axis.name.endswith(parts) for axis in plan.axes)
    freely = mk.plan(graph, ratio=0.5)
    assert any(axis.name.endswith(parts) for axis in freely.axes)


@pytest.mark.parametrize(("name", "is_free"), [("llama", True), ("qwen3", True), ("bert", False), ("gpt2", False)])
def test_heads_are_free_where_the_configuration_has_their_size(name: str, is_free: bool) -> None:
    model, inputs = transformers_models.build(name)
    planner = Planner(mk.trace(model, (), inputs), Request(ratio=0.5, layers="uniform"))
    heads = next(axis for axis in planner.chosen if axis.name.endswith("heads"))
    together = planner.layers.proportions.with_group_members([heads.term])
    assert is_free == all(term.size == heads.size for term in together)
    assert len(together) > 1
