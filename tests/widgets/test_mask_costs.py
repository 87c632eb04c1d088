"""MaskEditor with data of the user: sensitivity between cells, evaluation and recalibration with their way back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import CutError, UnknownKeywordError
from widgets.mask_page import Page

X = torch.zeros(2, 4)
HIDDEN, WIDE = "0.out", "3.out"
HOSTILE = "<img src=x onerror=alert(1)>\u202e"


def net() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 3)
    )
    return model.eval()


def batches_of(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    draws = torch.Generator().manual_seed(1)
    return [(torch.randn(16, 4, generator=draws), torch.randint(3, (16,), generator=draws)) for _ in range(count)]


BATCHES = batches_of(3)


def loss_of(model: nn.Sequential) -> float:
    return float(torch.stack([F.cross_entropy(model(x), y) for x, y in BATCHES]).mean().detach())


def bytes_of(model: nn.Sequential) -> dict[str, tuple[tuple[int, ...], bytes]]:
    return {name: (tuple(t.shape), t.detach().numpy().tobytes()) for name, t in model.state_dict().items()}


@pytest.fixture
def model() -> nn.Sequential:
    return net()


@pytest.fixture
def editor(model: nn.Sequential) -> Iterator[mk.MaskEditor]:
    made = mk.MaskEditor(model, X, batches=BATCHES, loss=F.cross_entropy, evaluate=loss_of)
    yield made
    made.close()


@pytest.fixture
def page(editor: mk.MaskEditor, monkeypatch: pytest.MonkeyPatch) -> Page:
    return Page(editor, monkeypatch)


class Loop:
    """The kernel's loop: what waits until no cell runs, one turn at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiting: list[Callable[[], None]] = []
        for module in ("shared.slices", "mask_editor.mask_editor", "mask_editor.messages"):
            monkeypatch.setattr(f"modulekg_widgets.widgets.{module}.when_idle", self.waiting.append)
        monkeypatch.setattr("modulekg_widgets.widgets.shared.slices.main_loop", lambda: self)
        monkeypatch.setattr("modulekg_widgets.widgets.shared.slices.SLICE", 0.0)

    def turn(self) -> None:
        due, self.waiting[:] = self.waiting[:], []
        for act in due:
            act()

    def run(self) -> None:
        for _ in range(1000):
            if not self.waiting:
                return
            self.turn()
        raise AssertionError("it does not come to an end")


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    return Loop(monkeypatch)


def by_axis(editor: mk.MaskEditor, content: bytes) -> dict[str, np.ndarray]:
    axes = editor.payload["axes"]
    parts = np.split(np.frombuffer(content, "<f8"), np.cumsum(axes["size"])[:-1])
    return dict(zip(axes["name"], parts, strict=True))


# ----------------------------------------------------------------- sensitivity


def test_without_data_nothing_is_offered_and_nothing_is_new(model: nn.Sequential) -> None:
    editor = mk.MaskEditor(model, X)
    assert editor.offers == {"sensitivity": False, "recalibrate": False, "evaluate": False, "batches": None}
    assert "sensitivity" not in editor.payload["importances"]
    assert (editor.increases, editor.sensitivity, editor.recalibrating) == (b"", None, False)
    assert editor.trial == {"recalibrated": False, "evaluations": []}


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
    assert (editor.importance, editor.increases) == ("l1", b"")
    loop.turn()
    loop.turn()
    loop.turn()
    assert editor.importance == "l1"
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
    assert (editor.importance, editor.increases, editor.sensitivity) == ("l1", b"", None)
    assert page.heard[-1][0] == {"type": "failed", "action": "sense", "text": "Sensitivity: it was cancelled"}
    page.say({"type": "cancel"})  # nothing goes on
    page.say({"type": "sense"})
    loop.run()
    assert (editor.importance, len(editor.increases)) == ("l1", len(editor.scores))  # computed, not chosen


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
    monkeypatch.setattr(type(editor._pruning), "sensing", lambda pruning: counted.append(1) or iter(()))
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
    assert (editor.importance, editor.sensing) == ("l1", {})
    said = page.heard[-1][0]
    assert (said["type"], said["action"]) == ("failed", "sense")
    assert "the loss stopped: ValueError: <img" in said["text"]
    with pytest.raises(CutError, match="the loss stopped"):
        editor.importance = "sensitivity"
    assert editor.importance == "l1"


# ------------------------------------------------------- evaluation and a cut


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
        (lambda model: [1, 2], "evaluate gave a list: return a number"),
        (lambda model: {"a": "b"}, "evaluate gave a str"),
        (lambda model: torch.zeros(3), "evaluate gave a Tensor"),
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
        ({"batches": (pair for pair in BATCHES)}, "a generator gives its items once"),
        ({"batches": BATCHES[0]}, "one batch"),
    ]
    for given, said in wrong:
        with pytest.raises(CutError, match=said):
            mk.MaskEditor(model, X, **given)
    with pytest.raises(UnknownKeywordError, match="evaluate"):
        mk.MaskEditor(model, X, evalute=loss_of)
    editor = mk.MaskEditor(model, X)
    with pytest.raises(CutError, match="batches="):
        editor.recalibrating = True
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
