"""Every payload through every text of MaskEditor, Workbench and ForwardPlayer: shown as it is, and nothing runs."""

from __future__ import annotations

import pytest

from browser.fixtures import in_shared_page
from browser.graph import ROOT as GRAPH
from browser.hostile import assert_harmless, inspect
from browser.masks import ROOT, MasksPage
from browser.metrics import ROOT as PANEL
from browser.page import NotebookPage
from cases.payloads import PAYLOADS
from sampling import sampled

BENCH, PLAYER = ".mkg-workbench", ".mkg-forward-player"
PLAYER_READY = f"() => document.querySelector('{PLAYER}[data-mkg-ready=\"true\"]') !== null"
OUTPUT = ".jp-OutputArea-output"

# a chain of layers, each with a payload as its slot, its class, the class's module and a parameter that is not read
SETUP = f"""
import torch
from IPython.display import display
from torch import nn
import modulekg_widgets as mk

payloads = {PAYLOADS!r}

def layer(text, kind, *sizes):
    return type(text, (kind,), {{"__module__": text}})(*sizes)

class Picky(nn.Module):
    def forward(self, x):
        if x.shape[-1] != 8:
            raise ValueError("".join(payloads))
        return x

torch.manual_seed(0)
model = type(payloads[0], (nn.Sequential,), {{"__module__": payloads[1]}})()
for text in payloads:
    model._modules[text] = layer(text, nn.Linear, 8, 8)
    model._modules[text].register_parameter(text.replace(".", "") + "unread", nn.Parameter(torch.zeros(3)))
x = torch.ones(1, 8)
"""
SHOW = "editor = mk.MaskEditor(model, x)\ndisplay(editor)"

ROWS = f"""() => Object.fromEntries(Array.from(document.querySelectorAll('{ROOT} .mkg-mask-row'), row => [
  row.querySelector('.mkg-mask-name bdi')?.textContent ?? '', row.textContent]))"""
STATUS = f"() => document.querySelector('{ROOT} .mkg-status-text').textContent"


def assert_page_is_harmless(notebook: NotebookPage, root: str, address: str) -> None:
    """In the widget, around it and in what it puts elsewhere."""
    for place in (root, OUTPUT, ".mkg-tooltip, .mkg-menu, .mkg-mask-tip"):
        assert_harmless(notebook.page, place, address)


@pytest.mark.parametrize("root", sampled([ROOT, PLAYER, BENCH], [BENCH]))
def test_the_watch_sees_what_it_is_for(notebook: NotebookPage, root: str) -> None:
    """The payloads as HTML inside each widget: what the other tests say does not happen, happens."""
    show = {ROOT: "mk.MaskEditor(model, x)", PLAYER: "mk.ForwardPlayer(model, x)", BENCH: "mk.Workbench(model, x)"}[
        root
    ]
    notebook.open([SETUP + f"display({show})"])
    notebook.run(0, until=f"() => document.querySelector('{root}') !== null")
    assert inspect(notebook.page, root)["found"] == []
    notebook.page.evaluate(
        """([root, payloads]) => {
      const place = document.querySelector(root).appendChild(document.createElement('div'));
      for (const payload of payloads) { place.appendChild(document.createElement('div')).innerHTML = payload; }
      place.appendChild(document.createElement('img')).src = 'http://xss.invalid/control';
    }""",
        [root, [text for text in PAYLOADS if "http-equiv" not in text]],
    )
    notebook.wait_for("() => window.__xss !== undefined")
    seen = inspect(notebook.page, root)
    assert {"SCRIPT", "IFRAME", "EMBED", "FORM", "MATH"} <= set(seen["found"])
    assert "http://xss.invalid/control" in notebook.trouble.foreign_requests
    notebook.trouble.clear()


