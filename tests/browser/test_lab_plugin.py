"""JupyterLab's plugin: commands, the side panel, viewers of files, settings, and what a reload brings back."""

import pytest

from browser.plugin import EDIT_MASKS, EXPLORE, PANEL, SHOW_OBJECT, SHOW_PANEL, TAB, LabPlugin

SETUP = """
import torch
from torch import nn
import modulekg_widgets as mk
small = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
"""
SMALL = "model | small | Sequential | 23 parameters"
SECOND = "wide = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])"
PLAN = """
graph = mk.trace(small, torch.randn(1, 4))
plan = mk.plan(graph, ratio=0.5)
monitor = mk.Monitor(small, {nn.Linear: ["OutputHistogram"]})
"""

GRAPHS = "len([w for w in __import__('gc').get_objects() if type(w).__name__ == 'ModelGraph' and w.comm])"

CONSOLE = """async () => {
  const options = { activate: true, kernelPreference: { name: 'python3' } };
  const panel = await window.jupyterapp.commands.execute('console:create', options);
  await panel.sessionContext.ready;
}"""
KERNEL = "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel"
LONE = "import torch, modulekg_widgets; lone = torch.nn.Linear(3, 3)"


def open_notebook(plugin: LabPlugin, *cells: str) -> None:
    plugin.notebook.open(cells)
    plugin.notebook.run(0)


@pytest.mark.gate
def test_a_command_explores_the_only_model(plugin: LabPlugin) -> None:
    open_notebook(plugin, SETUP)
    names = plugin.notebook.value("sorted(n for n in globals() if not n.startswith('_'))")
    count = plugin.notebook.value("get_ipython().execution_count")
    plugin.start(EXPLORE)
    plugin.wait_for_graph(TAB, "Sequential")
    plugin.notebook.screenshot("lab-explore")
    plugin.focus_notebook()
    assert plugin.notebook.value("sorted(n for n in globals() if not n.startswith('_'))") == names
    assert plugin.notebook.value("get_ipython().execution_count") == count
    assert plugin.notebook.value(GRAPHS) == 1
    plugin.page.locator(".lm-TabBar-tab", has_text="small").locator(".lm-TabBar-tabCloseIcon").click()
    plugin.notebook.wait_for_value(GRAPHS, 0)


@pytest.mark.nightly
def test_a_command_asks_which_of_several_models(plugin: LabPlugin) -> None:
    open_notebook(plugin, SETUP + SECOND)
    plugin.start(EXPLORE, beside=True)
    dialog = plugin.page.locator(".jp-Dialog")
    dialog.locator("select").select_option("wide")
    dialog.locator(".jp-mod-accept").click()
    plugin.wait_for_graph(TAB, "ModuleList")
    notebook, tab = (plugin.page.locator(part).bounding_box() for part in (".jp-NotebookPanel", TAB))
    assert notebook is not None
    assert tab is not None
    assert tab["x"] >= notebook["x"] + notebook["width"] - 1  # beside it
    plugin.notebook.screenshot("lab-beside")


def test_the_panel_lists_what_the_kernel_has(plugin: LabPlugin) -> None:
    plugin.notebook.open(["x = 1", SETUP, PLAN, "del plan"])
    plugin.start(SHOW_PANEL)
    plugin.notebook.wait_for(f"() => document.querySelector('{PANEL}')?.dataset.mkgKnown === 'nothing'")
    plugin.notebook.run(0)
    plugin.notebook.run(1)
    plugin.wait_for_rows(SMALL)
    plugin.notebook.run(2)
    after = plugin.notebook.value("plan.params[1]")
    monitor = "monitor | monitor | Monitor | 0 series"
    graph = f"graph | graph | DataflowGraph | {plugin.notebook.value('len(graph.operators)')} operators"
    plugin.wait_for_rows(SMALL, f"plan | plan | PruningPlan | 23 → {after} parameters", monitor, graph)
    plugin.notebook.screenshot("lab-panel")
    plugin.page.locator(f"{PANEL} [data-mkg-action='plan plan']").click()
    tables = plugin.tab(".jp-RenderedHTMLCommon table")
    tables.filter(has_text="channel group").wait_for()
    assert tables.count() == 2
    assert f"parameters\t23\t{after}\t" in tables.first.inner_text()
    plugin.page.locator(f"{PANEL} [data-mkg-action='panel monitor']").click()
    plugin.page.locator(f"{TAB} .mkg-metric-panel").wait_for()
    plugin.page.locator(f"{PANEL} [data-mkg-action='graph small']").click()
    plugin.wait_for_graph(TAB, "Sequential")
    plugin.focus_notebook()
    plugin.notebook.run(3)
    plugin.wait_for_rows(SMALL, monitor, graph)


@pytest.mark.nightly
def test_the_panel_wakes_a_kernel_on_request(plugin: LabPlugin) -> None:
    open_notebook(plugin, "import torch\nlone = torch.nn.Linear(2, 2)")
    plugin.start(SHOW_PANEL)
    assert not plugin.notebook.value("'modulekg_widgets' in __import__('sys').modules")
    plugin.page.get_by_role("button", name="Inspect this kernel").click()
    plugin.wait_for_rows("model | lone | Linear | 6 parameters")
    assert not plugin.notebook.value("'modulekg_widgets' in globals()")


