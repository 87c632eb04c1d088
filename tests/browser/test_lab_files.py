"""JupyterLab's plugin: saved graphs and plans opened by a double click, settings, and what a reload brings back."""

import json

import pytest

from browser.graph import READY, GraphPage
from browser.plugin import EXPLORE, OPEN_FILE, PANEL, SHOW_PANEL, TAB, VIEWER, LabPlugin

SETUP = """
import torch
from torch import nn
import modulekg_widgets as mk
small = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
"""
SAVE = """
mk.ModelGraph(small).export("small.modulekg.json")
plan = mk.plan(mk.trace(small, torch.randn(1, 4)), ratio=0.5)
plan.save("half.modulekg.json")
"""
# no two neighbours are alike, so nothing is folded: 10 blocks of 2, 4, 6… modules
BIG = """
def pairs(count):
    return [layer for _ in range(count) for layer in (nn.Linear(2, 2), nn.ReLU())]

big = nn.Sequential(*(nn.Sequential(*pairs(i + 1)) for i in range(10)))
"""
HOSTILE = '<img src=x onerror="window.__xss = 1">'
PLAIN = {
    "cut.modulekg.json": ('{"format": "modulekg-plan", "axes": [', "This file is incomplete"),
    "deep.modulekg.json": ("[" * 300_000, "lists are nested too deep"),
    "page.modulekg.json": (f"<html>{HOSTILE}</html>", "This file is not JSON"),
    "other.modulekg.json": ('{"nodes": []}', "neither a graph nor a plan"),
    "empty.modulekg.json": ("", "This file is empty"),
    "old.modulekg.json": ('{"schema_version": 1, "kind": "model"}', "another version"),
    "huge.modulekg.json": ('["' + "x" * (65 << 20) + '"]', "larger than 64 MB"),
}


def open_notebook(plugin: LabPlugin, *cells: str) -> None:
    plugin.notebook.open(cells)
    for index in range(len(cells)):
        plugin.notebook.run(index)


def double_click(plugin: LabPlugin, name: str) -> None:
    """Open a file from the file browser."""
    plugin.notebook.command("filebrowser:activate")
    plugin.notebook.command("filebrowser:refresh")
    plugin.page.locator(".jp-DirListing-item", has_text=name).dblclick()


@pytest.mark.gate
def test_a_double_click_opens_a_graph_and_a_plan(plugin: LabPlugin) -> None:
    open_notebook(plugin, SETUP, SAVE)
    axes = plugin.notebook.value("[[a.name, a.size, a.left] for a in plan.axes]")
    assert axes
    double_click(plugin, "small.modulekg.json")
    plugin.wait_for_graph(VIEWER, "Sequential")
    plugin.notebook.screenshot("lab-file-graph")
    double_click(plugin, "half.modulekg.json")
    plugin.page.locator(f"{VIEWER} .mkg-plan-view").wait_for()
    rows = plugin.page.locator(f"{VIEWER} .mkg-plan-view section").first.locator("tbody tr")
    shown = rows.evaluate_all("rows => rows.map(row => Array.from(row.cells, cell => cell.textContent).slice(0, 3))")
    assert shown == [[name, str(size), str(left)] for name, size, left in axes]
    plugin.notebook.screenshot("lab-file-plan")


def test_the_command_asks_for_a_file_and_opens_it(plugin: LabPlugin) -> None:
    open_notebook(plugin, SETUP, SAVE)
    plugin.start(OPEN_FILE)
    dialog = plugin.page.locator(".jp-Dialog")
    dialog.locator(".jp-DirListing-item", has_text="half.modulekg.json").click()
    assert dialog.locator(".jp-DirListing-item", has_text=".ipynb").count() == 0  # only files of ours are offered
    dialog.locator("button.jp-mod-accept").click()
    plugin.page.locator(f"{VIEWER} .mkg-plan-view").wait_for()
    assert plugin.page.evaluate("() => window.jupyterapp.shell.currentWidget.context.path") == "half.modulekg.json"


@pytest.mark.nightly
def test_a_file_that_cannot_be_shown_says_why(plugin: LabPlugin) -> None:
    open_notebook(plugin, SETUP)
    folder = plugin.notebook.server.notebooks
    for name, (text, sentence) in PLAIN.items():
        (folder / name).write_text(text, "utf-8")
        plugin.notebook.command("docmanager:open", path=name)
        note = plugin.page.locator(f"{VIEWER}:visible .mkg-message")
        note.wait_for()
        assert sentence in note.inner_text(), name
        plugin.notebook.command("application:close")
    assert plugin.page.evaluate("() => window.__xss ?? null") is None


