"""MaskEditor: the plan both ways, edits of the page, masks and cuts with their way back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from ipywidgets.widgets.widget import _instances
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import (
    CutError,
    TraceError,
    UnknownAxisError,
    UnknownKeywordError,
    UnknownNameError,
    UnknownPathError,
)
from modulekg_widgets.engine.views.pictures.svg import svg_text
from modulekg_widgets.widgets.shared.base import WidgetValueError
from widgets.mask_page import Page

X = torch.zeros(2, 4)
HIDDEN, WIDE = "0.out", "2.out"


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 3))


def bytes_of(model: nn.Module) -> dict[str, tuple[tuple[int, ...], bytes]]:
    return {name: (tuple(t.shape), t.detach().numpy().tobytes()) for name, t in model.state_dict().items()}


@pytest.fixture
def model() -> nn.Module:
    return net()


@pytest.fixture
def editor(model: nn.Module) -> Iterator[mk.MaskEditor]:
    made = mk.MaskEditor(model, X)
    yield made
    made.close()


def test_making_an_editor_leaves_the_model_as_it_was(model: nn.Module) -> None:
    before, rng = bytes_of(model), torch.get_rng_state()
    attributes = {name: set(vars(module)) for name, module in model.named_modules()}
    editor = mk.MaskEditor(model, X, plan=mk.plan(mk.trace(model, X), ratio=0.5))
    assert editor.plan is not None
    editor.close()
    assert bytes_of(model) == before
    assert torch.equal(torch.get_rng_state(), rng)
    assert {name: set(vars(module)) for name, module in model.named_modules()} == attributes


def test_a_plan_set_from_python_is_read_back_and_its_repr_runs(editor: mk.MaskEditor) -> None:
    assert editor.plan is None
    plan = mk.plan(editor.graph, ratio=0.5)
    editor.plan = plan
    assert editor.plan is plan
    assert editor.report["params"] == list(plan.params)
    assert eval(repr(editor.plan), {"mk": mk, "graph": editor.graph}) == plan
    editor.plan = None
    assert editor.plan is None
    assert editor.report == {}


def test_what_the_page_draws_is_the_plan(editor: mk.MaskEditor, page: Page) -> None:
    assert page.draw({HIDDEN: b"\x00\x03"}) == []
    number = editor.payload["axes"]["name"].index(HIDDEN)
    assert editor.draft == {"revision": 1, "by": "page", "axes": [number], "bits": b"\x00\x03"}
    assert editor.plan is not None
    assert [(cut.name, cut.dropped) for cut in editor.plan.axes] == [(HIDDEN, (8, 9))]
    assert repr(editor.plan) == "mk.plan(graph, per_axis={'0.out': [8, 9]})"
    assert (editor.revision, editor.dropped) == (1, editor._draft.packed())


def test_a_page_that_comes_later_gets_the_draft_as_it_is(editor: mk.MaskEditor, page: Page) -> None:
    page.draw({WIDE: b"\x05\x00\x00"})
    state = editor.get_state()
    number = state["payload"]["axes"]["name"].index(WIDE)
    assert state["draft"] == {"revision": 1, "by": "page", "axes": [number], "bits": b"\x05\x00\x00"}
    assert np.frombuffer(state["scores"], "<f8").size == sum(state["payload"]["axes"]["size"])


@pytest.mark.parametrize(
    ("axis", "content", "said"),
    [
        (HIDDEN, b"\xff\x0f", "would lose all"),
        (HIDDEN, b"\x00\xf0", "bits beyond"),
        ("0.in", b"\x01", "is frozen"),
        (HIDDEN, b"\x01\x00\x00", "have 2 bytes of bits: 3 came"),
    ],
)
def test_a_draft_that_may_not_be_is_refused_and_nothing_is_lost(
    editor: mk.MaskEditor, page: Page, axis: str, content: bytes, said: str
) -> None:
    page.draw({WIDE: b"\x01\x00\x00"})
    before = editor.draft
    (answer,) = page.draw({axis: content})
    assert (answer["type"], answer["action"], answer["by"]) == ("failed", "draw", "page")
    assert said in answer["text"]
    assert editor._draft.dropped == {WIDE: [0]}
    assert editor.draft is before


@pytest.mark.parametrize(
    "wrong",
    [
        {"axes": None}, {"axes": "x"}, {"axes": ["0"]}, {"axes": [True]}, {"axes": [-1]}, {"axes": [99]},
        {"axes": [2, 2]}, {"axes": [[2]]}, {"bits": None}, {"bits": "AA"}, {"bits": b""}, {"by": 3}, {"by": ""},
        {"by": "x" * 1000}, {"base": "0"}, {"base": -1}, {"base": None}, {"generation": None}, {"generation": 1.0},
    ],
)  # fmt: skip
def test_what_is_no_drawing_changes_nothing(editor: mk.MaskEditor, page: Page, wrong: dict[str, Any]) -> None:
    (answer,) = page.draw({HIDDEN: b"\x01\x00"}, **wrong)
    assert (answer["type"], answer["action"]) == ("failed", "draw")
    assert len(str(answer["by"])) <= 64
    assert (editor._draft.dropped, editor.revision) == ({}, 0)


@pytest.mark.parametrize("value", [None, 3, "x", [], {}, [[0, 0, 1]], {"bits": memoryview(b"x")}])
def test_what_is_no_value_at_all_changes_nothing(editor: mk.MaskEditor, page: Page, value: Any) -> None:
    before = editor.draft
    editor.set_state({"draft": value})
    assert page.heard[-1][0]["type"] == "failed"
    assert editor.draft is before


@pytest.fixture
def shown(editor: mk.MaskEditor, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The revisions that the pages are shown."""
    found: list[int] = []
    monkeypatch.setattr(editor, "send_state", lambda key=None: found.append(editor.draft["revision"]))
    return found