@pytest.mark.nightly
@in_shared_page
def test_axes_members_reasons_locks_and_search(notebook: NotebookPage) -> None:
    masks = MasksPage.show(notebook, SETUP, SHOW)
    address = notebook.page.url
    names = notebook.value("editor.payload['axes']['name']")
    reasons = notebook.value("editor.payload['axes']['reasons']")
    members = notebook.value("editor.payload['axes']['members']")
    assert [text for text in PAYLOADS if f"{text}.out" not in names] == []
    assert [text for text in PAYLOADS if not any(text in reason for reason in reasons)] == []
    notebook.execute("editor.locked = [axis.name for axis in editor.graph.axes if axis.frozen is None]")
    search = masks.find("input[type=search]")
    for text in PAYLOADS:
        search.fill(text)
        notebook.wait_for(f"name => name in ({ROWS})()", f"{text}.out")
        axis = names.index(f"{text}.out")
        row = masks.find(f'.mkg-mask-row[data-mkg-axis="{axis}"]')
        notebook.wait_for(f"axis => !document.querySelector('{ROOT} [data-mkg-axis=\"' + axis + '\"]').hidden", axis)
        toggle = row.locator(".mkg-mask-more")
        assert row.locator(".mkg-mask-name").get_attribute("title") == f"{text}.out"
        assert toggle.get_attribute("title").startswith(f"{members[axis][0][0]}[0]")
        toggle.evaluate("toggle => toggle.click()")
        assert row.locator(".mkg-mask-members bdi").all_text_contents() == [
            f"{name}[{dim}]" for name, dim in members[axis]
        ]
        if row.locator("[role=listbox]").count():
            row.locator("[role=listbox]").evaluate("strip => strip.focus()")
            notebook.page.keyboard.press("Space")
            assert notebook.page.evaluate(STATUS) == f"{text}.out is locked."
        notebook.execute(f"editor.selected = {text!r}; editor.axis = {text + '.out'!r}")
        notebook.wait_for(
            f"""axis => document.querySelector('{ROOT} [data-mkg-axis="' + axis + '"]')
              .matches('[aria-current=true].mkg-is-on-module')""",
            axis,
        )
    assert_page_is_harmless(notebook, ROOT, address)
    search.fill(" is not read by")  # no name and no member
    notebook.wait_for(f"() => !document.querySelector('{ROOT} .mkg-mask-empty').hidden")
    search.fill("unread")
    for text in PAYLOADS:
        axis = next(at for at, name in enumerate(names) if name == f"{text}.{text.replace('.', '')}unread")
        notebook.page.evaluate(
            f"axis => document.querySelector('{ROOT} [data-mkg-axis=\"' + axis + '\"]').scrollIntoView()", axis
        )
        reason = masks.find(f'.mkg-mask-row[data-mkg-axis="{axis}"] .mkg-mask-reason')
        reason.wait_for(state="attached")
        assert text in (reason.text_content() or "")
    assert_page_is_harmless(notebook, ROOT, address)
    notebook.screenshot("hostile-mask-editor")


@pytest.mark.nightly
@in_shared_page
def test_importances(notebook: NotebookPage) -> None:
    masks = MasksPage.show(notebook, SETUP, SHOW)
    address = notebook.page.url
    notebook.execute(
        """
def named(text):
    def scores(group):
        if text == payloads[3]:
            raise ValueError("".join(payloads))
        return torch.arange(8.0)
    scores.__name__ = text
    return scores

for text in payloads:
    if text != payloads[3]:
        editor.rank_by(named(text))
        editor.locked = []
"""
    )
    picker = masks.find(".mkg-mask-importance")
    offered = [text for text in PAYLOADS if text != PAYLOADS[3]]
    notebook.wait_for(f"text => document.querySelector('{ROOT} .mkg-mask-importance').value === text", offered[-1])
    assert picker.locator("option").all_text_contents()[-len(offered) :] == offered
    for text in offered:
        picker.select_option(value=text)
        notebook.wait_for_value("editor.importance", text)
    with pytest.raises(AssertionError, match="stopped on axis"):
        notebook.execute("editor.rank_by(named(payloads[3]))")
    # the same by a click: the picker goes back, and the page says why
    notebook.execute("editor._pruning.importances[payloads[3]] = named(payloads[3])\neditor.rank_by('l1')")
    notebook.wait_for(f"() => document.querySelector('{ROOT} .mkg-mask-importance').value === 'l1'")
    picker.select_option(value=PAYLOADS[3])
    notebook.wait_for(f"text => ({STATUS})().includes(text)", "ValueError: " + PAYLOADS[0])
    assert picker.input_value() == "l1"
    masks.strip(f"{PAYLOADS[1]}.out").hover(position={"x": 5, "y": 5})
    notebook.wait_for(f"() => !document.querySelector('{ROOT} .mkg-mask-tip').hidden")
    assert masks.find(".mkg-mask-tip").inner_text().startswith("index 0 of 8, importance")
    assert_page_is_harmless(notebook, ROOT, address)


