"""Models of plain torch: what builds them is found or said, and another process has to know their classes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from pruning.saving import own_models
from pruning.saving.fresh import answers, ask

Case = tuple[Callable[[], nn.Module], torch.Tensor, dict[str, Any]]
CASES: dict[str, Case] = {
    "no arguments": (own_models.Plain, torch.rand(2, 3, 8, 8), {}),
    "arguments in attributes": (lambda: own_models.Sized(8, bias=False), torch.rand(2, 4), {}),
    "arguments by place": (lambda: own_models.Forgetful([4, 8, 8, 2]), torch.rand(2, 4),
                           {"arguments": ([4, 8, 8, 2],)}),
    "arguments by name": (lambda: own_models.Forgetful([4, 8, 2]), torch.rand(2, 4),
                          {"arguments": {"sizes": [4, 8, 2]}}),
    "a function": (lambda: own_models.tower(8, act="tanh"), torch.rand(2, 4),
                   {"builder": own_models.tower, "arguments": {"width": 8, "act": "tanh"}}),
    "ties and tables": (own_models.Tied, torch.arange(6)[None], {}),
    "recurrent": (own_models.Recurrent, torch.rand(1, 5, 6), {}),
    "layers of torch": (lambda: nn.Sequential(nn.Conv2d(3, 8, (3, 1), padding="same", bias=False), nn.GroupNorm(2, 8),
                                              nn.Sequential(nn.GELU("tanh"), nn.Conv2d(8, 4, 1)), nn.Dropout(0.3)),
                        torch.rand(1, 3, 8, 8), {}),
}  # fmt: skip


def cut(name: str) -> tuple[nn.Module, torch.Tensor, Any, dict[str, Any]]:
    make, x, how = CASES[name]
    torch.manual_seed(0)
    model = make().eval()
    receipt = mk.plan(mk.trace(model, x), ratio=0.5).cut(model)
    return model, x, receipt, how


@pytest.mark.slow
def test_each_is_the_same_in_another_process(tmp_path: Path) -> None:
    for name in CASES:
        model, x, receipt, how = cut(name)
        ask(model, (x,), {}, tmp_path / name)
        mk.save_model(model, tmp_path / name / "folder", receipt, **how)
    found = answers([tmp_path / name for name in CASES if name != "a function"], "pruning.saving.own_models")
    assert {Path(place).name for place, each in found.items() if not each.get("equal")} == set(), found


def test_a_function_is_called_only_where_it_was_agreed_to(tmp_path: Path) -> None:
    model, x, receipt, how = cut("a function")
    mk.save_model(model, tmp_path / "it", receipt, **how)
    with pytest.raises(mk.ModuleKGError, match="classes="):
        mk.load_pretrained(tmp_path / "it")
    again = mk.load_pretrained(tmp_path / "it", classes=[own_models.tower])
    assert torch.equal(again(x), model(x))


@pytest.mark.slow
def test_a_class_that_nobody_has_imported_is_not(tmp_path: Path) -> None:
    model, x, receipt, _ = cut("no arguments")
    ask(model, (x,), {}, tmp_path)
    mk.save_model(model, tmp_path / "folder", receipt)
    found = answers([tmp_path])[str(tmp_path)]
    assert "ModelFolderError" in found["error"]
    assert "import it first" in found["error"]
    assert found["error"].endswith("a folder alone imports nothing")  # no list of names: none were passed


def test_ties_tables_and_gradients_are_as_they_were(tmp_path: Path) -> None:
    model, x, receipt, _ = cut("ties and tables")
    receipt.save_pretrained(tmp_path / "it")
    again = mk.load_pretrained(tmp_path / "it")
    assert isinstance(again, own_models.Tied)
    assert again.head.weight is again.embed.weight
    assert isinstance(again.head.weight, nn.Parameter)
    assert again.head.weight.requires_grad
    assert again.scale.shape == model.scale.shape
    assert not again.training
    again.train()(x).sum().backward()
    assert again.inner.weight.grad is not None


def test_what_was_cut_twice_is_saved_with_both_receipts(tmp_path: Path) -> None:
    model, x = own_models.Plain().eval(), torch.rand(1, 3, 8, 8)
    receipts = [mk.plan(mk.trace(model, x), ratio=0.5).cut(model) for _ in range(2)]
    with pytest.raises(mk.ModuleKGError, match=r"receipts of all cuts|several times"):
        receipts[1].save_pretrained(tmp_path / "it")
    assert not (tmp_path / "it").exists()
    mk.save_model(model, tmp_path / "it", receipts)
    assert torch.equal(mk.load_pretrained(tmp_path / "it")(x), model(x))


def test_a_plan_saves_the_whole_model_as_it_would_be_cut(tmp_path: Path) -> None:
    model, x = own_models.Tied().eval(), torch.arange(6)[None]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    plan = mk.plan(mk.trace(model, x), ratio=0.5)
    plan.save_pretrained(model, tmp_path / "it")
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    again = mk.load_pretrained(tmp_path / "it")
    smaller = copy.deepcopy(model)
    plan.cut(smaller)
    assert torch.equal(again(x), smaller(x))


def test_what_was_never_cut_is_saved_too(tmp_path: Path) -> None:
    model, x = own_models.Plain().eval(), torch.rand(1, 3, 8, 8)
    mk.save_model(model, tmp_path / "it")
    assert torch.equal(mk.load_pretrained(tmp_path / "it")(x), model(x))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes_stay(tmp_path: Path, dtype: torch.dtype) -> None:
    model, _, receipt, _ = cut("no arguments")
    model.to(dtype)
    receipt.save_pretrained(tmp_path / "it")
    again = mk.load_pretrained(tmp_path / "it")
    assert again.first.weight.dtype is dtype
    assert again.norm.num_batches_tracked.dtype is torch.int64


def test_what_cannot_be_built_anew_is_named(tmp_path: Path) -> None:
    model, x = own_models.Forgetful([4, 8, 2]).eval(), torch.rand(1, 4)
    receipt = mk.plan(mk.trace(model, x), ratio=0.5).cut(model)
    with pytest.raises(mk.ModuleKGError, match=r"'sizes'.*arguments="):
        receipt.save_pretrained(tmp_path / "it")
    with pytest.raises(mk.ModuleKGError, match=r"stack\.0\.weight"):
        mk.save_model(model, tmp_path / "it", receipt, arguments={"sizes": [4, 16, 2]})
    with pytest.raises(mk.ModuleKGError, match="JSON"):
        mk.save_model(model, tmp_path / "it", receipt, arguments={"sizes": torch.ones(3)})

    class Local(nn.Module):
        pass

    with pytest.raises(mk.ModuleKGError, match="cannot be found from another process"):
        mk.save_model(Local(), tmp_path / "it")
    assert not (tmp_path / "it").exists()


def test_a_spent_receipt_and_a_mask_save_nothing(tmp_path: Path) -> None:
    model, x = own_models.Plain().eval(), torch.rand(1, 3, 8, 8)
    plan = mk.plan(mk.trace(model, x), ratio=0.5)
    receipt = plan.cut(model)
    receipt.undo()
    masked = plan.mask(model)
    for each in (receipt, masked):
        with pytest.raises(mk.ModuleKGError, match=r"mk\.save_model"):
            each.save_pretrained(tmp_path / "it")
    mk.save_model(model, tmp_path / "it")
    assert torch.equal(mk.load_pretrained(tmp_path / "it")(x), model(x))


def test_a_cut_that_keeps_nothing_is_saved_too(tmp_path: Path) -> None:
    model, x = own_models.Plain().eval(), torch.rand(1, 3, 8, 8)
    mk.plan(mk.trace(model, x), ratio=0.5).cut(model, undo=False).save_pretrained(tmp_path / "it")
    assert torch.equal(mk.load_pretrained(tmp_path / "it")(x), model(x))
