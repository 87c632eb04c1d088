"""MaskEditor with batches and a loss: what each index costs, computed between cells and kept."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import CutError
from widgets.mask_data import BATCHES, HIDDEN, HOSTILE, WIDE, Loop, X, loss_of
from widgets.mask_page import Page


def by_axis(editor: mk.MaskEditor, content: bytes) -> dict[str, np.ndarray]:
    axes = editor.payload["axes"]
    parts = np.split(np.frombuffer(content, "<f8"), np.cumsum(axes["size"])[:-1])
    return dict(zip(axes["name"], parts, strict=True))


def test_without_data_nothing_is_offered_and_nothing_is_new(model: nn.Sequential) -> None:
    editor = mk.MaskEditor(model, X)
    nothing = {"sensitivity": False, "recalibrate": False, "evaluate": False, "batches": None, "on_batches": []}
    assert editor.offers == nothing | {"statistics": True, "inputs": ["2×4"]}
    assert editor.measured == {}
    assert "sensitivity" not in editor.payload["importances"]
    assert (editor.increases, editor.sensitivity, editor.recalibrating) == (b"", None, False)
    assert editor.trial == {"recalibrated": False, "evaluations": []}


def test_a_workbench_hands_them_to_its_editor(model: nn.Sequential) -> None:
    bench = mk.Workbench(model, X, batches=BATCHES, loss=F.cross_entropy, evaluate=loss_of)
    offers = bench.editor.offers
    assert [offers[name] for name in ("sensitivity", "recalibrate", "evaluate", "batches")] == [True] * 3 + [
        len(BATCHES)
    ]
    bench.close()


def test_sensitivity_is_computed_where_it_is_chosen_and_is_the_table_of_the_engine(editor: mk.MaskEditor) -> None:
    assert editor.payload["importances"][-1] == "sensitivity"
    assert editor.sensitivity is None
    editor.importance = "sensitivity"
    table = mk.pruning.sensitivity(editor.graph, BATCHES, F.cross_entropy)
    assert editor.sensitivity is not None
    assert editor.sensitivity.equals(table)
    assert editor.scores == editor.increases
    found = by_axis(editor, editor.increases)
    for name in (HIDDEN, WIDE):
        assert found[name].tolist() == table["increase"][table["axis"] == name].tolist()
    assert np.isnan(found["0.in"]).all()  # a frozen one
    assert editor.comparable
    editor.importance = "l1"
    assert not editor.comparable
    assert editor.increases


def test_a_page_gets_it_in_slices_and_cells_have_their_turn(editor: mk.MaskEditor, page: Page, loop: Loop) -> None:
    editor.set_state({"importance": "sensitivity"})
    assert (editor.importance, editor.increases) == ("l2", b"")
    loop.turn()
    loop.turn()
    loop.turn()
    assert editor.importance == "l2"
    assert 0 < editor.sensing["done"] < editor.sensing["total"] == 32 * len(BATCHES)
    editor.axis = WIDE  # a cell
    loop.run()
    assert (editor.importance, editor.sensing, len(editor.increases)) == ("sensitivity", {}, len(editor.scores))
    assert page.heard[-1][0] == {"type": "done", "action": "sense", "text": "Sensitivity: computed"}


def test_it_can_be_cancelled_beside_a_running_cell(editor: mk.MaskEditor, page: Page, loop: Loop) -> None:
    editor.set_state({"importance": "sensitivity"})
    loop.turn()
    loop.turn()
    thread = threading.Thread(target=lambda: page.say({"type": "cancel"}))
    thread.start()
    thread.join()
    assert editor.sensing == {}  # the page sees it at once
    loop.run()
    assert (editor.importance, editor.increases, editor.sensitivity) == ("l2", b"", None)
    assert page.heard[-1][0] == {"type": "failed", "action": "sense", "text": "Sensitivity: cancelled"}
    page.say({"type": "cancel"})  # nothing goes on
    page.say({"type": "sense"})
    loop.run()
    assert (editor.importance, len(editor.increases)) == ("l2", len(editor.scores))  # computed, not chosen


def test_what_is_chosen_last_counts(editor: mk.MaskEditor, page: Page, loop: Loop) -> None:
    editor.set_state({"importance": "sensitivity"})
    loop.turn()
    editor.set_state({"importance": "l1"})
    loop.run()
    assert editor.importance == "l1"
    assert editor.increases


def test_a_model_that_changes_meanwhile_is_no_basis(
    editor: mk.MaskEditor, page: Page, loop: Loop, model: nn.Sequential
) -> None:
    page.say({"type": "sense"})
    loop.turn()
    with torch.no_grad():
        model[0].weight += 1
    loop.run()
    assert editor.increases == b""
    assert "the model has changed" in page.heard[-1][0]["text"]


def test_it_is_known_until_the_model_changes_and_again_when_that_is_undone(
    editor: mk.MaskEditor, model: nn.Sequential, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor.importance = "sensitivity"
    first = editor.increases
    counted: list[int] = []
    monkeypatch.setattr(type(editor._pruning), "compute_sensitivity", lambda pruning: counted.append(1) or iter(()))
    editor.importance = "l1"
    editor.importance = "sensitivity"
    editor.plan = mk.plan(editor.graph, per_axis={HIDDEN: [1, 2]})
    editor.mask()
    assert editor.sensitivity is not None  # a mask is no other model
    editor.undo()
    assert (counted, editor.increases) == ([], first)
    weight = model[0].weight.detach().clone()
    with torch.no_grad():
        model[0].weight += 1
    assert editor.sensitivity is None
    with torch.no_grad():
        model[0].weight.copy_(weight)
    editor.importance = "l1"
    editor.cut()
    assert (editor.increases, editor.sensitivity) == (b"", None)
    editor.undo()
    assert (counted, editor.increases) == ([], first)
    editor.importance = "sensitivity"
    assert counted == []


def test_after_a_cut_it_is_computed_anew_where_it_is_the_importance(editor: mk.MaskEditor, loop: Loop) -> None:
    editor.importance = "sensitivity"
    editor.plan = mk.plan(editor.graph, per_axis={HIDDEN: [1, 2]})
    editor.cut()
    assert (editor.importance, editor.scores, editor.increases) == ("sensitivity", b"", b"")
    loop.run()
    table = mk.pruning.sensitivity(editor.graph, BATCHES, F.cross_entropy)
    assert editor.sensitivity is not None
    assert editor.sensitivity.equals(table)
    assert editor.scores == editor.increases != b""
    editor.plan = mk.plan(editor.graph, per_axis={HIDDEN: [1]})
    editor.cut()
    loop.turn()
    editor._cancel()
    loop.run()
    assert editor.importance == "l1"  # one that can be had
    assert editor.scores


def test_a_loss_that_fails_is_told_and_the_importance_stays(
    model: nn.Sequential, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loss(output: Any, target: Any) -> Any:
        raise ValueError(HOSTILE)

    editor = mk.MaskEditor(model, X, batches=BATCHES, loss=loss)
    page = Page(editor, monkeypatch)
    editor.set_state({"importance": "sensitivity"})
    assert (editor.importance, editor.sensing) == ("l2", {})
    said = page.heard[-1][0]
    assert (said["type"], said["action"]) == ("failed", "sense")
    assert "the loss stopped on the output of batch 0: ValueError: <img" in said["text"]
    with pytest.raises(CutError, match="the loss stopped"):
        editor.importance = "sensitivity"
    assert editor.importance == "l2"


@pytest.mark.parametrize("name", ["taylor", "hessian", "activation", "expert_usage"])
def test_importances_on_data_take_the_editors_own_and_not_what_lies_on_the_parameters(
    editor: mk.MaskEditor, model: nn.Sequential, name: str
) -> None:
    for parameter in model.parameters():
        parameter.grad = torch.rand_like(parameter)  # left over from training
    criterion = {
        "taylor": lambda: mk.pruning.Taylor(BATCHES, F.cross_entropy),
        "hessian": lambda: mk.pruning.Hessian(BATCHES, F.cross_entropy),
        "activation": lambda: mk.pruning.Activation(BATCHES),
        "expert_usage": lambda: mk.pruning.ExpertUsage(BATCHES),
    }[name]
    editor.importance = name
    assert editor.scores == editor._draft.scores(criterion())
    assert name in editor.offers["on_batches"]


def test_without_a_loss_those_that_need_one_are_as_they_were(model: nn.Sequential) -> None:
    editor = mk.MaskEditor(model, X, batches=BATCHES)
    assert editor.offers["on_batches"] == ["activation", "expert_usage"]
    with pytest.raises(CutError, match=r"reads the parameters' \.grad"):
        editor.importance = "taylor"


def test_a_model_without_running_statistics_is_not_recalibrated() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 12), nn.LayerNorm(12), nn.ReLU(), nn.Linear(12, 3)).eval()
    editor = mk.MaskEditor(plain, X, batches=BATCHES, loss=F.cross_entropy, evaluate=loss_of)
    assert (editor.recalibrating, editor.offers["recalibrate"], editor.offers["statistics"]) == (False, False, False)
    with pytest.raises(CutError, match="no running statistics"):
        editor.recalibrating = True
    editor.plan = mk.plan(editor.graph, ratio=0.5)
    editor.cut()
    assert [entry["state"] for entry in editor.trial["evaluations"]] == ["uncut", "cut"]
