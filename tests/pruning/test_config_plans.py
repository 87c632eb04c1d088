"""`mk.plan(graph, config={…})`: the cut model is the one that the configuration builds."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from models import transformers_models
from modulekg_widgets.engine.errors import CutError, UnknownNameError
from pruning.saving.fresh import answers, ask

pytest.importorskip("transformers")

# numbers of a configuration, by the keys that it has or that the library maps to them
WANTED: dict[str, tuple[str, dict[str, Any]]] = {
    "llama inside": ("llama", {"intermediate_size": 24}),
    "llama width": ("llama", {"hidden_size": 24}),
    "llama heads": ("llama", {"num_attention_heads": 2, "num_key_value_heads": 1}),
    "gpt2 mapped": ("gpt2", {"hidden_size": 16, "num_attention_heads": 2}),
    "gpt2 without a value": ("gpt2", {"n_inner": 48}),
    "bert": ("bert", {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 20}),
    "t5": ("t5", {"d_ff": 20, "num_heads": 2}),
    "vit": ("vit", {"hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 30}),
    "swin lists": ("swin", {"embed_dim": 8, "num_heads": [1, 2]}),
    "convnext lists": ("convnext", {"hidden_sizes": [8, 12, 20, 32]}),
    "qwen2": ("qwen2", {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1}),
    "mixtral experts": ("mixtral", {"num_local_experts": 2, "intermediate_size": 20}),
    "clip dotted": ("clip", {"text_config.intermediate_size": 20}),
}


def planned(name: str, config: Any, **how: Any) -> tuple[nn.Module, dict[str, torch.Tensor], mk.PruningPlan]:
    model, inputs = transformers_models.build(name)
    return model, inputs, mk.plan(mk.trace(model, (), inputs), config=config, **how)


def changed(config: Any, wanted: dict[str, Any]) -> Any:
    """A copy of a configuration with these numbers."""
    made = copy.deepcopy(config)
    for key, value in wanted.items():
        *homes, name = key.split(".")
        home = made
        for part in homes:
            home = getattr(home, part)
        setattr(home, name, value)
    return made


@pytest.mark.parametrize(("name", "wanted"), WANTED.values(), ids=WANTED)
@pytest.mark.slow
def test_the_cut_model_is_the_one_that_the_configuration_builds(
    tmp_path: Path, name: str, wanted: dict[str, Any]
) -> None:
    model, inputs, plan = planned(name, wanted)
    config = changed(model.config, wanted)
    assert plan.save_pretrained(model, tmp_path / "folder").plain
    before = copy.deepcopy(model).state_dict()
    receipt = plan.cut(model)
    with torch.device("meta"):
        built = type(model)(config)
    assert {key: value.shape for key, value in model.state_dict().items()} == {
        key: value.shape for key, value in built.state_dict().items()
    }
    assert plan.params[1] == sum(each.numel() for each in model.parameters())
    model(**inputs)
    receipt.undo()
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in before.items())


def test_the_least_important_indices_go() -> None:
    model, inputs = transformers_models.build("llama")
    mlp: Any = model.model.layers[0].mlp  # type: ignore[union-attr]
    with torch.no_grad():
        for part in (mlp.gate_proj, mlp.up_proj):
            part.weight[5:9] = 0
        mlp.down_proj.weight[:, 5:9] = 0
    plan = mk.plan(mk.trace(model, (), inputs), config={"intermediate_size": 44})
    dropped = {axis.name: axis.dropped for axis in plan.axes}
    assert dropped["model.layers.0.mlp.gate_proj.out"] == (5, 6, 7, 8)
    assert eval(repr(plan), {"mk": mk, "graph": mk.trace(model, (), inputs)}) == plan


@pytest.mark.slow
def test_a_fresh_process_loads_it_by_the_library_alone(tmp_path: Path) -> None:
    places = []
    for key in ("bert", "gpt2 mapped", "swin lists"):
        model, inputs, plan = planned(*WANTED[key])
        plan.cut(model).save_pretrained(tmp_path / key / "folder")
        ask(model, (), inputs, tmp_path / key)
        places.append(tmp_path / key)
    found = answers(places)
    assert all(each["equal"] and each["plain"] for each in found.values()), found


REFUSED: dict[str, tuple[str, dict[str, Any], type[Exception], str]] = {
    "no such key": ("bert", {"hidden_sizes": 3}, UnknownNameError, "did you mean 'hidden_size'"),
    "no such nested key": ("clip", {"text_config.hidden": 3}, UnknownNameError, "or 'hidden_size'"),
    "nothing left": ("bert", {"hidden_size": 0}, CutError, "1 at least"),
    "no whole number": ("bert", {"hidden_size": 16.5}, CutError, "whole number"),
    "no number": ("bert", {"hidden_act": 3}, CutError, "'gelu' now"),
    "larger": ("bert", {"hidden_size": 33}, CutError, "give 32 at most"),
    "as it is": ("bert", {"hidden_size": 32}, CutError, "removes nothing"),
    "not divided": ("bert", {"hidden_size": 30}, CutError, "divide one another"),
    "layers": ("bert", {"num_hidden_layers": 1}, CutError, "blocks="),
    "frozen": ("bert", {"vocab_size": 50}, CutError, "vocabulary is frozen"),
    "computed": ("t5", {"d_model": 16}, CutError, "model_dim is 32, and built anew 16"),
    "heads of another size": ("bert", {"hidden_size": 16}, CutError, "attention_head_size"),
    "nothing": ("bert", {}, CutError, "give numbers by key"),
    "no size": ("llama", {"max_position_embeddings": 16}, CutError, "no size of the traced model follows"),
    "half of two": ("llama", {"num_key_value_heads": 1}, CutError, "Also pass the numbers that depend on these"),
    "a truth value": ("llama", {"intermediate_size": True}, CutError, "whole number"),
}


@pytest.mark.parametrize(("name", "wanted", "error", "message"), REFUSED.values(), ids=REFUSED)
@pytest.mark.slow
def test_numbers_that_no_cut_leaves_are_refused(
    name: str, wanted: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        planned(name, wanted)


OPTIONS: dict[str, dict[str, Any]] = {
    "ratio": {"ratio": 0.5}, "target": {"target": {"params": 0.5}}, "per_axis": {"per_axis": {"hidden": 0.5}},
    "cuts": {"cuts": []}, "round_to": {"round_to": 8}, "blocks": {"blocks": 1}, "keep": {"keep": "bert"},
    "scope": {"scope": "global"}, "layers": {"layers": "uniform"}, "floor": {"floor": 0.1},
}  # fmt: skip


def test_other_options_exclude_it() -> None:
    model, inputs = transformers_models.build("bert")
    graph = mk.trace(model, (), inputs)
    for name, option in OPTIONS.items():
        with pytest.raises(CutError, match=f"config and {name} exclude each other"):
            mk.plan(graph, config={"intermediate_size": 20}, **option)


def test_a_model_without_a_configuration_is_refused() -> None:
    with pytest.raises(CutError, match="per_axis"):
        mk.plan(mk.trace(nn.Linear(4, 4), torch.randn(1, 4)), config={"width": 2})


@pytest.mark.slow
def test_a_model_that_was_cut_is_planned_from_the_configuration_that_builds_it_now(tmp_path: Path) -> None:
    model, inputs, plan = planned("llama", {"intermediate_size": np.int64(24)})
    first = plan.cut(model)
    with pytest.raises(CutError, match="it is 24 now"):
        mk.plan(mk.trace(model, (), inputs), config={"intermediate_size": 25})
    second = mk.plan(mk.trace(model, (), inputs), config={"intermediate_size": 12}).cut(model)
    assert mk.save_model(model, tmp_path / "folder", [first, second]).plain
    third = mk.plan(mk.trace(model, (), inputs), ratio=0.25, layers="uniform")
    assert not [note for note in third.notes if "alone will load" in note]