def test_the_panel_follows_the_focused_notebook(plugin: LabPlugin) -> None:
    open_notebook(plugin, SETUP)
    plugin.start(SHOW_PANEL)
    plugin.wait_for_rows(SMALL)
    first = plugin.page.evaluate("() => window.jupyterapp.shell.currentWidget.context.path")
    open_notebook(plugin, SETUP + SECOND + "\ndel small")
    plugin.wait_for_rows("model | wide | ModuleList | 60 parameters")
    plugin.notebook.command("docmanager:open", path=first)
    plugin.wait_for_rows(SMALL)


@pytest.mark.nightly
def test_a_name_that_is_gone_is_said(plugin: LabPlugin) -> None:
    open_notebook(plugin, SETUP)
    plugin.start(SHOW_PANEL)
    plugin.wait_for_rows(SMALL)
    plugin.notebook.execute("taken = small; del small")
    plugin.wait_for_rows("model | taken | Sequential | 23 parameters")
    plugin.start(SHOW_OBJECT, kind="graph", name="small")
    note = plugin.tab(".mkg-lab-note[role=alert]")
    note.wait_for()
    assert "no longer has “small”" in note.inner_text()
    plugin.notebook.screenshot("lab-gone")
    plugin.focus_notebook()
    plugin.notebook.execute("small = taken")
    plugin.page.locator(".lm-TabBar-tab", has_text="small").click()
    note.get_by_role("button", name="Try again").click()
    plugin.wait_for_graph(TAB, "Sequential")


def test_masks_ask_for_inputs_and_remember_them(plugin: LabPlugin) -> None:
    open_notebook(plugin, SETUP)
    for text in ("", "torch.randn(2, 4)  # two rows"):
        plugin.start(EDIT_MASKS)
        field = plugin.page.locator(".jp-Dialog input")
        field.wait_for()
        assert field.input_value() == ""
        field.fill(text)
        plugin.page.locator(".jp-Dialog .jp-mod-accept").click()
    plugin.tab(".mkg-mask-editor").wait_for()
    plugin.notebook.screenshot("lab-masks")
    plugin.start(EDIT_MASKS)
    field.wait_for()
    assert field.input_value() == "torch.randn(2, 4)  # two rows"
    field.fill("nowhere")
    plugin.page.locator(".jp-Dialog .jp-mod-accept").click()
    note = plugin.tab(".mkg-lab-note[role=alert]")
    note.wait_for()
    assert "NameError" in note.inner_text()


@pytest.mark.nightly
def test_a_console_is_followed_too(plugin: LabPlugin) -> None:
    open_notebook(plugin, SETUP)
    plugin.start(SHOW_PANEL)
    plugin.wait_for_rows(SMALL)
    plugin.page.evaluate(CONSOLE)
    plugin.notebook.wait_for_kernel()
    plugin.page.locator(".jp-CodeConsole-input .cm-content").click()
    plugin.page.keyboard.insert_text(LONE)
    plugin.page.keyboard.press("Shift+Enter")
    plugin.wait_for_rows("model | lone | Linear | 12 parameters")
    plugin.start(EXPLORE)
    plugin.wait_for_graph(TAB, "Linear")
    plugin.focus_notebook()
    plugin.wait_for_rows(SMALL)


@pytest.mark.nightly
def test_a_restarted_kernel_has_nothing(plugin: LabPlugin) -> None:
    open_notebook(plugin, SETUP)
    plugin.start(SHOW_PANEL)
    plugin.wait_for_rows(SMALL)
    plugin.notebook.pause(1_500)  # JupyterLab's debugger writes an error where it has no answer yet
    plugin.page.evaluate(f"() => {{ void {KERNEL}.restart(); }}")
    plugin.notebook.wait_for(f"() => document.querySelector('{PANEL}').dataset.mkgKnown === 'nothing'")
    plugin.wait_for_rows()
    plugin.notebook.wait_for_kernel()
    plugin.notebook.run(0)
    plugin.wait_for_rows(SMALL)


@pytest.mark.nightly
def test_launcher_and_palette_have_the_commands(plugin: LabPlugin) -> None:
    open_notebook(plugin, SETUP)
    plugin.notebook.command("launcher:create")
    cards = plugin.page.locator(".jp-LauncherCard[data-category=ModuleKG]")
    cards.first.wait_for()
    labels = [
        "Explore a Model of the Active Notebook",
        "Edit Masks of a Model of the Active Notebook…",
        "Open a Saved Graph or Plan…",
        "Show the ModuleKG Panel",
    ]
    assert cards.all_inner_texts() == labels
    plugin.notebook.screenshot("lab-launcher")
    cards.first.click()
    plugin.wait_for_graph(TAB, "Sequential")
    plugin.notebook.command("apputils:activate-command-palette")
    found = plugin.page.locator(".lm-CommandPalette-item[data-command^='modulekg-widgets:']")
    assert found.count() == 5
    plugin.page.locator("#modal-command-palette input").press("Escape")
    found.first.wait_for(state="hidden")
