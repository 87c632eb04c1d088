"""`layers="uniform"`: what is cut is what the configuration of the model has numbers for, all that belongs to it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from models import transformers_models
from sampling import sampled

pytest.importorskip("transformers")


def planned(name: str, **how: Any) -> tuple[nn.Module, dict[str, torch.Tensor], mk.PruningPlan]:
    model, inputs = transformers_models.build(name)
    return model, inputs, mk.plan(mk.trace(model, (), inputs), **{"ratio": 0.5, **how}, layers="uniform")


def lost(plan: mk.PruningPlan) -> set[str]:
    """The last parts of the names of the axes that lose indices."""
    return {axis.name.rpartition(".")[2] for axis in plan.axes}


# what the code computes from the width stays as it is: a table of Gemma 2, a factor of T5
WHOLE = {"gemma2": ("hidden", "embed_scale"), "t5": ("hidden", "model_dim")}


@pytest.mark.parametrize("name", sampled(WHOLE, ["gemma2"]))
@pytest.mark.slow
def test_what_no_key_says_stays_whole_and_the_rest_goes(tmp_path: Path, name: str) -> None:
    model, inputs, plan = planned(name)
    axis, why = WHOLE[name]
    assert axis not in lost(plan)
    assert any("are not cut" in note and why in note for note in plan.notes)
    assert plan.params[1] / plan.params[0] < 0.75
    assert plan.save_pretrained(model, tmp_path / "folder").plain
    freely = mk.plan(mk.trace(model, (), inputs), ratio=0.5)
    assert axis in lost(freely)


@pytest.mark.slow
def test_an_axis_that_the_user_names_goes_whatever_the_configuration_says() -> None:
    _, _, plan = planned("t5", ratio=None, per_axis={"encoder.embed_tokens.hidden": 0.5})
    assert "hidden" in lost(plan)


UNREAD = {"dinov2": "dinov2.embeddings.mask_token", "led": "led.encoder.layers.0.self_attn.longformer_self_attn."
          "query_global.weight"}  # fmt: skip


@pytest.mark.parametrize(("name", "tensor"), UNREAD.items(), ids=UNREAD)
@pytest.mark.slow
def test_a_tensor_that_the_pass_does_not_read_follows_its_like(name: str, tensor: str) -> None:
    model, inputs, plan = planned(name)
    assert any(tensor in str(change) for change in plan.changes)
    before = copy.deepcopy(model).state_dict()
    receipt = plan.cut(model)
    after = model.state_dict()
    assert after[tensor].shape == tuple(size if size == 1 else size // 2 for size in before[tensor].shape)
    assert plan.params[1] == sum(each.numel() for each in model.parameters())
    model(**inputs)
    receipt.undo()
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in before.items())


def test_a_mask_token_loses_the_indices_of_the_stream_that_it_is_put_into() -> None:
    model, inputs, plan = planned("dinov2")
    width = next(axis for axis in plan.axes if axis.name.endswith("hidden"))
    keep = [at for at in range(width.size) if at not in width.dropped]
    before = model.dinov2.embeddings.mask_token.detach().clone()  # type: ignore[union-attr]
    plan.cut(model)
    assert torch.equal(model.dinov2.embeddings.mask_token, before[:, keep])  # type: ignore[union-attr]
    masked = torch.zeros(1, 25, dtype=torch.bool)
    masked[0, 3] = True
    assert model.dinov2(**inputs, bool_masked_pos=masked)[0].shape[-1] == width.left  # type: ignore[union-attr]


@pytest.mark.slow
def test_numbers_that_no_pass_reads_follow(tmp_path: Path) -> None:
    model, inputs, plan = planned("mixtral")
    plan.cut(model)
    assert model.num_experts == 2
    assert torch.isfinite(model(**inputs, output_router_logits=True, labels=inputs["input_ids"]).loss)


def test_ids_that_are_as_large_as_a_size_stay(tmp_path: Path) -> None:
    model, _, plan = planned("opt", ratio=None, blocks=0.25)
    config: Any = model.config
    assert 2 in (config.bos_token_id, config.eos_token_id)  # as there are two layers
    saved = plan.cut(model).save_pretrained(tmp_path / "folder")
    assert saved.plain
    assert saved.reason == "changed in the configuration: num_hidden_layers 2 → 1"


def test_heads_divide_the_width_where_a_target_leaves_any_size(tmp_path: Path) -> None:
    model, _, plan = planned("llama", ratio=None, target={"flops": 0.6})
    assert plan.save_pretrained(model, tmp_path / "folder").plain
    assert plan.notes == ()


@pytest.mark.slow
def test_a_configuration_that_says_nothing_of_the_model_leaves_the_plan_with_a_note(tmp_path: Path) -> None:
    model, _, plan = planned("bloom")
    assert any("mk.load_pretrained alone" in note for note in plan.notes)
    assert not plan.save_pretrained(model, tmp_path / "folder").plain


def test_a_model_that_its_configuration_does_not_build_is_planned_as_one_without() -> None:
    model, inputs = transformers_models.build("t5")
    config: Any = model.config
    config.feed_forward_proj, config.is_gated_act = "gated-gelu", True  # another structure, which no number mends
    plan = mk.plan(mk.trace(model, (), inputs), ratio=0.5, layers="uniform")
    assert "hidden" in lost(plan)


def test_a_number_that_is_not_the_models_is_found_again() -> None:
    model, inputs = transformers_models.build("t5")
    config: Any = model.config
    before = lost(mk.plan(mk.trace(model, (), inputs), ratio=0.5, layers="uniform"))
    config.d_model = 40
    assert lost(mk.plan(mk.trace(model, (), inputs), ratio=0.5, layers="uniform")) == before
