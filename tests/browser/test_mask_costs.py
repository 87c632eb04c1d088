"""MaskEditor in JupyterLab with batches, a loss and a function that evaluates: what a cut costs, before and after."""

from __future__ import annotations

import pytest

from browser.axe import THEMES, assert_accessible, set_theme
from browser.fixtures import in_shared_page
from browser.masks import KERNEL, ROOT, MasksPage
from browser.page import VIEWPORT, NotebookPage

# a small CNN with batch norms, trained for a second on four kinds of noisy pictures
TRAINED = """
import torch
from IPython.display import display
from torch import nn
from torch.nn import functional as F
import modulekg_widgets as mk
torch.set_num_threads(1)  # sixty small steps: threads that wait for one another on a busy machine cost more
torch.manual_seed(0)
def block(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())
model = nn.Sequential(
    block(1, 12), block(12, 20), nn.MaxPool2d(2), block(20, 24), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 4)
)
def pictures(count, seed):
    draws = torch.Generator().manual_seed(seed)
    kinds = torch.randint(4, (count,), generator=draws)
    x = 0.8 * torch.randn(count, 1, 8, 8, generator=draws)
    for kind in range(4):
        top, left = 4 * (kind // 2), 4 * (kind % 2)
        x[kinds == kind, 0, top : top + 4, left : left + 4] += 0.8
    return x, kinds
x, kinds = pictures(512, 0)
test_x, test_kinds = pictures(256, 1)
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
for step in range(60):
    at = torch.randint(len(x), (64,))
    optimizer.zero_grad()
    F.cross_entropy(model(x[at]), kinds[at]).backward()
    optimizer.step()
model.eval()
batches = [(x[at : at + 64], kinds[at : at + 64]) for at in (0, 64)]
def accuracy(model):
    return (model(test_x).argmax(1) == test_kinds).float().mean()
weights, before = mk.weight_fingerprint(model), round(accuracy(model).item(), 6)
"""
SHOW = """
editor = mk.MaskEditor(model, x[:2], batches=batches, loss=F.cross_entropy, evaluate=accuracy)
display(editor)
"""
# on the batches, of the model and of its cut twin
LOSSES = """(lambda twin: [float(f"{torch.stack([F.cross_entropy(m(x), y) for x, y in batches]).mean().item():.3g}")
  for m in (model, (editor.plan.cut(twin), twin)[1])])(__import__("copy").deepcopy(model))"""
INDICES = 12 + 20 + 24
TRIAL = "[[one['state'], one['values'] and round(one['values'][0][1], 6)] for one in editor.trial['evaluations']]"

COVERED = f"""selectors => {{
  const tip = document.querySelector('{ROOT} .mkg-mask-tip').getBoundingClientRect();
  return selectors.filter(selector => {{
    const box = document.querySelector('{ROOT} ' + selector).getBoundingClientRect();
    return box.left < tip.right && tip.left < box.right && box.top < tip.bottom && tip.top < box.bottom;
  }});
}}"""

IN_SIGHT = f"""selectors => {{
  const page = document.querySelector('.jp-NotebookPanel-notebook').getBoundingClientRect();
  return selectors.filter(selector => {{
    const {{ top, bottom, height }} = document.querySelector('{ROOT} ' + selector).getBoundingClientRect();
    return !(height > 0 && top >= page.top - 1 && bottom <= page.bottom + 1);
  }});
}}"""


def wait_for_text(masks: MasksPage, selector: str, text: str) -> None:
    masks.notebook.wait_for(
        f"([one, text]) => (document.querySelector('{ROOT} ' + one)?.textContent ?? '').includes(text)",
        [selector, text],
    )


