"""MaskEditor in JupyterLab: what a hand does to the cells is Python's plan, and what Python does is in the cells."""

from __future__ import annotations

import pytest

from browser.fixtures import in_shared_page
from browser.masks import EVERY, HIDDEN, KERNEL, READY, ROOT, WIDE, MasksPage, params
from browser.page import NotebookPage
from sampling import sampled

DISCONNECTED = f"() => document.querySelector('{ROOT}.mkg-is-disconnected') !== null"


@in_shared_page
def test_clicks_drags_and_shift_reach_python(notebook: NotebookPage) -> None:
    masks = MasksPage.show(notebook)
    masks.click(HIDDEN, 3)
    masks.wait_for_dropped({HIDDEN: [3]})
    masks.wait_for_after("params", params(23))
    masks.drag(WIDE, 2, 17)
    masks.wait_for_dropped({HIDDEN: [3], WIDE: list(range(2, 18))})
    assert notebook.value("editor.axis") == WIDE
    masks.drag(WIDE, 10, 12)  # what is gone comes back when the first cell does
    masks.wait_for_dropped({HIDDEN: [3], WIDE: [*range(2, 10), *range(13, 18)]})
    masks.click(HIDDEN, 8)
    notebook.page.keyboard.down("Shift")
    masks.click(HIDDEN, 11)
    notebook.page.keyboard.up("Shift")
    masks.wait_for_dropped({HIDDEN: [3, 8, 9, 10, 11], WIDE: [*range(2, 10), *range(13, 18)]})
    masks.wait_for_report("Dry run passed")
    plan = notebook.value("[editor.plan.params, [[cut.name, cut.dropped] for cut in editor.plan.axes]]")
    assert plan == [
        [EVERY, params(19, 27)],
        [[HIDDEN, [3, 8, 9, 10, 11]], [WIDE, [*range(2, 10), *range(13, 18)]]],
    ]
    assert masks.after("params") == params(19, 27)
    assert [masks.after("flops"), masks.after("bytes")] == notebook.value(
        "[editor.plan.flops[1], 4 * editor.plan.params[1]]"
    )
    assert notebook.value("mk.weight_fingerprint(model) == weights")  # nothing has changed yet
    assert all(message.size <= 1024 for message in masks.edits())
    notebook.screenshot("mask-editor")


@in_shared_page
def test_the_keyboard_does_all_that_the_mouse_does(notebook: NotebookPage) -> None:
    masks = MasksPage.show(notebook)
    masks.strip(HIDDEN).focus()
    masks.press(HIDDEN, "ArrowRight", "ArrowRight", "Space")
    masks.wait_for_dropped({HIDDEN: [2]})
    masks.press(HIDDEN, "End", "Shift+ArrowLeft", "Shift+ArrowLeft", "Space")
    masks.wait_for_dropped({HIDDEN: [2, 21, 22, 23]})
    option = masks.find(f'[role=listbox][aria-label="Channels of {HIDDEN}"] [role=option]')
    assert option.inner_text().startswith("channel 21 of 24")
    assert "removed" in option.inner_text()
    notebook.page.keyboard.press("Control+z")
    masks.wait_for_dropped({HIDDEN: [2]})
    notebook.page.keyboard.press("Control+Shift+z")
    masks.wait_for_dropped({HIDDEN: [2, 21, 22, 23]})
    notebook.page.keyboard.press("Control+z")
    notebook.page.keyboard.press("Control+z")
    masks.wait_for_dropped({})
    assert notebook.value("editor.plan") is None


