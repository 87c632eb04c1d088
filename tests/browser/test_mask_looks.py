"""How a MaskEditor in JupyterLab looks: what is folded away, what stays in sight, and what its shades mean."""

from __future__ import annotations

from browser.fixtures import in_shared_page
from browser.masks import EVERY, GAP, GROUP, HIDDEN, PITCH, ROOT, MasksPage, params
from browser.page import VIEWPORT, NotebookPage

FOLD = ".mkg-mask-fold-toggle"


@in_shared_page
def test_frozen_rows_are_one_line_that_opens_and_say_why(notebook: NotebookPage) -> None:
    masks = MasksPage.show(notebook)
    fold, rows = masks.find(FOLD), masks.find(".mkg-mask-row.mkg-is-frozen")
    assert fold.inner_text() == "2 fixed: 1 × model input, 1 × model output"
    assert [rows.count(), rows.first.is_visible(), fold.get_attribute("aria-expanded")] == [2, False, "false"]
    fold.press("Enter")
    masks.find(".mkg-mask-reason").last.wait_for(state="visible")
    reasons = masks.find(".mkg-mask-reason").all_inner_texts()
    assert notebook.value("[axis.frozen for axis in editor.graph.axes if axis.frozen]") == reasons
    assert masks.find('[role=listbox][aria-label="Channels of 4.out"]').count() == 0
    fold.click()
    assert not rows.first.is_visible()

    # what is sought or chosen is shown; a row that came to lie under the pointer would be the current one already
    notebook.page.mouse.move(0, 0)
    search = masks.find("input[aria-label='Find channel groups']")
    search.fill("4.out")
    masks.find(".mkg-is-frozen .mkg-mask-name").last.wait_for(state="visible")
    search.fill("")
    rows.first.wait_for(state="hidden")
    notebook.execute("editor.axis = '4.out'")
    masks.find(".mkg-is-frozen[aria-current=true]").wait_for(state="visible")


IN_SIGHT = f"""selectors => {{
  const page = document.querySelector('.jp-NotebookPanel-notebook').getBoundingClientRect();
  return selectors.filter(selector => {{
    const {{ top, bottom, height }} = document.querySelector('{ROOT} ' + selector).getBoundingClientRect();
    return !(height > 0 && top >= page.top - 1 && bottom <= page.bottom + 1);
  }});
}}"""


@in_shared_page
def test_what_the_buttons_come_to_is_in_sight_with_them_and_is_heard(notebook: NotebookPage) -> None:
    notebook.page.set_viewport_size({"width": 1100, "height": 800})
    try:
        masks = MasksPage.show(notebook)
        notebook.page.locator(ROOT).evaluate("root => root.scrollIntoView({ block: 'start' })")
        parts = [".mkg-mask-check", ".mkg-mask-outcome", ".mkg-mask-counters", ".mkg-mask-legend", ".mkg-mask-rows"]

        def said(selector: str, text: str) -> None:
            notebook.wait_for(
                f"([one, text]) => document.querySelector('{ROOT} ' + one).textContent.includes(text)", [selector, text]
            )
            assert masks.find(selector).get_attribute("role") == "status"
            assert notebook.page.evaluate(IN_SIGHT, [*parts, selector]) == []

        masks.drag(HIDDEN, 0, 7)
        masks.button("check").click()
        share = 100 * (1 - params(16) / EVERY)
        said(
            ".mkg-mask-found",
            f"passed. Parameters {EVERY / 1000:.2f} k → {params(16)} (−{share:.1f} %)",
        )
        masks.button("mask").click()
        left = f"a cut would leave {params(16)} parameters"
        said(".mkg-status-text", f"Masked: 8 channels set to zero; sizes unchanged ({left})")
        masks.button("undo-model").click()
        said(".mkg-status-text", "Mask undone")
        masks.button("cut").click()
        masks.button("confirm").click()
        said(".mkg-status-text", f"Cut: parameters {EVERY:,} → {params(16)}")
        masks.button("undo-model").click()
        said(".mkg-status-text", f"Cut undone: parameters {params(16)} → {EVERY:,}")
        notebook.execute("editor.send({'type': 'failed', 'action': 'mask', 'text': 'it could not be done'})")
        said(".mkg-status-text", "it could not be done")
        masks.find(".mkg-mask-status.mkg-is-failed").wait_for()
    finally:
        notebook.page.set_viewport_size(VIEWPORT)


# how bright the middle of each cell is, from 0 to 255
BRIGHTNESS = f"""indices => {{
  const canvas = document.querySelector('{ROOT} [role=listbox][aria-label="Channels of {HIDDEN}"] canvas');
  const ratio = canvas.width / parseFloat(canvas.style.width);
  return indices.map(index => {{
    const x = index * {PITCH} + Math.floor(index / {GROUP}) * {GAP} + 7;
    const [red, green, blue] = canvas.getContext('2d').getImageData(x * ratio, 7 * ratio, 1, 1).data;
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  }});
}}"""
RANKED = f"""
import numpy as np
sizes = [axis.size for axis in editor.graph.axes]
place = [axis.name for axis in editor.graph.axes].index({HIDDEN!r})
kind = "f4" if len(editor.scores) == 4 * sum(sizes) else "f8"
ranked = np.frombuffer(editor.scores, kind)[sum(sizes[:place]):][: sizes[place]].argsort().tolist()
"""


@in_shared_page
def test_more_ink_is_more_important_in_both_themes(notebook: NotebookPage) -> None:
    masks = MasksPage.show(notebook)
    notebook.execute(RANKED)
    ranked = notebook.value("ranked")
    legend = " ".join(masks.find(".mkg-mask-legend").inner_text().split())
    assert "1 square = 1 channel low high importance (l2, one scale per row)" in legend
    try:
        for theme, is_more_ink_darker in (("JupyterLab Light", True), ("JupyterLab Dark", False)):
            notebook.command("apputils:change-theme", theme=theme)
            ends = f"({BRIGHTNESS})([all[0], all.at(-1)])"
            differ = f"([all, sign]) => {{ const [least, most] = {ends}; return (least - most) * sign > 100; }}"
            notebook.wait_for(differ, [ranked, 1 if is_more_ink_darker else -1])
            found = notebook.page.evaluate(BRIGHTNESS, ranked)
            assert found == sorted(found, reverse=is_more_ink_darker), theme
            assert abs(found[0] - (255 if is_more_ink_darker else 33)) < 60, theme  # the least is near the ground
    finally:
        notebook.command("apputils:change-theme", theme="JupyterLab Light")