@pytest.mark.nightly
@in_shared_page
def test_files(notebook: NotebookPage) -> None:
    """The name in the field, and what is said of a plan that is saved or cannot be loaded."""
    masks = MasksPage.show(notebook, SETUP, SHOW)
    address = notebook.page.url
    notebook.execute(f"editor.plan = mk.plan(editor.graph, per_axis={{{PAYLOADS[0] + '.out'!r}: [0]}})")
    masks.open_file()
    field = masks.find(".mkg-mask-path")
    said = f"start => ({STATUS})().startsWith(start)"
    for text in (f"{payload}.json" for payload in PAYLOADS):
        notebook.execute(f"editor.path = {text!r}")
        notebook.wait_for(f"text => document.querySelector('{ROOT} .mkg-mask-path').value === text", text)
        short = notebook.value(f"mk.engine.errors.shown({text!r})")
        reason = "is not below" if text.startswith("/") else "cannot be read as a plan"
        masks.button("load").click()
        notebook.wait_for(f"texts => texts.every(text => ({STATUS})().includes(text))", [short[:20], reason])
        field.fill(text)
        masks.button("save").click()
        is_name = "/" not in text
        notebook.wait_for(said, f"Saved as {text}" if is_name else short[:20])
        if is_name:
            loaded = [f"Loaded {text}", f"{short} cannot be read as a plan"]
            masks.button("load").click()
            # a name with two underscores after a dot is taken for an attribute of Python's own
            notebook.wait_for(f"texts => texts.some(text => ({STATUS})().startsWith(text))", loaded)
            (notebook.server.notebooks / text).unlink()
    assert_page_is_harmless(notebook, ROOT, address)


# what the first layer gives cannot be thinned; of the second it can
PICKY = """
picky = nn.Sequential()
for text, kind in zip(payloads, (nn.Linear, Picky, nn.Linear, nn.Linear)):
    picky._modules[text] = layer(text, kind, *(() if kind is Picky else (8, 8)))
"""


@pytest.mark.nightly
@in_shared_page
def test_real_dry_runs(notebook: NotebookPage) -> None:
    masks = MasksPage.show(notebook, SETUP + PICKY, SHOW.replace("model", "picky"))
    address = notebook.page.url
    first, second = (f"{PAYLOADS[at]}.out" for at in (0, 2))
    masks.click(first, 3)
    masks.wait_for_report("Dry run failed")
    assert first in (masks.find(".mkg-mask-error").text_content() or "")
    masks.click(second, 2)
    masks.wait_for_report("1 correction")
    assert f"{first} is not cut" in (masks.find(".mkg-mask-changes").text_content() or "")
    assert notebook.value("[[cut.name, cut.dropped] for cut in editor.plan.axes]") == [[second, [2]]]
    masks.strip(first).hover(position={"x": 3 * 16 + 8, "y": 8})
    notebook.wait_for(f"() => document.querySelector('{ROOT} .mkg-mask-tip').textContent.includes('keeps it')")
    assert_page_is_harmless(notebook, ROOT, address)


@pytest.mark.nightly
@in_shared_page
def test_whatever_a_report_and_an_answer_say(notebook: NotebookPage) -> None:
    masks = MasksPage.show(notebook, SETUP, SHOW)
    address = notebook.page.url
    notebook.execute(
        """
number = {axis.name: axis.number for axis in editor.graph.axes}
changes = [{"kind": text, "text": text, "axes": [number[text + ".out"]]} for text in payloads]
editor.report = {"revision": 0, "error": None, "params": [2, 1], "flops": [2, 1], "bytes": [8, 4], "changes": changes,
                 "kept": [], "taken": []}
"""
    )
    masks.wait_for_report(f"{len(PAYLOADS)} corrections")
    entries = masks.find(".mkg-mask-changes li")
    texts = [entries.nth(at).locator("bdi").all_text_contents() for at in range(len(PAYLOADS))]
    assert texts == [[text, text, f"{text}.out"] for text in PAYLOADS]
    masks.find(".mkg-mask-details").click()
    entries.nth(4).locator("button").click()
    notebook.wait_for_value("editor.axis", f"{PAYLOADS[4]}.out")
    assert_page_is_harmless(notebook, ROOT, address)
    notebook.execute("editor.report = {'revision': 0, 'error': ''.join(payloads)}")
    masks.wait_for_report("Dry run failed")
    assert masks.find(".mkg-mask-error").text_content() == "".join(PAYLOADS)
    # what the kernel refuses and what it did, in the status line
    for text in PAYLOADS:
        notebook.execute(f"editor.send({{'type': 'failed', 'action': 'mask', 'text': {text!r}}})")
        notebook.wait_for(f"text => ({STATUS})() === text", text)
    masks.find(".mkg-close").click()
    assert_page_is_harmless(notebook, ROOT, address)


BENCH_SETUP = """
monitor = mk.Monitor(model, {nn.Linear: ["WeightNorm"]})
with monitor:
    for step in range(3):
        model(x).square().mean().backward()
        monitor.track(step)
        monitor.log({text: float(step) for text in payloads})
"""
BENCH_SHOW = "bench = mk.Workbench(model, x, monitor=monitor)\neditor, graph = bench.editor, bench.graph\nbench"