@in_shared_page
def test_from_sensitivity_by_the_curve_to_a_cut_that_is_evaluated_and_undone(notebook: NotebookPage) -> None:
    notebook.page.set_viewport_size({"width": 1100, "height": 800})
    try:
        masks = MasksPage.show(notebook, TRAINED, SHOW)
        masks.find(".mkg-mask-importance").select_option("sensitivity")
        notebook.wait_for_value("editor.importance", "sensitivity", timeout=60_000)
        masks.find(".mkg-mask-curve").wait_for(state="visible")
        same = "editor.sensitivity.equals(mk.pruning.sensitivity(editor.graph, batches, F.cross_entropy))"
        assert notebook.value(f"[len(editor.sensitivity), {same}]") == [INDICES, True]
        wait_for_text(masks, ".mkg-mask-row .mkg-mask-cost", "per channel")

        # the curve: values under the pointer, a click takes what they say
        curve = masks.find(".mkg-mask-curve")
        box = curve.bounding_box()
        assert box is not None
        notebook.page.mouse.move(box["x"] + 140, box["y"] + 30)
        tip = masks.find(".mkg-mask-tip")
        tip.wait_for(state="visible")
        said = tip.inner_text()
        assert notebook.page.evaluate(COVERED, [".mkg-mask-estimate-text", ".mkg-mask-curve"]) == []
        notebook.page.mouse.click(box["x"] + 140, box["y"] + 30)
        ratio = float(said.split()[1].rstrip(":"))
        assert 0 < ratio < 0.9
        assert float(masks.button("ratio-field").input_value()) == ratio
        counts = [int(size * ratio + 1e-9) for size in (12, 20, 24)]
        notebook.wait_for_value("[len(own) for own in editor._draft.dropped.values()]", counts)
        left = "100 * editor.plan.flops[1] / editor.plan.flops[0]"
        wait_for_text(masks, ".mkg-mask-estimate-figure", f"{notebook.value(left):.1f} % of FLOPs")
        # what is shown is measured: the loss of the model that the cut leaves, beside that of the whole one
        notebook.wait_for_value("editor.measured.get('revision') == editor.revision", True, timeout=60_000)
        wait_for_text(masks, ".mkg-mask-estimate-figure", ")")
        before, after = masks.find(".mkg-mask-estimate-figure").inner_text().split("loss ")[1].split()[:3:2]
        assert (float(before), float(after)) == tuple(notebook.value(LOSSES))
        notebook.wait_for_value("len(editor.measured.get('points', []))", 7, timeout=60_000)
        notebook.wait_for(f"() => document.querySelectorAll('{ROOT} .mkg-mask-curve-dots circle').length === 7")

        # keys walk on it
        curve.press("ArrowRight")
        assert float(masks.button("ratio-field").input_value()) == round(ratio + 0.01, 2)
        # the mark on the curve follows with the next frame, as everything that is drawn does
        notebook.wait_for(
            f"text => document.querySelector('{ROOT} .mkg-mask-curve').ariaValueText.includes(text)",
            f"ratio {round(ratio + 0.01, 2)}:",
        )
        curve.press("ArrowLeft")
        masks.wait_for_report("Dry run passed")

        # a cut is evaluated before and after, and recalibrated
        masks.button("cut").click()
        assert "Running statistics are then recomputed from the batches." in masks.find("[role=dialog]").inner_text()
        masks.button("confirm").click()
        notebook.wait_for_value("editor.stage", "cut", timeout=30_000)
        masks.find(".mkg-mask-found-values").wait_for()
        found = notebook.value(TRIAL)
        assert [state for state, _ in found] == ["uncut", "cut", "recalibrated"]
        assert found[0][1] == notebook.value("before")
        assert found[2][1] == notebook.value("round(accuracy(model).item(), 6)")
        assert found[2][1] > found[1][1]  # what the statistics are worth
        heads = masks.find(".mkg-mask-found-values th").all_inner_texts()
        assert heads == ["uncut", "cut", "recalibrated", "accuracy"]
        whole = "table => [...table.querySelectorAll('th')].every(th => th.scrollWidth <= th.clientWidth)"
        assert masks.find(".mkg-mask-found-values").evaluate(whole)
        wide = "box => box.scrollWidth <= box.clientWidth"
        assert masks.find(".mkg-mask-values").evaluate(wide)
        cells = masks.find(".mkg-mask-found-values tr:last-child td").all_inner_texts()
        assert [float(cell) for cell in cells] == [float(f"{value:.3g}") for _, value in found]
        notebook.page.locator(ROOT).evaluate("root => root.scrollIntoView({ block: 'start' })")
        parts = [".mkg-mask-check", ".mkg-mask-evaluate", ".mkg-mask-found-values", ".mkg-mask-curve"]
        assert notebook.page.evaluate(IN_SIGHT, parts) == []
        notebook.wait_for_value("editor.sensing == {} and editor.sensitivity is not None", True, timeout=60_000)
        notebook.screenshot("mask-editor-costs")

        # training goes on, and is evaluated by the button
        notebook.execute("with torch.no_grad(): model[0][0].weight.mul_(1.01)")
        masks.button("evaluate").click()
        wait_for_text(masks, ".mkg-mask-found-values", "trained since")
        masks.button("undo-model").click()
        notebook.wait_for_value("editor.stage", "")
        assert notebook.value("mk.weight_fingerprint(model) == weights")
        notebook.wait_for(
            f"() => document.querySelectorAll('{ROOT} .mkg-mask-found-values td:not(:empty)').length === 1"
        )
        assert notebook.value(TRIAL) == [["uncut", found[0][1]]]
        masks.find(".mkg-mask-curve").wait_for(state="visible")  # known again, without a computation
    finally:
        notebook.page.set_viewport_size(VIEWPORT)