@in_shared_page
def test_sliders_ratio_scope_importance_and_locks(notebook: NotebookPage) -> None:
    masks = MasksPage.show(notebook)
    slider = masks.find(f'input[aria-label="Channels to remove of {WIDE}"]')
    slider.fill("10")
    masks.wait_for_after("params", params(24, 30))
    by_count = "dict((cut.name, list(cut.dropped)) for cut in mk.plan(editor.graph, {}).axes)"
    notebook.wait_for_value(f"editor._draft.dropped == {by_count.format(f'per_axis={{{WIDE!r}: 0.25}}')}", True)

    masks.button("ratio-field").fill("0.5")
    masks.button("ratio-field").press("Enter")
    notebook.wait_for_value(f"editor._draft.dropped == {by_count.format('ratio=0.5')}", True)
    masks.find(".mkg-mask-importance").select_option("random")
    notebook.wait_for_value("editor.importance", "random")
    masks.open_tools()
    masks.find(".mkg-mask-scope").select_option("global")
    notebook.wait_for_value("editor.scope", "global")
    masks.button("ratio-field").fill("0.25")
    masks.button("ratio-field").press("Enter")
    asked = 'ratio=0.25, scope="global", importance="random"'
    notebook.wait_for_value(f"editor._draft.dropped == {by_count.format(asked)}", True)

    # a locked row keeps what it has, whatever a hand does
    kept = notebook.value(f"editor._draft.dropped[{HIDDEN!r}]")
    masks.find(f'button[aria-label="Lock {HIDDEN}"]').click()
    notebook.wait_for_value("editor.locked", [HIDDEN])
    masks.button("ratio-field").fill("0.5")
    masks.button("ratio-field").press("Enter")
    masks.click(HIDDEN, 0)
    notebook.wait_for_value(f"len(editor._draft.dropped[{WIDE!r}])", 20)
    assert notebook.value(f"editor._draft.dropped[{HIDDEN!r}]") == kept
    notebook.execute("editor.locked = []")
    masks.find(f'button[aria-label="Lock {HIDDEN}"][aria-pressed=false]').wait_for()

    # hessian needs data: the picker goes back and the page says why
    masks.find(".mkg-mask-importance").select_option("hessian")
    notebook.wait_for(f"() => document.querySelector('{ROOT} .mkg-status').textContent.includes('needs data')")
    assert masks.find(".mkg-mask-importance").input_value() == "random"
    assert notebook.value("editor.importance") == "random"


@in_shared_page
def test_a_plan_of_python_is_seen_edited_and_read_back(notebook: NotebookPage) -> None:
    masks = MasksPage.show(notebook)
    notebook.execute("editor.plan = mk.plan(editor.graph, per_axis={'0': [1, 5]})")
    masks.wait_for_after("params", params(22))
    masks.click(HIDDEN, 5)
    masks.click(HIDDEN, 7)
    masks.wait_for_dropped({HIDDEN: [1, 7]})
    assert notebook.value("repr(editor.plan)") == "mk.plan(graph, per_axis={'0.out': [1, 7]})"
    assert notebook.value("eval(repr(editor.plan), {'mk': mk, 'graph': editor.graph}) == editor.plan")
    notebook.execute("editor.plan = None")
    masks.wait_for_after("params", EVERY)
    # the last index of an axis stays: a brush over all of them leaves the most important one
    masks.drag(HIDDEN, 0, 23, steps=30)
    notebook.wait_for_value("len(editor._draft.dropped.get('0.out', ()))", 23)
    masks.wait_for_report("Dry run passed")


@in_shared_page
@pytest.mark.gate
def test_mask_cut_and_undo_ask_once_and_are_real(notebook: NotebookPage) -> None:
    masks = MasksPage.show(notebook)
    masks.drag(HIDDEN, 0, 5)
    masks.wait_for_report("Dry run passed")
    masks.button("mask").click()
    notebook.wait_for_value("editor.stage", "masked")
    assert notebook.value("[model[0].weight[:6].any().item(), model[0].weight[6:].all().item()]") == [False, True]
    masks.button("undo-model").click()
    notebook.wait_for_value("editor.stage", "")
    assert notebook.value("mk.weight_fingerprint(model) == weights")

    masks.button("cut").click()
    dialog = masks.find("[role=dialog], [role=alertdialog]")
    said = dialog.inner_text()
    assert "6 channels" in said
    assert f"{params(18):,}" in said or "%" in said
    notebook.page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert notebook.value("list(model[0].weight.shape)") == [24, 8]
    masks.button("cut").click()
    masks.button("confirm").click()
    notebook.wait_for_value("editor.stage", "cut")
    assert notebook.value("[list(model[0].weight.shape), list(model(x).shape)]") == [[18, 8], [2, 3]]
    masks.wait_for_after("params", params(18))
    notebook.wait_for(f"() => document.querySelector('{ROOT} .mkg-status').textContent.includes('Cut: parameters')")
    masks.click(HIDDEN, 0)  # the editor goes on with the smaller model
    masks.wait_for_dropped({HIDDEN: [0]})
    masks.button("undo-model").click()
    notebook.wait_for_value("editor.stage", "")
    assert notebook.value("mk.weight_fingerprint(model) == weights")
    masks.wait_for_dropped({HIDDEN: [0, 1, 2, 3, 4, 5]})
    masks.wait_for_after("params", params(18))


