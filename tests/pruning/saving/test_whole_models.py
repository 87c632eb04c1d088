"""A plan that saves the whole model writes what its cut would write, modules that go included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import modulekg_widgets as mk
from models import transformers_models
from pruning.saving import own_models
from sampling import sampled

PLANS: dict[str, dict[str, Any]] = {
    "sizes": {"ratio": 0.5},
    "blocks": {"blocks": 1},
    "both": {"ratio": 0.5, "blocks": 1},
    "uniform": {"ratio": 0.5, "blocks": 1, "layers": "uniform"},
}


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("how", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("name", sampled(["llama", "t5", "bert"], ["bert"]))
def test_files_are_those_of_the_cut_model(name: str, how: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    model, kwargs = transformers_models.build(name)
    plan = mk.plan(mk.trace(model.eval(), (), kwargs), **how)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    from_whole = plan.save_pretrained(model, tmp_path / "whole")
    assert all(torch.equal(before[key], tensor) for key, tensor in model.state_dict().items())
    from_cut = plan.cut(model).save_pretrained(tmp_path / "cut")
    assert from_whole.plain == from_cut.plain
    assert contents(tmp_path / "whole") == contents(tmp_path / "cut")
    again = mk.load_pretrained(tmp_path / "whole")
    assert torch.equal(again(**kwargs)[0], model(**kwargs)[0])


@pytest.mark.parametrize("gone", ["blocks.0", "blocks.1", "blocks.2"])
@pytest.mark.parametrize("widths", [{}, {"per_axis": {"start.out": 0.5}}], ids=["blocks", "both"])
def test_what_is_behind_a_block_that_goes_moves_up(gone: str, widths: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = own_models.Residual().eval(), torch.rand(2, 4)
    model.blocks[2].scale = 0.5  # type: ignore[union-attr]
    plan = mk.plan(mk.trace(model, x), blocks=[gone], **widths)
    plan.save_pretrained(model, tmp_path / "whole")
    plan.cut(model).save_pretrained(tmp_path / "cut")
    assert contents(tmp_path / "whole") == contents(tmp_path / "cut")
    assert torch.equal(mk.load_pretrained(tmp_path / "whole", classes=[own_models.Residual])(x), model(x))


def test_a_model_that_is_neither_whole_nor_cut_so_is_refused(tmp_path: Path) -> None:
    model, x = own_models.Residual().eval(), torch.rand(2, 4)
    plan = mk.plan(mk.trace(model, x), blocks=["blocks.1"])
    mk.plan(mk.trace(model, x), per_axis={"blocks.0.up.out": 0.5}).cut(model)
    with pytest.raises(mk.ModuleKGError, match="cannot be saved so that it loads again"):
        plan.save_pretrained(model, tmp_path / "it")
    assert not (tmp_path / "it").exists()