@in_shared_page
def test_sensitivity_leaves_cells_their_turn_and_can_be_cancelled(notebook: NotebookPage) -> None:
    slow = (
        "def slow(output, target):\n    import time\n    time.sleep(0.02)\n    return F.cross_entropy(output, target)\n"
    )
    show = SHOW.replace("loss=F.cross_entropy", "loss=slow")
    masks = MasksPage.show(notebook, TRAINED + slow, show)
    masks.find(".mkg-mask-importance").select_option("sensitivity")
    masks.find(".mkg-mask-sense-cancel").wait_for(state="visible")
    notebook.wait_for_value("0 < editor.sensing['done'] < editor.sensing['total']", True)
    assert notebook.value("[editor.importance, editor.sensitivity]") == ["l2", None]  # a cell has its turn
    wait_for_text(masks, ".mkg-mask-estimate-figure", f"of {2 * INDICES}")
    # also while a cell runs
    notebook.page.evaluate(f"() => {{ void {KERNEL}.requestExecute({{ code: 'import time; time.sleep(2)' }}); }}")
    masks.find(".mkg-mask-sense-cancel").click()
    masks.find(".mkg-mask-sense-cancel").wait_for(state="hidden", timeout=1500)
    wait_for_text(masks, ".mkg-status-text", "Sensitivity: cancelled")
    notebook.wait_for(f"() => document.querySelector('{ROOT} .mkg-mask-importance').value === 'l2'")
    assert notebook.value("[editor.importance, editor.sensitivity, editor.sensing]") == ["l2", None, {}]


@pytest.mark.nightly
@in_shared_page
def test_what_a_function_of_the_user_raises_is_text(notebook: NotebookPage) -> None:
    hostile = "<img src=x onerror='window.hacked = 1'>"
    failing = f"def accuracy(model):\n    raise ValueError({hostile!r})\n"
    masks = MasksPage.show(notebook, TRAINED.replace(TRAINED[TRAINED.index("weights, before") :], failing), SHOW)
    masks.button("evaluate").click()
    wait_for_text(masks, ".mkg-mask-failure", f"uncut: evaluate stopped: ValueError: {hostile}")
    assert masks.find(".mkg-mask-failure img").count() == 0
    assert notebook.page.evaluate("() => window.hacked === undefined")
    masks.click("0.0.out", 1)
    masks.wait_for_dropped({"0.0.out": [1]})
    masks.find(".mkg-mask-recalibrating").uncheck()
    notebook.wait_for_value("editor.recalibrating", False)
    masks.button("cut").click()
    masks.button("confirm").click()
    notebook.wait_for_value("editor.stage", "cut")
    masks.button("recalibrate").click()
    notebook.wait_for_value("editor.trial['recalibrated']", True)
    masks.find(".mkg-mask-recalibrate").wait_for(state="hidden")
    masks.button("undo-model").click()
    notebook.wait_for_value("list(model[0][0].weight.shape)", [12, 1, 3, 3])


@pytest.mark.nightly
@in_shared_page
def test_nothing_serious_stands_in_the_way_in_either_theme(notebook: NotebookPage) -> None:
    notebook.page.set_viewport_size({"width": 1280, "height": 1800})  # so high that nothing is clipped
    try:
        masks = MasksPage.show(notebook, TRAINED, SHOW)
        notebook.execute("editor.importance = 'sensitivity'")
        notebook.execute("editor.plan = mk.plan(editor.graph, per_axis={'0.0.out': [1, 2]})")
        notebook.execute("editor.cut()")
        masks.find(".mkg-mask-found-values").wait_for()
        masks.find(".mkg-mask-curve").wait_for(state="visible")
        notebook.execute("editor.axis = '1.0.out'")
        assert_accessible(notebook, "mask editor with costs")
    finally:
        set_theme(notebook, THEMES[0])
        notebook.page.set_viewport_size(VIEWPORT)


@in_shared_page
def test_without_data_one_line_says_what_to_pass(notebook: NotebookPage) -> None:
    masks = MasksPage.show(notebook)
    line = masks.find(".mkg-mask-estimate")
    assert "Pass batches= and loss= to MaskEditor" in line.inner_text()
    box = line.bounding_box()
    assert box is not None
    assert box["height"] < 24
    assert masks.find(".mkg-mask-toolbar .mkg-mask-ratio").count() == 1
    assert masks.find(".mkg-mask-evaluate, .mkg-mask-recalibrating, .mkg-mask-curve").count() == 0
