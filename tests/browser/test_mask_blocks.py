"""Blocks in a MaskEditor in JupyterLab: what a hand does to their rows is Python's plan, down to the cut and back."""

from __future__ import annotations

import pytest

from browser.fixtures import in_shared_page
from browser.masks import MasksPage
from browser.page import NotebookPage

SETUP = """
import torch
from IPython.display import display
from torch import nn
import modulekg_widgets as mk

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 8))
        self.feed = nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 8))

    def forward(self, x):
        x = x + self.mix(x)
        return x + self.feed(x)

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), Layer(), Layer(), nn.Linear(8, 3)).eval()
x = torch.zeros(2, 6)
weights = mk.weight_fingerprint(model)
"""
SHOW = """
editor, graph = mk.MaskEditor(model, x), mk.ModelGraph(model, x)
link = mk.link(editor, graph)
display(editor)
"""
OUTER, INNER, OTHER = "1", "1.feed", "2"
HIDDEN = "1.feed.0.out"  # an axis that goes with both
REMOVED = "editor._draft.removed_paths"


class BlocksPage(MasksPage):
    """The rows of blocks of a MaskEditor."""

    def toggle(self, path: str) -> str:
        return f'button[aria-label="Remove {path}"]'

    def states(self) -> dict[str, list[str]]:
        """Of each row that is shown what its button says, seen and heard."""
        rows = self.find(".mkg-mask-block:not([hidden])")
        script = """rows => rows.map(row => {
          const button = row.querySelector('.mkg-mask-block-toggle');
          return [row.dataset.mkgBlock, button.textContent, button.getAttribute('aria-pressed')];
        })"""
        return {path: [text, pressed] for path, text, pressed in rows.evaluate_all(script)}


@in_shared_page
def test_rows_of_blocks_reach_python_and_the_model(notebook: NotebookPage) -> None:
    masks = BlocksPage.show(notebook, SETUP, SHOW)
    whole = notebook.value("sum(p.numel() for p in model.parameters())")
    assert masks.states() == {OUTER: ["Keep", "false"], OTHER: ["Keep", "false"]}

    # an index in a block, then the block that it is in, then the one that is around it: each counts once
    masks.click(HIDDEN, 3)
    masks.wait_for_after("params", whole - 17)
    masks.find(f'button[aria-label="Blocks in {OUTER}"]').click()
    masks.find(masks.toggle(INNER)).click()
    notebook.wait_for_value(REMOVED, [INNER])
    masks.wait_for_after("params", whole - (9 * 24 + 25 * 8))
    assert notebook.value("editor._draft.dropped") == {}
    masks.find(masks.toggle(OUTER)).focus()
    notebook.page.keyboard.press("Space")
    notebook.wait_for_value(REMOVED, [OUTER])
    assert masks.states()[INNER] == ["Removed with 1", "true"]
    masks.wait_for_report("Dry run passed")
    plan = "mk.plan(editor.graph, blocks=['1'])"
    assert notebook.value(f"[repr(editor.plan), editor.plan == {plan}]") == ["mk.plan(graph, blocks=['1'])", True]
    assert [masks.after("params"), masks.after("flops")] == notebook.value(
        "[editor.plan.params[1], editor.plan.flops[1]]"
    )

    # keys: to the next row, and back through the history
    notebook.page.keyboard.press("End")
    notebook.page.keyboard.press("Enter")
    notebook.wait_for_value(REMOVED, [OUTER, OTHER])
    for left in ([OUTER], [INNER], []):
        notebook.page.keyboard.press("Control+z")
        notebook.wait_for_value(REMOVED, left)
    masks.wait_for_dropped({HIDDEN: [3]})
    for _ in range(2):
        notebook.page.keyboard.press("Control+Shift+z")
    notebook.wait_for_value(REMOVED, [OUTER])

    # the row selects its module, here and in the graph
    masks.find(f'[data-mkg-block="{OTHER}"] .mkg-mask-name').click()
    notebook.wait_for_value("[editor.selected, graph.selected]", [OTHER, OTHER])

    masks.button("mask").click()
    masks.find(".mkg-mask-status.mkg-is-failed").wait_for()
    assert "are removed as a whole: cut instead" in masks.find(".mkg-status-text").inner_text()
    assert notebook.value("[editor.stage, mk.weight_fingerprint(model) == weights]") == ["", True]
    masks.button("cut").click()
    assert masks.find(".mkg-mask-dialog-title").inner_text() == "Cut 1 block?"
    masks.button("confirm").click()
    notebook.wait_for_value("[editor.stage, len(model)]", ["cut", 3])
    assert list(masks.states()) == ["1"]
    masks.button("undo-model").click()
    notebook.wait_for_value("[editor.stage, len(model), mk.weight_fingerprint(model) == weights]", ["", 4, True])
    assert notebook.value(REMOVED) == [OUTER]
    assert masks.states()[OUTER] == ["Remove", "true"]


@pytest.mark.nightly
@in_shared_page
def test_blocks_that_python_removes_are_seen(notebook: NotebookPage) -> None:
    masks = BlocksPage.show(notebook, SETUP, SHOW)
    notebook.execute("editor.plan = mk.plan(editor.graph, blocks=['1.mix', '2'], per_axis={'0.out': [0]})")
    notebook.wait_for("() => document.querySelectorAll('.mkg-mask-block.mkg-is-gone').length === 4")
    states = masks.states()
    assert [states["1.mix"], states["1.feed"], states["2"]] == [
        ["Remove", "true"],
        ["Keep", "false"],
        ["Remove", "true"],
    ]
    assert masks.find(".mkg-mask-dropped").inner_text() == "1 channel in 1 group and 2 blocks removed"
    assert masks.after("params") == notebook.value("editor.plan.params[1]")
    masks.find("input[aria-label='Find channel groups']").fill("mix")
    notebook.wait_for("() => document.querySelectorAll('.mkg-mask-block:not([hidden])').length === 2")
    assert list(masks.states()) == ["1.mix", "2.mix"]