@in_shared_page
def test_workbench(notebook: NotebookPage) -> None:
    """A choice goes through all parts, and so do the shares of the modules that are dropped."""
    notebook.open([SETUP + BENCH_SETUP, BENCH_SHOW])
    notebook.run(0)
    ready = (
        f"() => [{GRAPH!r}, {ROOT!r}, {PANEL!r}].every(r => document.querySelector(r + '[data-mkg-ready]') !== null)"
    )
    notebook.run(1, until=ready)
    address = notebook.page.url
    masks = MasksPage(notebook)
    masks.button("ratio-field").fill("0.5")
    masks.button("ratio-field").press("Enter")
    notebook.wait_for_value("len(editor._draft.dropped)", len(PAYLOADS) - 1)
    notebook.page.locator(f"{PANEL} .mkg-metric-modules").scroll_into_view_if_needed()
    for text in PAYLOADS:
        notebook.execute(f"graph.selected = {text!r}")
        notebook.wait_for(f"path => document.querySelector('{GRAPH} .mkg-side-panel').dataset.mkgPath === path", text)
        notebook.wait_for_value("[editor.selected, bench.panel.selected]", [text, text])
        rows = notebook.page.locator(f"{PANEL} .mkg-metric-modules li")
        assert text in rows.evaluate_all("all => all.map(row => row.dataset.mkgPath)")
    listed = notebook.page.locator(f"{PANEL} .mkg-metric-select option").all_text_contents()
    notebook.execute("bench.panel.modules = ['']")
    assert [text for text in PAYLOADS if not any(text in option for option in listed)] == []
    for text in PAYLOADS[:4]:
        notebook.execute(f"bench.panel.metric = {text!r}")
        notebook.wait_for(f"text => document.querySelector('{PANEL} .mkg-metric-select').value.includes(text)", text)
    assert_page_is_harmless(notebook, BENCH, address)
    notebook.screenshot("hostile-workbench")


PLAYED = """
is_broken = False

class Stops(nn.Module):
    def forward(self, x):
        if is_broken:
            raise ValueError("".join(payloads))
        return {"".join(payloads[at:at + 4]): x + 1 for at in range(0, len(payloads), 4)}

model._modules[payloads[1] + payloads[2]] = layer(payloads[1] + payloads[2], Stops)
import modulekg_widgets.engine.playback.player as playback
playback.CACHE = 0
"""


@pytest.mark.nightly
@in_shared_page
def test_forward_player(notebook: NotebookPage) -> None:
    """Paths, classes, names of tensors, and what a module raises and the kernel answers."""
    notebook.open([SETUP + PLAYED, "player = mk.ForwardPlayer(model, torch.ones(2, 8))\ndisplay(player)"])
    notebook.run(0)
    notebook.run(1, until=PLAYER_READY)
    address = notebook.page.url
    page = notebook.page.locator(PLAYER)
    for step, text in enumerate(PAYLOADS, 1):
        page.locator(".mkg-forward-next").click()
        notebook.wait_for(f"step => document.querySelector('{PLAYER}').dataset.mkgStep === step", str(step))
        row = page.locator(f'.mkg-forward-row[data-mkg-step="{step}"]')
        assert row.get_attribute("title") == f"{text}\n{text}"
        assert row.locator("bdi").all_text_contents() == [text, text]
        assert page.locator(".mkg-forward-details .mkg-panel-class").text_content() == text
        assert page.locator(".mkg-forward-path").text_content() == text
    notebook.execute("is_broken = True")
    page.locator(".mkg-forward-last").click()
    facts = page.locator(".mkg-forward-tensor bdi")
    notebook.wait_for(f"count => document.querySelectorAll('{PLAYER} .mkg-forward-tensor bdi').length === count", 11)
    assert [text for text in PAYLOADS if not any(text in name for name in facts.all_text_contents())] == []
    # pictures of the first item have come with the player; for those of another it runs again, and is another one
    page.locator(".mkg-forward-sample").fill("2")
    message = f"() => document.querySelector('{PLAYER} .mkg-forward-message').textContent"
    notebook.wait_for(f"text => ({message})().includes(text)", "outputs have changed")
    for text in PAYLOADS:
        answer = {"kind": "maps", "run": 1, "step": len(PAYLOADS) + 1, "sample": 1, "page": 0, "error": text}
        notebook.execute(f"player.send({answer!r})")
        notebook.wait_for(f"text => ({message})() === text", text)
    assert_page_is_harmless(notebook, PLAYER, address)
    notebook.execute("player.run()")
    notebook.wait_for(f"() => document.querySelector('{PLAYER} .mkg-forward-status').textContent.includes('raised')")
    assert PAYLOADS[0] in (page.locator(".mkg-forward-status").text_content() or "")
    notebook.wait_for(f"() => document.querySelector('{PLAYER} .mkg-forward-error bdi') !== null")
    assert PAYLOADS[0] in (page.locator(".mkg-forward-error bdi").text_content() or "")
    assert_page_is_harmless(notebook, PLAYER, address)
    notebook.screenshot("hostile-forward-player")