@in_shared_page
def test_plans_are_saved_and_loaded_by_name(notebook: NotebookPage) -> None:
    masks = MasksPage.show(notebook)
    masks.drag(WIDE, 1, 3)
    masks.wait_for_dropped({WIDE: [1, 2, 3]})
    masks.open_file()
    masks.find(".mkg-mask-path").fill("drawn.modulekg.json")
    masks.button("save").click()
    notebook.wait_for_value("editor.path", "drawn.modulekg.json")
    file = notebook.server.notebooks / "drawn.modulekg.json"
    assert file.is_file()
    notebook.wait_for_value("mk.load_plan('drawn.modulekg.json') == editor.plan", True)
    notebook.execute("editor.plan = None")
    masks.wait_for_after("params", EVERY)
    masks.button("load").click()
    masks.wait_for_dropped({WIDE: [1, 2, 3]})
    masks.wait_for_after("params", params(24, 37))


@in_shared_page
def test_a_hand_and_a_running_cell_draw_at_once_and_an_action_is_for_what_is_seen(notebook: NotebookPage) -> None:
    masks = MasksPage.show(notebook)
    # heard while the cell runs; what the cell assigns after that takes its place
    drawn = {HIDDEN: [0, 1, 2, 3, 5]}
    code = f"""
import time
end = time.monotonic() + 10
while editor._draft.dropped != {drawn} and time.monotonic() < end:
    time.sleep(0.02)
heard = editor._draft.dropped
time.sleep(2)
editor.plan = mk.plan(editor.graph, per_axis={{{WIDE!r}: [1]}})
"""
    notebook.page.evaluate(f"code => {{ void {KERNEL}.requestExecute({{ code }}); }}", code)
    masks.drag(HIDDEN, 0, 3)
    masks.click(HIDDEN, 5)
    masks.wait_for_after("params", params(19), timeout=1500)
    notebook.wait_for_value("heard", drawn)
    masks.wait_for_dropped({WIDE: [1]})
    masks.wait_for_after("params", params(24, 39))

    # a gesture that is open meanwhile goes on top
    notebook.page.mouse.move(*masks.point(HIDDEN, 0))
    notebook.page.mouse.down()
    notebook.page.mouse.move(*masks.point(HIDDEN, 2), steps=4)
    notebook.execute(f"editor.plan = mk.plan(editor.graph, per_axis={{{WIDE!r}: [2]}})")
    notebook.page.mouse.move(*masks.point(HIDDEN, 3))
    notebook.page.mouse.up()
    masks.click(HIDDEN, 5)
    masks.wait_for_dropped({**drawn, WIDE: [2]})
    masks.wait_for_after("params", params(19, 39))

    notebook.page.evaluate(f"() => {{ void {KERNEL}.requestExecute({{ code: 'time.sleep(2)' }}); }}")
    masks.click(HIDDEN, 7)
    masks.click(HIDDEN, 9)
    masks.button("mask").click()
    masks.click(HIDDEN, 11)  # for the next one
    notebook.wait_for_value("editor.stage", "masked")
    gone = "[i for i in range(24) if not model[0].weight[i].any()]"
    assert notebook.value(gone) in ([0, 1, 2, 3, 5, 7, 9], [0, 1, 2, 3, 5, 7, 9, 11])
    masks.wait_for_dropped({HIDDEN: [0, 1, 2, 3, 5, 7, 9, 11], WIDE: [2]})