def test_a_page_draws_on_and_need_not_see_itself_confirmed(editor: mk.MaskEditor, page: Page) -> None:
    page.draw({HIDDEN: b"\x01\x00"}, base=0)
    page.draw({HIDDEN: b"\x03\x00"}, base=0)
    page.draw({HIDDEN: b"\x07\x00"}, base=1)
    assert (editor._draft.dropped, editor.revision) == ({HIDDEN: [0, 1, 2]}, 3)


def test_what_python_sets_is_not_drawn_over_unseen(editor: mk.MaskEditor, page: Page, shown: list[int]) -> None:
    page.draw({HIDDEN: b"\x01\x00"}, base=0)
    editor.plan = mk.plan(editor.graph, per_axis={WIDE: [4]})
    shown.clear()
    assert page.draw({HIDDEN: b"\x03\x00"}, base=0) == []  # it is shown the plan, and will draw on that
    assert page.draw({HIDDEN: b"\x03\x00"}, base=1) == []
    assert (editor._draft.dropped, shown) == ({WIDE: [4]}, [2, 2])
    page.draw({HIDDEN: b"\x03\x00", WIDE: b"\x10\x00\x00"}, base=2)
    assert editor._draft.dropped == {HIDDEN: [0, 1], WIDE: [4]}


def test_of_two_pages_the_later_one_sees_the_other_first(editor: mk.MaskEditor, page: Page, shown: list[int]) -> None:
    page.draw({HIDDEN: b"\x01\x00"}, base=0, by="one")
    assert (editor.draft["by"], editor.revision) == ("one", 1)
    page.draw({WIDE: b"\x01\x00\x00"}, base=0, by="two")
    assert (editor._draft.dropped, shown[-1]) == ({HIDDEN: [0]}, 1)
    page.draw({HIDDEN: b"\x01\x00", WIDE: b"\x01\x00\x00"}, base=1, by="two")
    page.draw({HIDDEN: b"\x03\x00"}, base=0, by="one")  # before it has seen the other
    assert (editor._draft.dropped, editor.draft["by"]) == ({HIDDEN: [0], WIDE: [0]}, "two")


def test_a_check_brings_the_report_or_why_there_is_none(editor: mk.MaskEditor, page: Page) -> None:
    page.draw({HIDDEN: b"\x01\x00"})
    assert page.say({"type": "check", "id": "2"}) == [{"type": "done", "action": "check", "text": ""}]
    assert editor.report["revision"] == 1
    assert editor.report["error"] is None
    before, after = editor.report["params"]
    assert (before, after) == (4 * 12 + 12 + 12 * 20 + 20 + 63, 4 * 11 + 11 + 11 * 20 + 20 + 63)
    assert editor.report["bytes"] == [4 * before, 4 * after]


@pytest.mark.parametrize(
    ("goes", "channels"),
    [({HIDDEN: b"\x01\x00"}, "1 channel"), ({HIDDEN: b"\xff\x00", WIDE: b"\x0f\x00\x00"}, "12 channels")],
)
def test_a_mask_says_that_no_size_has_changed(
    editor: mk.MaskEditor, page: Page, goes: dict[str, bytes], channels: str
) -> None:
    page.draw(goes)
    (masked,) = page.say({"type": "mask"})
    plan = editor.plan
    assert plan is not None
    left = f"a cut would leave {plan.params[1]:,} parameters"
    assert masked["text"] == f"Masked: {channels} set to zero; sizes unchanged ({left})"


