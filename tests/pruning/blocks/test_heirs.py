"""What a first block computes for all behind it moves on: T5's position biases, and those of a model of our own."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import CutError
from modulekg_widgets.engine.residuals.module_removal import ModuleRemoval, MovedModule, RemovedModule
from modulekg_widgets.engine.residuals.removable_blocks import residual_blocks
from modulekg_widgets.engine.residuals.shared_modules import moved_shared_modules
from pruning.blocks.every_block import first_output, state_of
from pruning.saving import own_models
from sampling import sampled

START = torch.arange(7)[None]
LOADED = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"


def t5(**sizes: Any) -> tuple[nn.Module, dict[str, Any]]:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    known = {"vocab_size": 100, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 3, "num_heads": 4}
    model = transformers.T5ForConditionalGeneration(
        transformers.T5Config(**known, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1, **sizes)
    )
    return model.eval(), {"input_ids": START, "decoder_input_ids": START}


def silenced(model: nn.Module, paths: list[str]) -> None:
    """Blocks that add nothing, but still compute the positions."""
    for path in paths:
        for name, layer in model.get_submodule(path).named_modules():
            if name.endswith((".o", ".wo")):
                nn.init.zeros_(layer.weight)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "gone",
    [["encoder.block.0"], ["decoder.block.0"], ["encoder.block.0", "encoder.block.1"],
     ["encoder.block.0", "encoder.block.2", "decoder.block.0", "decoder.block.1"]],
)  # fmt: skip
@torch.no_grad()
@pytest.mark.slow
def test_positions_stay_when_the_block_that_computes_them_goes(gone: list[str]) -> None:
    model, kwargs = t5()
    silenced(model, gone)
    whole, before = model(**kwargs).logits, state_of(model)
    texts = model.generate(START, max_new_tokens=6, min_new_tokens=6, do_sample=False)
    receipt = mk.plan(mk.trace(model, (), kwargs), blocks=gone).cut(model)
    assert model.encoder.config.num_layers == 3 - sum(path.startswith("encoder") for path in gone)
    assert torch.equal(model(**kwargs).logits, whole)
    assert torch.equal(model.generate(START, max_new_tokens=6, min_new_tokens=6, do_sample=False), texts)
    receipt.undo()
    assert state_of(model) == before


@pytest.mark.slow
def test_no_block_is_left_to_take_over() -> None:
    model, kwargs = t5()
    graph = mk.trace(model, (), kwargs)
    every = [f"encoder.block.{at}" for at in range(3)]
    with pytest.raises(CutError, match="does not run without"):
        mk.plan(graph, blocks=every)


@pytest.mark.slow
def test_a_share_of_blocks_leaves_one_that_takes_over() -> None:
    model, kwargs = t5()
    with torch.no_grad():
        for parameter in model.decoder.block.parameters():
            parameter *= 0.1  # those of the decoder go first
    graph = mk.trace(model, (), kwargs)
    plan = mk.plan(graph, blocks=0.5)
    assert len(plan.blocks) == 3
    with pytest.raises(CutError, match="of 5 blocks 4 can be removed"):
        mk.plan(graph, blocks=5)
    plan.cut(model)
    assert len(model.decoder.block) >= 1
    assert model(**kwargs).logits.shape == (1, 7, 100)


@pytest.mark.slow
def test_the_weights_that_stay_are_not_counted_as_gone() -> None:
    model, kwargs = t5()
    graph = mk.trace(model, (), kwargs)
    table = graph.blocks().set_index("path")["params"]
    assert table["encoder.block.0"] == table["encoder.block.1"]
    plan = mk.plan(graph, blocks=["encoder.block.0"])
    assert plan.params[0] - plan.params[1] == table["encoder.block.0"]
    plan.cut(model)
    assert sum(each.numel() for each in model.parameters()) == plan.params[1]


@pytest.mark.parametrize(
    "widths",
    sampled([{}, {"ratio": 0.5}, {"ratio": 0.5, "layers": "uniform"}], [{}]),
    ids=str,
)
@torch.no_grad()
@pytest.mark.slow
def test_saved_without_its_first_block(widths: dict[str, Any], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model, kwargs = t5()
    plan = mk.plan(mk.trace(model, (), kwargs), blocks=["encoder.block.0", "decoder.block.0"], **widths)
    plan.save(tmp_path / "plan.json")
    again = mk.load_plan(tmp_path / "plan.json")
    assert again.edits.removal == plan.edits.removal
    other = copy.deepcopy(model)
    saved = again.cut(model).save_pretrained(tmp_path / "cut")
    expected = model(**kwargs).logits
    assert torch.equal(mk.load_pretrained(tmp_path / "cut")(**kwargs).logits, expected)
    plan.save_pretrained(other, tmp_path / "whole")
    assert torch.equal(mk.load_pretrained(tmp_path / "whole")(**kwargs).logits, expected)
    if not widths or "layers" in widths:
        assert saved.plain, saved.reason
        plain = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path / "cut").eval()
        assert torch.equal(plain.get_parameter(LOADED), model.get_parameter(LOADED))
        assert torch.allclose(plain(**kwargs).logits, expected, atol=1e-6)


@pytest.mark.slow
def test_an_optimizer_keeps_the_state_of_what_moves() -> None:
    model, kwargs = t5()
    optimizer = torch.optim.Adam(model.parameters())
    model(**kwargs).logits.sum().backward()
    optimizer.step()
    bias = model.get_parameter(LOADED)
    momentum = optimizer.state[bias]["exp_avg"].clone()
    mk.plan(mk.trace(model, (), kwargs), blocks=["encoder.block.0"]).cut(model, optimizer=optimizer)
    assert torch.equal(optimizer.state[model.get_parameter(LOADED)]["exp_avg"], momentum)
    model(**kwargs).logits.sum().backward()
    optimizer.step()


# ------------------------------------------------------------ a model of our own


class Table(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self) -> torch.Tensor:
        return self.weight.softmax(-1)


class MixingBlock(nn.Module):
    def __init__(self, is_first: bool) -> None:
        super().__init__()
        self.computes_mixing = is_first
        self.up = nn.Linear(4, 4)
        if is_first:
            self.mixing = Table()

    def forward(self, x: torch.Tensor, mixing: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        if mixing is None:
            mixing = self.mixing() if self.computes_mixing else torch.zeros(4, 4)
        return x + self.up(x) @ mixing, mixing


class Sharing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([MixingBlock(at == 0) for at in range(3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixing = None
        for block in self.blocks:
            x, mixing = block(x, mixing)
        return x


class Dependent(MixingBlock):
    """What it gives to those behind comes of the values that go through."""

    def forward(self, x: torch.Tensor, mixing: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        mixing = x.mT @ x if mixing is None else mixing
        return x + self.up(x) @ mixing, mixing


@torch.no_grad()
def test_a_table_of_another_model_moves_on() -> None:
    model, x = Sharing().eval(), torch.randn(3, 4)
    nn.init.zeros_(model.blocks[0].up.weight)  # type: ignore[union-attr,arg-type]
    nn.init.zeros_(model.blocks[0].up.bias)  # type: ignore[union-attr,arg-type]
    whole = model(x)
    receipt = mk.plan(mk.trace(model, x), blocks=["blocks.0"]).cut(model)
    assert list(model.state_dict()) == ["blocks.0.up.weight", "blocks.0.up.bias", "blocks.0.mixing.weight",
                                        "blocks.1.up.weight", "blocks.1.up.bias"]  # fmt: skip
    assert torch.equal(model(x), whole)
    receipt.undo()
    assert torch.equal(model(x), whole)


def test_what_comes_of_the_values_that_go_through_cannot_move() -> None:
    model = Sharing().eval()
    model.blocks[0] = Dependent(False)
    graph = mk.trace(model, torch.randn(3, 4))
    assert "blocks.0" not in {block.path for block in residual_blocks(graph)}
    assert {"blocks.1", "blocks.2"} <= {block.path for block in residual_blocks(graph)}


def test_nothing_moves_for_blocks_that_share_nothing() -> None:
    model = own_models.Residual().eval()
    graph = mk.trace(model, torch.rand(2, 4))
    assert moved_shared_modules(model, residual_blocks(graph), ["blocks.0"]) == ([], {})


@pytest.mark.parametrize(
    ("moved", "message"),
    [
        (MovedModule("blocks.1.up", "blocks.2"), "not a module inside a removed one"),
        (MovedModule("blocks.0.other", "blocks.1"), "not a module inside a removed one"),
        (MovedModule("blocks.0.up", "blocks.1"), "has its own"),
        (MovedModule("blocks.0.mixing", "blocks.0"), "cannot take over"),
        (MovedModule("blocks.0.mixing", "blocks.7"), "cannot take over"),
    ],
)
def test_moves_that_do_not_fit_the_model_are_refused(moved: MovedModule, message: str) -> None:
    model, x = Sharing().eval(), torch.randn(3, 4)
    plan = mk.plan(mk.trace(model, x), blocks=["blocks.0"])
    before = state_of(model)
    wrong = ModuleRemoval((RemovedModule("blocks.0"),), {}, (moved,))
    with pytest.raises(CutError, match=message):
        _with_removal(plan, wrong).cut(model)
    assert state_of(model) == before
    assert first_output(model, (x,), {}).shape == x.shape


def _with_removal(plan: mk.PruningPlan, removal: ModuleRemoval) -> mk.PruningPlan:
    from dataclasses import replace

    return replace(plan, edits=replace(plan.edits, removal=removal))