@pytest.mark.nightly
def test_a_busy_kernel_a_second_tab_a_reload_and_a_restart(notebook: NotebookPage) -> None:
    masks = MasksPage.show(notebook)
    notebook.page.evaluate(f"() => {{ void {KERNEL}.requestExecute({{ code: 'import time; time.sleep(4)' }}); }}")
    masks.drag(HIDDEN, 0, 3)
    masks.wait_for_after("params", params(20), timeout=1500)  # counted while the kernel is busy
    notebook.page.keyboard.press("Control+z")
    masks.wait_for_after("params", EVERY, timeout=1500)
    notebook.page.keyboard.press("Control+Shift+z")
    masks.wait_for_after("params", params(20), timeout=1500)
    masks.wait_for_dropped({HIDDEN: [0, 1, 2, 3]})

    # another tab of the same notebook has the same draft, both ways
    notebook.command("docmanager:save")
    other = MasksPage(NotebookPage(notebook.browser, notebook.server))
    try:
        name = notebook.page.evaluate("() => window.jupyterapp.shell.currentWidget.context.path")
        other.page.goto(f"{notebook.server.url}/lab/workspaces/second/tree/{name}")
        other.notebook.wait_for(READY)
        other.wait_for_after("params", params(20))
        other.find(".mkg-mask-rows").scroll_into_view_if_needed()
        other.click(HIDDEN, 9)
        masks.wait_for_after("params", params(19))
        masks.click(HIDDEN, 0)
        other.wait_for_after("params", params(20))
        masks.wait_for_dropped({HIDDEN: [1, 2, 3, 9]})
        other.notebook.assert_healthy()
    finally:
        other.notebook.close()

    # a reload in the middle of a gesture: what was not let go is not done, the rest is there
    notebook.page.mouse.move(*masks.point(WIDE, 0))
    notebook.page.mouse.down()
    notebook.page.mouse.move(*masks.point(WIDE, 5))
    notebook.page.reload()
    notebook.page.mouse.up()
    notebook.wait_for(READY)
    notebook.wait_for_kernel()
    masks.wait_for_after("params", params(20))
    masks.wait_for_dropped({HIDDEN: [1, 2, 3, 9]})

    # a second run of the cell replaces the editor
    comms = notebook.value("len(__import__('comm').get_comm_manager().comms)")
    notebook.run(1, until=READY)
    masks.wait_for_after("params", EVERY)
    assert notebook.page.locator(ROOT).count() == 1
    assert notebook.value("len(__import__('comm').get_comm_manager().comms)") == comms

    notebook.page.evaluate(f"() => {{ void {KERNEL}.restart(); }}")
    notebook.wait_for(DISCONNECTED, timeout=2000)
    assert "disconnected" in masks.find(".mkg-status").inner_text().lower()
    assert masks.find("[data-mkg-needs-kernel]").evaluate_all("all => all.every(one => one.disabled)")
    masks.click(HIDDEN, 1)
    masks.wait_for_after("params", params(23))  # looking and counting need no kernel
    notebook.wait_for_kernel()
    notebook.run(0)
    notebook.run(1, until=f"() => document.querySelector('{ROOT}[data-mkg-ready]:not(.mkg-is-disconnected)') !== null")
    masks.click(HIDDEN, 1)
    masks.wait_for_dropped({HIDDEN: [1]})


EXIT, INTERRUPT = "os._exit(1)", "os.kill(os.getpid(), 2)"


@pytest.mark.nightly
@pytest.mark.parametrize("blow", sampled([EXIT, INTERRUPT], [INTERRUPT]), ids=["death", "interrupt"])
def test_a_kernel_that_dies_or_is_interrupted(notebook: NotebookPage, blow: str) -> None:
    masks = MasksPage.show(notebook)
    notebook.page.evaluate(
        f"code => {{ {KERNEL}.requestExecute({{ code }}).done.catch(() => 0); }}", f"import os; {blow}"
    )
    if "_exit" in blow:
        notebook.wait_for(DISCONNECTED, timeout=5000)
        notebook.page.evaluate("() => document.querySelectorAll('.jp-Dialog button').forEach(button => button.click())")
        masks.click(HIDDEN, 1)
        masks.wait_for_after("params", params(23))
    else:
        notebook.wait_for_kernel()
        masks.click(HIDDEN, 1)
        masks.wait_for_dropped({HIDDEN: [1]})
        assert notebook.page.locator(f"{ROOT}.mkg-is-disconnected").count() == 0