def test_a_cut_says_what_was_removed_in_words_of_the_page(editor: mk.MaskEditor, page: Page) -> None:
    page.draw({HIDDEN: b"\x07\x00", WIDE: b"\x0f\x00\x00"})
    plan = editor.plan
    assert plan is not None
    sizes = [f"{before:,} → {after:,}" for before, after in (plan.params, plan.flops)]
    *_, done = page.say({"type": "cut"})
    assert done["text"] == f"Cut: parameters {sizes[0]}, FLOPs {sizes[1]}; 7 channels in 2 groups removed"


def test_mask_cut_and_undo_are_real_and_exact(editor: mk.MaskEditor, page: Page, model: nn.Module) -> None:
    original = bytes_of(model)
    page.draw({HIDDEN: b"\x07\x00"})
    (masked,) = page.say({"type": "mask"})
    assert (masked["type"], masked["action"], editor.stage) == ("done", "mask", "masked")
    whole, cut = 4 * 12 + 12 + 12 * 20 + 20 + 63, 4 * 9 + 9 + 9 * 20 + 20 + 63
    assert masked["text"] == f"Masked: 3 channels set to zero; sizes unchanged (a cut would leave {cut} parameters)"
    assert sum(p.numel() for p in model.parameters()) == whole
    assert not model[0].weight[:3].any()
    assert model[0].weight[3:].all()
    page.draw({HIDDEN: b"\x01\x00"})
    editor.mask()  # what the first mask had set is back
    assert not model[0].weight[:1].any()
    assert model[0].weight[1:].all()
    assert editor.operations == 1
    page.say({"type": "cut"})
    assert (editor.stage, editor.operations) == ("cut", 2)
    assert model[0].weight.shape == (11, 4)
    assert model(X).shape == (2, 3)
    assert editor.payload["axes"]["size"][editor.payload["axes"]["name"].index(HIDDEN)] == 11
    assert editor.plan is None
    page.say({"type": "undo"})
    assert editor.stage == "masked"
    assert editor.plan is not None
    assert editor._draft.dropped == {HIDDEN: [0]}
    editor.undo()
    assert bytes_of(model) == original
    assert (editor.stage, editor.operations) == ("", 0)
    with pytest.raises(CutError, match="nothing to undo"):
        editor.undo()


def test_a_mask_that_fails_leaves_the_one_before(
    editor: mk.MaskEditor, page: Page, model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = bytes_of(model)
    page.draw({HIDDEN: b"\x07\x00"})
    editor.mask()
    masked = bytes_of(model)
    page.draw({HIDDEN: b"\x01\x00"})
    wanted, mask = editor.plan, mk.PruningPlan.mask

    def failing(self: mk.PruningPlan, model: nn.Module) -> Any:
        if self is wanted:
            raise CutError("no")
        return mask(self, model)

    monkeypatch.setattr(mk.PruningPlan, "mask", failing)
    with pytest.raises(CutError, match="no"):
        editor.mask()
    assert bytes_of(model) == masked
    assert (editor.stage, editor.operations) == ("masked", 1)
    editor.undo()
    assert bytes_of(model) == original


def test_what_was_drawn_on_the_axes_before_a_cut_is_refused(editor: mk.MaskEditor, page: Page) -> None:
    page.draw({HIDDEN: b"\x07\x00"})
    before, revision = editor.payload["generation"], editor.revision
    editor.cut()
    (answer,) = page.draw({WIDE: b"\x01\x00\x00"}, base=revision, generation=before)
    assert (answer["type"], answer["action"]) == ("failed", "draw")
    assert "its channel groups changed" in answer["text"]
    assert editor._draft.dropped == {}
    assert editor.revision > revision  # no page takes it for one that it has seen


def test_beside_a_running_cell_the_draft_changes_and_the_model_waits(
    editor: mk.MaskEditor, page: Page, model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[Any] = []
    monkeypatch.setattr("modulekg_widgets.widgets.mask_editor.messages.when_idle", waiting.append)
    monkeypatch.setattr("modulekg_widgets.widgets.mask_editor.mask_editor.when_idle", waiting.append)
    original = bytes_of(model)

    def beside() -> None:
        page.draw({HIDDEN: b"\x07\x00"})
        page.say({"type": "check"})
        page.say({"type": "cut"})
        editor.set_state({"importance": "activation", "axis": WIDE})

    thread = threading.Thread(target=beside)
    thread.start()
    thread.join()
    assert editor._draft.dropped == {HIDDEN: [0, 1, 2]}
    assert (editor.axis, editor.importance, editor.report) == (WIDE, "l2", {})
    assert bytes_of(model) == original
    for act in waiting:
        act()
    assert (editor.stage, editor.importance) == ("cut", "activation")
    assert model[0].weight.shape == (9, 4)


def test_a_cut_takes_the_optimizer_along(model: nn.Module) -> None:
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    editor = mk.MaskEditor(model, X, optimizer=optimizer)
    editor.plan = mk.plan(editor.graph, per_axis={HIDDEN: [0, 1]})
    editor.cut()
    assert optimizer.state[model[0].weight]["exp_avg"].shape == (10, 4)
    editor.undo()
    assert optimizer.state[model[0].weight]["exp_avg"].shape == (12, 4)
    editor.close()


def test_nothing_to_cut_is_said_to_python_and_to_the_page(editor: mk.MaskEditor, page: Page) -> None:
    for act in (editor.cut, editor.mask, editor.save):
        with pytest.raises(CutError, match="No channels selected"):
            act()
    (answer,) = page.say({"type": "cut"})
    assert (answer["type"], answer["action"]) == ("failed", "cut")
    assert "No channels selected" in answer["text"]


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("axis", "0.outs", UnknownAxisError),
        ("locked", ["nowhere"], UnknownAxisError),
        ("scope", "glob", UnknownNameError),
        ("importance", "l3", UnknownNameError),
        ("importance", "hessian", CutError),  # it needs data
        ("selected", "0.weight", UnknownPathError),
        ("plan", "a plan", WidgetValueError),
    ],
)
def test_what_is_unknown_raises_and_changes_nothing(
    editor: mk.MaskEditor, name: str, value: Any, error: type[Exception]
) -> None:
    before = getattr(editor, name)
    with pytest.raises(error):
        setattr(editor, name, value)
    assert getattr(editor, name) == before


