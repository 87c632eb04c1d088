"""MaskEditor measures the loss without what goes: of the draft, and of ratios that a page asks for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import modulekg_widgets as mk
from modulekg_widgets.engine.pruning.sensitivity.sensitivity import masked_losses
from widgets.mask_data import BATCHES, HIDDEN, HOSTILE, WIDE, Loop, X, bytes_of, loss_of, net
from widgets.mask_page import Page


def loss_without(**ratios: Any) -> float:
    """Of the cut model, on the batches."""
    model = net()
    mk.plan(mk.trace(model, X), **ratios).cut(model)
    return loss_of(model)


def losses(graph: Any, *drops: Any) -> list[float]:
    steps = masked_losses(graph, BATCHES, F.cross_entropy, drops)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def test_it_is_the_loss_of_the_cut_model_and_not_a_sum(model: nn.Sequential) -> None:
    with torch.no_grad():
        for layer in (model[0], model[3], model[5]):
            layer.weight *= 4
    before, graph = bytes_of(model), mk.trace(model, X)
    plan = mk.plan(graph, ratio=0.5)
    dropped = {cut.name: cut.dropped for cut in plan.axes}
    base, nothing, whole = losses(graph, {}, dropped)
    table = mk.pruning.sensitivity(graph, BATCHES, F.cross_entropy).set_index(["axis", "index"])["increase"]
    summed = sum(table[name, at] for name, own in dropped.items() for at in own)
    assert base == nothing == pytest.approx(loss_of(model), rel=1e-6)
    assert abs(whole - base - summed) > 0.1
    assert bytes_of(model) == before
    plan.cut(model)
    assert whole == pytest.approx(loss_of(model), rel=1e-6)


def test_the_draft_is_measured_as_soon_as_it_is_known_what_indices_cost(
    editor: mk.MaskEditor, page: Page, loop: Loop
) -> None:
    editor.plan = mk.plan(editor.graph, per_axis={HIDDEN: [1, 2]})
    loop.run()
    assert editor.measured == {}
    page.say({"type": "sense"})
    loop.run()
    assert editor.measured == {
        "base": pytest.approx(loss_of(net()), rel=1e-6),
        "revision": editor.revision,
        "loss": pytest.approx(loss_without(per_axis={HIDDEN: [1, 2]}), rel=1e-6),
    }
    page.draw({HIDDEN: b"\x07\x00"})
    assert editor.measured["revision"] < editor.revision  # the page says that it is measured
    page.draw({HIDDEN: b"\x0f\x00"})
    loop.run()
    assert editor.measured["revision"] == editor.revision
    assert editor.measured["loss"] == pytest.approx(loss_without(per_axis={HIDDEN: [0, 1, 2, 3]}), rel=1e-6)


def test_a_cell_has_its_turn_between_batches_and_what_is_drawn_meanwhile_counts(
    editor: mk.MaskEditor, page: Page, loop: Loop
) -> None:
    page.say({"type": "sense"})
    loop.run()
    page.draw({HIDDEN: b"\x01\x00"})
    loop.turn()
    loop.turn()
    assert editor.measured["revision"] < editor.revision
    page.draw({HIDDEN: b"\x02\x00"})
    loop.run()
    assert editor.measured["revision"] == editor.revision
    assert editor.measured["loss"] == pytest.approx(loss_without(per_axis={HIDDEN: [1]}), rel=1e-6)
    assert [content for content, _ in page.heard if content["type"] == "failed"] == []


def test_a_page_has_ratios_of_its_ranking_measured(editor: mk.MaskEditor, page: Page, loop: Loop) -> None:
    page.say({"type": "sense"})
    loop.run()
    names = editor.payload["axes"]["name"]
    counts = [[names.index(HIDDEN), 6], [names.index(WIDE), 10]]
    page.draw({HIDDEN: b"\x01\x00"})  # the point is of what a ratio takes: this is not added
    page.say({"type": "measure", "key": "l2", "points": [[0.0, [[own, 0] for own, _ in counts]], [0.5, counts]]})
    loop.run()
    assert editor.measured["key"] == "l2"
    (least, same), (ratio, loss) = editor.measured["points"]
    assert (least, same, ratio) == (0.0, editor.measured["base"], 0.5)
    scores = np.frombuffer(editor.scores, "<f8")
    starts = dict(zip(names, np.cumsum([0, *editor.payload["axes"]["size"]]), strict=False))
    dropped = {
        name: np.argsort(scores[starts[name] : starts[name] + size], kind="stable")[: size // 2].tolist()
        for name, size in ((HIDDEN, 12), (WIDE, 20))
    }
    assert loss == pytest.approx(loss_without(per_axis=dropped), rel=1e-6)
    page.draw({WIDE: b"\x01\x00\x00"})
    loop.run()
    assert editor.measured["points"][1] == [0.5, loss]  # the curve stays


@pytest.mark.parametrize(
    "content",
    [{}, {"key": 1, "points": []}, {"key": "k" * 65, "points": []}, {"key": "k", "points": [[0.5, [[99, 1]]]]},
     {"key": "k", "points": [[0.5, [[1, -1]]]]}, {"key": "k", "points": [[0.5, [[1, 99]]]]},
     {"key": "k", "points": [HOSTILE]}, {"key": "k", "points": [[0.5, []]] * 13}],
)  # fmt: skip
def test_what_is_no_curve_is_refused(editor: mk.MaskEditor, page: Page, content: dict[str, Any]) -> None:
    (answer,) = page.say({"type": "measure", **content})
    assert (answer["type"], answer["action"]) == ("failed", "measure")
    assert editor.measured == {}


def test_a_cut_forgets_it_and_a_mask_keeps_it(editor: mk.MaskEditor) -> None:
    editor.importance = "sensitivity"
    editor.plan = mk.plan(editor.graph, per_axis={HIDDEN: [1, 2]})
    measured = dict(editor.measured)
    assert measured["revision"] == editor.revision
    editor.mask()
    assert editor.measured == measured  # what has been measured is what the model is now
    editor.plan = mk.plan(editor.graph, per_axis={HIDDEN: [3]})
    assert editor.measured["loss"] == measured["loss"]  # the weights are not those of the draft
    editor.undo()
    assert editor.measured["loss"] == pytest.approx(loss_without(per_axis={HIDDEN: [3]}), rel=1e-6)
    editor.importance = "l2"
    editor.cut()
    assert editor.measured == {}


def test_training_makes_the_loss_of_the_model_another_one(editor: mk.MaskEditor, model: nn.Sequential) -> None:
    editor.importance = "sensitivity"
    before = editor.measured["base"]
    with torch.no_grad():
        model[5].weight *= 3
    editor.plan = mk.plan(editor.graph, per_axis={HIDDEN: [1]})
    assert editor.measured["base"] == pytest.approx(loss_of(model), rel=1e-6)
    assert editor.measured["base"] != before


def test_a_loss_that_fails_is_told_once(model: nn.Sequential, monkeypatch: pytest.MonkeyPatch) -> None:
    good = True

    def loss(output: Any, target: Any) -> Any:
        if not good:
            raise ValueError(HOSTILE)
        return F.cross_entropy(output, target)

    editor = mk.MaskEditor(model, X, batches=BATCHES, loss=loss)
    page = Page(editor, monkeypatch)
    editor.importance = "sensitivity"
    good = False
    page.draw({HIDDEN: b"\x01\x00"})
    page.draw({HIDDEN: b"\x02\x00"})
    (told,) = [content["text"] for content, _ in page.heard if content["type"] == "failed"]
    assert told.startswith("Measured loss: the loss stopped on the output of batch 0: ValueError: <img")
    assert editor.measured == {}
    editor.close()
