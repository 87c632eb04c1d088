"""What the page, the kernel and the saved notebook say of a widget is one thing, and keys in it are the widget's."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from browser.graph import ROOT, GraphPage
from browser.keys import CELLS, press_after_clicks
from browser.page import KernelError, NotebookPage
from browser.plugin import VIEWER, LabPlugin
from browser.saved import SAVE, picture_in
from browser.untrusted import notebook_with, trust_and_reload

BEFORE = Path(__file__).parents[1] / "files_of_before"
SETUP = """
import torch
from torch import nn
import modulekg_widgets as mk
x = torch.zeros(1, 4)
model = nn.Sequential(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2)))
monitor = mk.Monitor(model, {nn.Linear: ["WeightNorm"]})
kg = mk.KnowledgeGraph()
kg.add_model(model, name="net")
"""
WIDGETS = {
    "mk.ModelGraph(model, x, selected='0.0')": (ROOT, ".mkg-side-panel"),
    "mk.MaskEditor(model, x)": (".mkg-mask-editor", ".mkg-mask-counters"),
    "mk.MetricPanel(monitor)": (".mkg-metric-panel", ".mkg-status"),
    "mk.ForwardPlayer(model, x)": (".mkg-forward-player", ".mkg-forward-details"),
    "mk.KnowledgeExplorer(kg)": (".mkg-knowledge-explorer", ".mkg-side-panel"),
    "mk.Workbench(model, x)": (".mkg-workbench", ".mkg-side-panel"),
}
OPEN = f"""() => Array.from(document.querySelectorAll('{ROOT} [role=treeitem][aria-expanded=true]'),
  row => row.dataset.mkgPath).filter(path => path !== '').sort()"""
NOTICE = ".mkg-outdated"


@pytest.mark.parametrize("code", WIDGETS)
def test_no_key_after_a_click_in_a_widget_deletes_its_cell(notebook: NotebookPage, code: str) -> None:
    notebook.open([SETUP, code, "1"])
    notebook.run(0)
    notebook.run(1)
    selector, part = WIDGETS[code]
    root = notebook.page.locator(selector).first
    root.wait_for()
    root.locator(part).first.wait_for(state="attached")
    root.evaluate("root => root.scrollIntoView({ block: 'start' })")
    notebook.pause(300)
    assert press_after_clicks(root) > 0
    notebook.page.locator(".jp-InputPrompt").nth(2).click()
    notebook.page.keyboard.press("d")
    notebook.page.keyboard.press("d")  # a click in the notebook gives it its keys back
    notebook.wait_for(f"() => ({CELLS})() === 2")


def test_expanded_is_what_is_open(notebook: NotebookPage) -> None:
    graph = GraphPage.show(notebook, "resnet18")

    def agrees() -> list[str]:
        notebook.pause(400)
        opened = notebook.page.evaluate(OPEN)
        notebook.wait_for_value("sorted(graph.expanded)", opened)
        return opened

    agrees()  # what fits
    notebook.execute("graph.expanded = ['layer2.1']")
    assert agrees() == ["layer2", "layer2.1"]
    graph.find('[role=treeitem][data-mkg-path="layer2"] .mkg-twisty').first.click()
    assert agrees() == []
    graph.find('[role=treeitem][data-mkg-path="layer2"] .mkg-twisty').first.click()
    assert agrees() == ["layer2", "layer2.1"]
    notebook.execute("graph.selected = 'layer4.0.conv1'")
    assert agrees() == ["layer2", "layer2.1", "layer4", "layer4.0"]
    notebook.execute("graph.collapse()")
    assert agrees() == []


CHANGES = {
    "mk.plan(mk.trace(model, x), target={'params': 0.6}).cut(model)": "layers or sizes",
    "receipt = mk.plan(mk.trace(model, x), target={'params': 0.6}).mask(model)": "weights",
    "o = torch.optim.SGD(model.parameters(), 0.1); model(x).sum().backward(); o.step()": "weights",
}


@pytest.mark.parametrize("change", CHANGES)
def test_widgets_say_that_their_model_has_changed(notebook: NotebookPage, change: str) -> None:
    shows = ["graph = mk.ModelGraph(model, x)\ngraph", "mk.MaskEditor(model, x)", "mk.ForwardPlayer(model, x)"]
    notebook.open([SETUP, *shows, change])
    for index in range(4):
        notebook.run(index)
    roots = [ROOT, ".mkg-mask-editor", ".mkg-forward-player"]
    for root in roots:
        notebook.page.locator(root).first.wait_for()
    assert notebook.page.locator(NOTICE).count() == 0
    notebook.run(4)
    notebook.page.locator(NOTICE).first.wait_for()
    for place, root in enumerate(roots):
        area = notebook.page.locator(root).first
        area.evaluate("root => root.scrollIntoView({ block: 'start' })")
        notice = area.locator(NOTICE)
        if place == 0 and CHANGES[change] == "weights":  # the graph shows no values
            assert notice.count() == 0
            continue
        notice.wait_for()
        assert f"Outdated: the model's {CHANGES[change]} have changed" in notice.inner_text()
        if place == roots.index(".mkg-mask-editor"):
            for theme in ("JupyterLab Light", "JupyterLab Dark"):
                notebook.command("apputils:change-theme", theme=theme)
                notebook.pause(800)
                notebook.screenshot(f"outdated-{CHANGES[change].split()[0]}-{theme.split()[1].lower()}")
            notebook.command("apputils:change-theme", theme="JupyterLab Light")
        notice.locator("button").click()
        notice.wait_for(state="detached")
    sizes = "[len(e) for e in graph.payload['entities']['tensors']], graph.error"
    assert notebook.value(f"({sizes})")[1] is None


def svg_of(notebook: NotebookPage, cell: int) -> str:
    path = notebook.page.evaluate("() => window.jupyterapp.shell.currentWidget.context.path")
    return picture_in(notebook.server.notebooks / path, cell)


def test_a_saved_notebook_has_the_last_pictures(notebook: NotebookPage) -> None:
    train = "with monitor:\n    for step in range(4):\n        model(x).sum().backward()\n        monitor.track(step)"
    notebook.open(
        [SETUP, "panel = mk.MetricPanel(monitor)\npanel", "graph = mk.ModelGraph(model, expanded=[])\ngraph", train]
    )
    for index in range(3):
        notebook.run(index)
    notebook.wait_for(f"() => document.querySelector('{ROOT}[data-mkg-ready=true]') !== null")
    notebook.page.evaluate(SAVE)
    assert "no values yet" in svg_of(notebook, 1)
    notebook.page.evaluate(f"() => {{ document.querySelector('{ROOT}').dataset.kept = 'yes'; }}")
    notebook.run(3)
    notebook.page.evaluate(SAVE)
    assert "no values yet" not in svg_of(notebook, 1)
    before = svg_of(notebook, 2)
    notebook.page.locator(f'{ROOT} [role=treeitem][data-mkg-path="0"] .mkg-twisty').first.click()
    notebook.wait_for_value("graph.expanded", ["0"])
    notebook.page.evaluate(SAVE)
    for _ in range(100):
        if svg_of(notebook, 2) != before:
            break
        notebook.pause(100)
    assert "ReLU" in svg_of(notebook, 2)
    assert notebook.page.locator(f"{ROOT}[data-kept=yes]").count() == 1  # the view is the one of before


@pytest.mark.parametrize("name", ["flow.modulekg.json", "saved.modulekg.json", "model.json"])
def test_a_graph_of_before_opens(plugin: LabPlugin, name: str) -> None:
    plugin.notebook.open(["1"])
    shown = name if ".modulekg." in name else name.replace(".json", ".modulekg.json")
    shutil.copy(BEFORE / name, plugin.notebook.server.notebooks / shown)
    plugin.notebook.command("docmanager:open", path=shown)
    title = json.loads((BEFORE / name).read_text("utf-8"))["title"]
    plugin.wait_for_graph(VIEWER, title)
    assert plugin.page.locator(f"{VIEWER} .mkg-message").count() == 0
    plugin.notebook.screenshot(f"before-{name}")


@pytest.mark.parametrize(
    "name", ["resnet18.plan.json", "convolutions.plan.json", "tagger.plan.json", "linears.plan.json"]
)
def test_a_plan_of_before_opens(plugin: LabPlugin, name: str) -> None:
    plugin.notebook.open(["1"])
    shown = name.replace(".json", ".modulekg.json")
    shutil.copy(BEFORE / name, plugin.notebook.server.notebooks / shown)
    plugin.notebook.command("docmanager:open", path=shown)
    plugin.page.locator(f"{VIEWER} .mkg-plan-view tbody tr").first.wait_for()


def test_a_file_of_masks_of_before_opens(plugin: LabPlugin) -> None:
    plugin.notebook.open(["1"])
    shutil.copy(BEFORE / "masks.pth", plugin.notebook.server.notebooks / "masks.pth")
    plugin.notebook.command("docmanager:open", path="masks.pth")
    plugin.page.locator(f"{ROOT}.mkg-of-file[data-mkg-ready=true]").wait_for()


WRITTEN_ALONE = {  # for other programs; JupyterLab's own viewers show them
    "zoo.csv": (".jp-CSVViewer", None),
    "zoo.dot": (".jp-FileEditor", "digraph ModuleKG"),
    "zoo.edges": (".jp-FileEditor", "Sequential296 Linear628"),
    "zoo.gexf": (".jp-FileEditor", "<gexf xmlns"),
}


@pytest.mark.parametrize("name", WRITTEN_ALONE)
def test_a_graph_for_other_programs_opens_as_jupyterlab_shows_it(plugin: LabPlugin, name: str) -> None:
    plugin.notebook.open(["1"])
    shutil.copy(BEFORE / name, plugin.notebook.server.notebooks / name)
    plugin.notebook.command("docmanager:open", path=name)
    selector, words = WRITTEN_ALONE[name]
    shown = plugin.page.locator(f"{selector}:visible")
    shown.wait_for()
    if words is not None:
        shown.get_by_text(words).first.wait_for()
    assert plugin.page.locator(f"{VIEWER}:visible").count() == 0
    plugin.focus_notebook()
    with pytest.raises(KernelError, match=r"a graph is read from \.graphml"):
        plugin.notebook.execute(f"import modulekg_widgets as mk; mk.load_graph({name!r})")


def test_a_notebook_of_before_opens_with_its_graph(notebook: NotebookPage) -> None:
    saved = json.loads((BEFORE / "saved_notebook.json").read_text("utf-8"))
    (widgets,) = saved["metadata"]["widgets"].values()
    (id,) = [id for id, one in widgets["state"].items() if one["model_name"] == "ModelGraphModel"]
    models = widgets["state"]
    layout = models[id]["state"]["layout"].removeprefix("IPY_MODEL_")  # that file has the graph alone
    base = {"model_module": "@jupyter-widgets/base", "model_module_version": "2.0.0"}
    models[layout] = {"model_name": "LayoutModel", **base, "state": {}}
    notebook.open(content=notebook_with(models, [id]))
    trust_and_reload(notebook)
    notebook.wait_for(f"() => document.querySelector('{ROOT}[data-mkg-ready=true]') !== null")
    assert "cannot be drawn" not in notebook.page.locator(ROOT).inner_text()


RECORDINGS = [f"mk.MetricPanel({str(BEFORE / f'run.{ending}')!r})" for ending in ("jsonl", "csv", "parquet")]
GRAPHS = [
    f"mk.KnowledgeExplorer(mk.load_graph({str(BEFORE / f'zoo.{ending}')!r}))"
    for ending in ("graphml", "cyjs", "jsonld")
]
STORE = f"""
import shutil
shutil.copy({str(BEFORE / "zoo.db")!r}, "zoo_of_before.db")
mk.KnowledgeExplorer(mk.KnowledgeGraph("sqlite:///zoo_of_before.db"))
"""


def test_recordings_graphs_and_stores_of_before_are_shown(notebook: NotebookPage) -> None:
    cells = [SETUP, *RECORDINGS, *GRAPHS, STORE]
    notebook.open(cells)
    for index in range(len(cells)):
        notebook.run(index)
    for index in range(1, len(cells)):
        area = notebook.output_area(index)
        area.evaluate("area => area.scrollIntoView({ block: 'start' })")
        area.locator(".mkg-widget").first.wait_for()
        notebook.pause(500)
        text = area.inner_text()
        assert "cannot be drawn" not in text
        assert "another version" not in text
        assert "WeightNorm" in text if index <= len(RECORDINGS) else "linears" in text