@pytest.mark.parametrize(
    ("name", "value"), [("axis", "no"), ("importance", "hessian"), ("scope", 3), ("locked", ["no"])]
)
def test_what_the_page_sets_wrongly_is_put_back_and_said(
    editor: mk.MaskEditor, page: Page, name: str, value: Any
) -> None:
    before = getattr(editor, name)
    editor.set_state({name: value})
    assert getattr(editor, name) == before
    assert page.heard[-1][0]["type"] == "failed"


def test_what_the_kernel_owns_is_not_the_pages_to_set(editor: mk.MaskEditor) -> None:
    payload, scores = editor.payload, editor.scores
    editor.set_state({"payload": {}, "scores": b"", "dropped": b"\xff", "revision": 9, "stage": "cut", "axis": HIDDEN})
    assert (editor.payload, editor.scores, editor.stage, editor.axis) == (payload, scores, "", HIDDEN)
    assert editor._draft.dropped == {}


def test_importances_by_name_and_of_ones_own(editor: mk.MaskEditor) -> None:
    l1 = editor.scores
    editor.importance = "random"
    assert editor.scores != l1

    def backwards(group: Any) -> Any:
        return range(group.size, 0, -1)

    editor.rank_by(backwards)
    assert editor.importance == "backwards"
    assert "backwards" in editor.payload["importances"]
    start = sum(editor.payload["axes"]["size"][: editor.payload["axes"]["name"].index(HIDDEN)])
    assert np.frombuffer(editor.scores, "<f8")[start : start + 12].tolist() == list(range(12, 0, -1))
    with pytest.raises(CutError, match="stopped on axis"):
        editor.rank_by(lambda group: 1 / 0)
    assert editor.importance == "backwards"


def test_a_wrong_keyword_and_a_model_that_fails_are_told() -> None:
    with pytest.raises(UnknownKeywordError, match="did you mean 'importance'"):
        mk.MaskEditor(net(), X, importence="l1")
    with pytest.raises(TraceError):
        mk.MaskEditor(net(), torch.zeros(2, 5))


@pytest.mark.slow
def test_closing_lets_everything_go(model: nn.Module) -> None:
    import gc
    import weakref

    editor = mk.MaskEditor(model, X)
    editor.plan = mk.plan(editor.graph, ratio=0.3)
    editor.mask()
    editor.undo()
    graph = weakref.ref(editor.graph)
    known = set(_instances)
    editor.close()
    gc.collect()
    assert graph() is None
    assert editor.comm is None
    assert not any(editor is widget for widget in _instances.values())
    assert set(_instances) < known
    assert repr(editor) == "<MaskEditor, closed>"
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_the_static_picture_says_what_stays(editor: mk.MaskEditor) -> None:
    editor.plan = mk.plan(editor.graph, per_axis={HIDDEN: [0, 1, 2]})
    picture = svg_text(editor._static_picture())
    assert picture.startswith("<svg")
    assert "9 of 12" in picture
    assert "20 of 20" not in picture