def test_hostile_texts_of_a_file_are_shown_verbatim(plugin: LabPlugin) -> None:
    open_notebook(plugin, SETUP, SAVE)
    folder = plugin.notebook.server.notebooks
    plan = json.loads((folder / "half.modulekg.json").read_text("utf-8"))
    plan["axes"][0].update(name=HOSTILE, members=[HOSTILE])
    plan["changes"].append({"kind": HOSTILE, "what": HOSTILE, "source": HOSTILE})
    (folder / "half.modulekg.json").write_text(json.dumps(plan), "utf-8")
    plugin.notebook.command("docmanager:open", path="half.modulekg.json")
    axis = plugin.page.locator(f"{VIEWER} .mkg-plan-axis").first
    axis.wait_for()
    assert axis.inner_text() == HOSTILE
    assert plugin.page.locator(f"{VIEWER} img").count() == 0
    assert plugin.page.evaluate("() => window.__xss ?? null") is None


SURFACE = "() => getComputedStyle(document.querySelector('.mkg-model-graph')).backgroundColor"


def test_settings_act_at_once(plugin: LabPlugin) -> None:
    open_notebook(plugin, SETUP, BIG + "\nmk.ModelGraph(big)")
    plugin.notebook.wait_for(READY)
    light = plugin.page.evaluate(SURFACE)
    try:
        for theme, color in {"dark": "rgb(27, 31, 36)", "high-contrast": "rgb(0, 0, 0)", "light": light}.items():
            plugin.set("theme", theme)
            plugin.notebook.wait_for(f"color => ({SURFACE})() === color", color)
            plugin.notebook.screenshot(f"lab-theme-{theme}")
        plugin.set("theme", "lab")
        plugin.notebook.wait_for("() => !/mkg-theme/.test(document.body.className)")
        plugin.set("motion", "reduced")
        plugin.notebook.wait_for("() => document.body.classList.contains('mkg-reduced-motion')")
        hint = "getComputedStyle(document.querySelector('.mkg-wheel-hint')).transitionDuration"
        assert plugin.page.evaluate(hint) in ("0s", "1e-05s")
        GraphPage(plugin.notebook).open_tools()
        plugin.page.get_by_role("button", name="Expand all").click()
        status = plugin.page.locator(".mkg-model-graph .mkg-slot-status")
        shown = "() => document.querySelectorAll('.mkg-model-graph [role=treeitem]').length"
        before = plugin.page.evaluate(shown)
        plugin.set("softLimit", 20)
        plugin.notebook.wait_for(
            "() => /More than 20 nodes/.test(document.querySelector('.mkg-slot-status').textContent)"
        )
        assert status.count() == 1
        plugin.page.get_by_role("button", name="Collapse all").click()
        plugin.page.get_by_role("button", name="Expand all").click()
        assert plugin.page.evaluate(shown) < before
    finally:
        for name, value in {"theme": "lab", "motion": "system", "softLimit": 150, "hardLimit": 500}.items():
            plugin.set(name, value)


@pytest.mark.nightly
def test_a_reload_brings_tabs_panel_and_viewers_back(plugin: LabPlugin) -> None:
    plugin.notebook.workspace = "restored"
    open_notebook(plugin, SETUP, SAVE)
    plugin.start(SHOW_PANEL)
    plugin.start(EXPLORE, beside=True)
    plugin.wait_for_graph(TAB, "Sequential")
    plugin.notebook.command("docmanager:open", path="half.modulekg.json")
    plugin.page.locator(f"{VIEWER} .mkg-plan-view").wait_for()
    plugin.reload()
    plugin.page.locator(f"{VIEWER} .mkg-plan-view").wait_for()
    plugin.notebook.wait_for(f"() => document.querySelector('{PANEL}').dataset.mkgKnown === 'list'")
    plugin.page.locator(".lm-TabBar-tab", has_text="small").click()
    plugin.wait_for_graph(TAB, "Sequential")
    plugin.notebook.screenshot("lab-restored")
    plugin.focus_notebook()
    count = "len([w for w in __import__('gc').get_objects() if type(w).__name__ == 'ModelGraph' and w.comm])"
    plugin.notebook.wait_for_value(count, 1 + 1)  # the explorer, and the one that wrote the file
    plugin.notebook.execute("del small")
    plugin.reload()
    plugin.notebook.wait_for("() => /no longer has “small”/.test(document.querySelector('.mkg-lab-note')?.textContent)")
    plugin.page.locator(".lm-TabBar-tab", has_text="small").click()
    plugin.tab(".mkg-lab-note").get_by_role("button", name="Try again").wait_for()
