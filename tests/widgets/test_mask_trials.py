"""MaskEditor with a function that evaluates: what a cut is worth, recalibration, and their way back."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import CutError, UnknownKeywordError
from modulekg_widgets.widgets.shared.model_widget import WEIGHTS_CHANGED
from widgets.mask_data import BATCHES, HIDDEN, HOSTILE, Loop, X, bytes_of, loss_of, net
from widgets.mask_page import Page


def entries(editor: mk.MaskEditor) -> list[tuple[str, dict[str, float]]]:
    return [(entry["state"], dict(entry["values"])) for entry in editor.trial["evaluations"]]


def test_a_cut_is_evaluated_before_after_and_recalibrated_and_undone_whole(
    editor: mk.MaskEditor, model: nn.Sequential
) -> None:
    original, before = bytes_of(model), loss_of(model)
    editor.plan = mk.plan(editor.graph, ratio=0.5)
    plan = editor.plan
    editor.cut()
    twin = net()
    receipt = plan.cut(twin)
    cut = loss_of(twin)
    receipt.undo()
    plan.cut(twin, recalibrate=BATCHES)
    assert entries(editor) == [
        ("uncut", {"loss_of": before}),
        ("cut", {"loss_of": cut}),
        ("recalibrated", {"loss_of": loss_of(twin)}),
    ]
    assert bytes_of(model) == bytes_of(twin)
    assert editor.trial["recalibrated"]
    assert editor.operations == 1
    editor.undo()
    assert bytes_of(model) == original
    assert entries(editor) == [("uncut", {"loss_of": before})]
    assert not editor.trial["recalibrated"]


def test_a_cut_is_recalibrated_afterwards_by_button(editor: mk.MaskEditor, page: Page, model: nn.Sequential) -> None:
    original = bytes_of(model)
    editor.recalibrating = False
    editor.plan = mk.plan(editor.graph, ratio=0.5)
    plan = editor.plan
    assert page.say({"type": "cut"})[-1]["type"] == "done"
    assert [state for state, _ in entries(editor)] == ["uncut", "cut"]
    assert not editor.trial["recalibrated"]
    assert page.say({"type": "recalibrate"})[-1]["text"].startswith("Recalibrated")
    assert [state for state, _ in entries(editor)] == ["uncut", "cut", "recalibrated"]
    twin = net()
    plan.cut(twin, recalibrate=BATCHES)
    assert bytes_of(model) == bytes_of(twin)
    # the editor goes on with the model as it is now
    page.draw({HIDDEN: b"\x01"})
    editor.cut()
    assert model[0].weight.shape == (5, 4)
    editor.undo()
    editor.undo()
    assert bytes_of(model) == original


def test_recalibration_takes_back_no_training(editor: mk.MaskEditor, page: Page, model: nn.Sequential) -> None:
    (answer,) = page.say({"type": "recalibrate"})
    assert "follows a cut" in answer["text"]
    editor.recalibrating = False
    editor.plan = mk.plan(editor.graph, ratio=0.5)
    editor.cut()
    with torch.no_grad():
        model[0].weight += 1
    trained = bytes_of(model)
    (answer,) = page.say({"type": "recalibrate"})
    assert (answer["type"], "the weights have changed" in answer["text"]) == ("failed", True)
    assert bytes_of(model) == trained
    editor.evaluate()
    assert [state for state, _ in entries(editor)] == ["uncut", "cut", "later"]
    editor.evaluate()  # of the same weights once
    assert [state for state, _ in entries(editor)] == ["uncut", "cut", "later"]


@pytest.mark.parametrize("fails", [False, True])
def test_recalibration_changes_statistics_and_nothing_else(model: nn.Sequential, fails: bool) -> None:
    """Gradients, options of the optimizer and its state of after the cut are no part of it, well or not."""
    original = bytes_of(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    editor = mk.MaskEditor(model, X, optimizer=optimizer, batches=[torch.zeros(16, 5)] if fails else BATCHES)
    editor.recalibrating = False
    editor.plan = mk.plan(editor.graph, ratio=0.5)
    editor.cut()
    F.cross_entropy(model(BATCHES[0][0]), BATCHES[0][1]).backward()
    optimizer.param_groups[0]["lr"] = 0.01
    optimizer.state[model[0].weight]["momentum_buffer"] = torch.ones_like(model[0].weight)
    gradients = [parameter.grad for parameter in model.parameters()]
    if fails:
        with pytest.raises(CutError, match="does not go through"):
            editor.recalibrate()
    else:
        editor.recalibrate()
    assert editor.trial["recalibrated"] is not fails
    assert all(each.grad is one for each, one in zip(model.parameters(), gradients, strict=True))
    assert optimizer.param_groups[0]["lr"] == 0.01
    assert optimizer.state[model[0].weight]["momentum_buffer"].eq(1).all()
    editor.undo()
    assert bytes_of(model) == original


def test_a_recalibration_is_no_change_from_elsewhere(model: nn.Sequential) -> None:
    editor = mk.MaskEditor(model, X, batches=BATCHES)
    graph = mk.ModelGraph(model, X)
    mk.link(editor, graph)
    editor.recalibrating = False
    editor.plan = mk.plan(editor.graph, ratio=0.5)
    editor.cut()
    editor.recalibrate()
    for widget in (editor, graph):
        widget._check_outdated()
        assert widget.outdated == ""
    with torch.no_grad():
        model[0].weight.mul_(2)
    editor._check_outdated()
    assert editor.outdated == WEIGHTS_CHANGED


@pytest.mark.parametrize("at", [1, 2, 3])
def test_an_interrupted_evaluation_leaves_the_model_uncut(model: nn.Sequential, at: int) -> None:
    """A cut with all that it comes with is done wholly or not at all."""
    calls = []

    def slow(model: nn.Module) -> float:
        calls.append(model)
        if len(calls) == at:
            raise KeyboardInterrupt
        return 1.0

    editor = mk.MaskEditor(model, X, batches=BATCHES, evaluate=slow)
    editor.plan = mk.plan(editor.graph, ratio=0.5)
    before = bytes_of(model)
    with pytest.raises(KeyboardInterrupt):
        editor.cut()
    assert bytes_of(model) == before
    assert (editor.stage, editor.operations) == ("", 0)
    editor.cut()
    assert editor.stage == "cut"


def test_batches_that_do_not_fit_leave_the_model_uncut(model: nn.Sequential) -> None:
    for evaluate in (None, loss_of):
        editor = mk.MaskEditor(model, X, batches=[torch.zeros(16, 5)], evaluate=evaluate)
        before = bytes_of(model)
        editor.plan = mk.plan(editor.graph, ratio=0.5)
        with pytest.raises(CutError):
            editor.cut()
        assert bytes_of(model) == before
        assert (editor.stage, editor.operations) == ("", 0)
        assert [state for state, _ in entries(editor)] == (["uncut"] if evaluate else [])
        editor.recalibrating = False
        editor.cut()
        cut = bytes_of(model)
        with pytest.raises(CutError):
            editor.recalibrate()
        assert bytes_of(model) == cut
        editor.undo()
        assert bytes_of(model) == before


def test_the_function_gets_a_model_in_eval_mode_without_gradients(model: nn.Sequential) -> None:
    seen = []

    def evaluate(model: nn.Sequential) -> dict[str, Any]:
        seen.append((model.training, model[1].training, torch.is_grad_enabled()))
        return {"a": torch.tensor([0.5]), "b": np.float32(2), "c": 3, "d": float("nan"), HOSTILE: float("inf")}

    model.train()
    model[0].eval()
    modes = [module.training for module in model.modules()]
    editor = mk.MaskEditor(model, X, evaluate=evaluate)
    found = editor.evaluate()
    assert seen == [(False, False, False)]
    assert [module.training for module in model.modules()] == modes
    assert [found["a"], found["b"], found["c"], found[HOSTILE]] == [0.5, 2.0, 3.0, float("inf")]
    values = editor.trial["evaluations"][0]["values"]
    assert values == [["a", 0.5], ["b", 2.0], ["c", 3.0], ["d", "NaN"], [HOSTILE, "Infinity"]]


@pytest.mark.parametrize(
    ("evaluate", "said"),
    [
        (lambda model: 1 / 0, "evaluate stopped: ZeroDivisionError"),
        (lambda model: [1, 2], "evaluate returned a list: return a number"),
        (lambda model: {"a": "b"}, "evaluate returned a str"),
        (lambda model: torch.zeros(3), "evaluate returned a Tensor"),
        (lambda model: {str(each): each for each in range(50)}, "at most 20"),
        (lambda model: model(torch.zeros(1, 9)), "evaluate stopped: RuntimeError"),
    ],
)
def test_an_error_of_the_function_is_text_and_no_cut_fails_by_it(
    model: nn.Sequential, evaluate: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = mk.MaskEditor(model, X, evaluate=evaluate)
    page = Page(editor, monkeypatch)
    (answer,) = page.say({"type": "evaluate"})
    assert (answer["type"], answer["text"]) == ("done", "")
    (entry,) = editor.trial["evaluations"]
    assert said in entry["error"]
    assert entry["values"] == []
    with pytest.raises(CutError, match=said.split(":")[0]):
        editor.evaluate()
    editor.plan = mk.plan(editor.graph, per_axis={HIDDEN: [1]})
    editor.cut()
    assert [entry["state"] for entry in editor.trial["evaluations"]] == ["uncut", "cut"]
    assert model[0].weight.shape == (11, 4)


def test_what_is_no_data_is_refused_with_what_to_pass(model: nn.Sequential) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"loss": F.cross_entropy}, "pass batches= too"),
        ({"batches": BATCHES, "loss": 3}, "loss= is a function"),
        ({"evaluate": "accuracy"}, "evaluate= is a function"),
        ({"batches": 7}, "pass a list or a DataLoader"),
        ({"batches": (pair for pair in BATCHES)}, "a generator yields its items once"),
        ({"batches": BATCHES[0]}, "one batch"),
        ({"batches": []}, "batches= is empty"),
    ]
    for given, said in wrong:
        with pytest.raises(CutError, match=said):
            mk.MaskEditor(model, X, **given)
    with pytest.raises(UnknownKeywordError, match="evaluate"):
        mk.MaskEditor(model, X, evalute=loss_of)
    editor = mk.MaskEditor(model, X)
    with pytest.raises(CutError, match="batches="):
        editor.recalibrating = True
    with pytest.raises(CutError, match="pass batches= and loss="):
        editor.importance = "sensitivity"
    with pytest.raises(CutError, match="evaluate="):
        editor.evaluate()


def test_no_page_is_believed_what_only_the_kernel_knows(editor: mk.MaskEditor, page: Page) -> None:
    before = editor.get_state(["increases", "comparable", "offers", "sensing", "trial"])
    editor.set_state({"increases": b"1", "comparable": True, "offers": {}, "sensing": {"done": 1}, "trial": {}})
    assert editor.get_state(list(before)) == before
    editor.set_state({"recalibrating": False})
    assert editor.recalibrating is False


def test_beside_a_running_cell_an_action_is_accepted_and_done_later(
    editor: mk.MaskEditor, page: Page, loop: Loop
) -> None:
    thread = threading.Thread(target=lambda: page.say({"type": "evaluate"}))
    thread.start()
    thread.join()
    assert [content for content, _ in page.heard] == [{"type": "accepted", "action": "evaluate"}]
    assert editor.trial["evaluations"] == []
    loop.run()
    assert page.heard[-1][0] == {"type": "done", "action": "evaluate", "text": ""}
    assert [state for state, _ in entries(editor)] == ["uncut"]
