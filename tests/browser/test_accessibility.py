"""Nothing serious is found by axe-core in any widget, in the light and in the dark theme."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from browser.axe import THEMES, assert_accessible, findings, set_theme
from browser.fixtures import in_shared_page
from browser.graph import GraphPage
from browser.knowledge import ExplorerPage
from browser.masks import HIDDEN, KERNEL, WIDE, MasksPage
from browser.masks import ROOT as MASKS
from browser.metrics import MetricsPage
from browser.page import VIEWPORT, NotebookPage
from browser.plugin import PANEL, SHOW_PANEL, VIEWER, LabPlugin
from browser.test_forward_player import PlayerPage
from browser.test_mask_blocks import INNER, OTHER, OUTER, BlocksPage
from browser.test_mask_blocks import SETUP as BLOCKS
from browser.test_mask_blocks import SHOW as SHOW_BLOCKS
from browser.test_workbench import show as show_workbench

TORCH = """
import torch
import torchvision
from IPython.display import display
from torch import nn
import modulekg_widgets as mk
torch.manual_seed(0)
torch.set_num_threads(1)
"""

HIGH = {"width": 1280, "height": 1800}


@pytest.fixture
def themed(notebook: NotebookPage) -> Iterator[NotebookPage]:
    """A notebook page so high that nothing is clipped; it has the light theme and its size again after the test."""
    notebook.page.set_viewport_size(HIGH)
    yield notebook
    set_theme(notebook, THEMES[0])
    notebook.page.set_viewport_size(VIEWPORT)


SPOIL = """root => {
  const button = document.createElement('button');
  const faint = document.createElement('p');
  faint.textContent = 'too faint to be read';
  faint.style.cssText = 'color: #aaaaaa; background: #ffffff';
  document.querySelector(root).append(button, faint);
}"""


@in_shared_page
def test_what_is_wrong_is_found(themed: NotebookPage) -> None:
    MasksPage.show(themed)
    assert findings(themed.page) == []
    themed.page.evaluate(SPOIL, MASKS)
    found = findings(themed.page)
    assert sorted(text.partition(":")[0] for text in found) == ["button-name", "color-contrast"]
    assert "too faint to be read" in "".join(found)


GRAPH = "graph = mk.ModelGraph(torchvision.models.resnet18(), torch.zeros(1, 3, 64, 64))\ndisplay(graph)"


@pytest.mark.nightly
@in_shared_page
def test_the_graph(themed: NotebookPage) -> None:
    graph = GraphPage.show_code(themed, TORCH, GRAPH)
    assert_accessible(themed, "graph hierarchy")
    themed.execute("graph.selected, graph.color_by = 'layer1.0.conv1', 'params'")
    graph.wait_for_selection("layer1.0.conv1")
    themed.execute("graph.axis = 'layer1.0.conv1.out'")
    graph.find(".mkg-active-axis").first.wait_for()
    assert_accessible(themed, "graph with a selection and an axis")
    for view in ("dataflow", "deduplicated"):
        graph.find(".mkg-view select").select_option(view)
        themed.wait_for_value("graph.view", view)
        assert_accessible(themed, f"graph {view}")
    graph.find(".mkg-search input").first.fill("type:Conv2d")
    themed.wait_for_value("graph.query", "type:Conv2d")
    assert_accessible(themed, "graph searched")


TRAINED = f"""{TORCH}
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))
monitor = mk.Monitor(model, {{nn.Linear: ["OutputSndNorm", "OutputHistogram", "WeightNorm"]}})
optimizer = torch.optim.SGD(model.parameters(), 0.01)
with monitor:
    for step in range(30):
        loss = model(torch.randn(8, 16)).square().mean() * (float("nan") if step == 29 else 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log({{"loss": loss.item()}})
        monitor.track(step)
panel = mk.MetricPanel(monitor, metric="OutputSndNorm")
"""


@pytest.mark.nightly
@in_shared_page
def test_the_metric_panel(themed: NotebookPage) -> None:
    themed.open([TRAINED, "display(panel)"])
    themed.run(0)
    panel = MetricsPage(themed)
    panel.start(1)
    for view in ("grid", "lines", "heatmap", "histogram"):
        themed.execute(f"panel.metric = {'OutputHistogram' if view == 'histogram' else 'OutputSndNorm'!r}")
        panel.choose("metric-view", view)
        panel.wait_until_painted(".mkg-metric-stage canvas")
        assert_accessible(themed, f"metrics {view}")
    themed.execute("panel.selected, panel.paused = '2', True")
    panel.wait_for_selected("2")
    assert_accessible(themed, "metrics paused")


@pytest.mark.nightly
@in_shared_page
def test_the_mask_editor(themed: NotebookPage) -> None:
    masks = MasksPage.show(themed)
    assert_accessible(themed, "masks empty")
    masks.click(HIDDEN, 3)
    masks.drag(WIDE, 2, 17)
    masks.find(f'button[aria-label="Lock {HIDDEN}"]').click()
    masks.find(".mkg-mask-more").first.click()
    masks.wait_for_report("Dry run passed")
    assert_accessible(themed, "masks with a draft")
    masks.find("input[aria-label='Find channel groups']").fill("nothing is called so")
    assert_accessible(themed, "masks with an empty search")
    masks.find("input[aria-label='Find channel groups']").fill("")
    masks.button("cut").click()
    masks.find("[role=dialog]").wait_for()
    assert_accessible(themed, "masks with the dialog")
    masks.button("cancel").click()
    masks.button("mask").click()
    themed.wait_for_value("editor.stage", "masked")
    assert_accessible(themed, "masks masked")


@pytest.mark.nightly
def test_the_blocks_of_a_mask_editor(themed: NotebookPage) -> None:
    masks = BlocksPage.show(themed, BLOCKS, SHOW_BLOCKS)
    masks.find(f'button[aria-label="Blocks in {OUTER}"]').click()
    masks.find(masks.toggle(INNER)).click()
    masks.find(masks.toggle(OUTER)).click()
    masks.find(f'[data-mkg-block="{OTHER}"] .mkg-mask-name').click()
    masks.wait_for_report("Dry run passed")
    assert_accessible(themed, "masks with blocks that go")


@pytest.mark.nightly
def test_a_mask_editor_without_its_kernel(themed: NotebookPage) -> None:
    masks = MasksPage.show(themed)
    masks.drag(WIDE, 2, 17)
    masks.wait_for_report("Dry run passed")
    themed.page.evaluate(f"() => {{ void {KERNEL}.restart(); }}")
    themed.page.locator(f"{MASKS}.mkg-is-disconnected").wait_for()
    assert_accessible(themed, "masks disconnected")
    themed.wait_for_kernel()


PLAYER = """
model = nn.Sequential(nn.Conv2d(3, 80, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3920, 10))
player = mk.ForwardPlayer(model, torch.randn(4, 3, 16, 16))
"""


@pytest.mark.nightly
@in_shared_page
def test_the_forward_player(themed: NotebookPage) -> None:
    player = PlayerPage.show(themed, TORCH + PLAYER, "display(player)")
    assert_accessible(themed, "player at the start")
    player.find('[data-mkg-step="1"]').click()
    player.wait_for_maps(1)
    player.find(".mkg-forward-map").nth(3).click()
    player.find(".mkg-forward-large").wait_for()
    assert_accessible(themed, "player with maps")
    player.find('[data-mkg-step="5"]').click()
    player.wait_for_maps(5)
    assert_accessible(themed, "player with classes")
    themed.execute("player.step, player.hide_shapes = 1, True")
    player.wait_for_step(1)
    player.find(".mkg-forward-guess").fill("4, 80, 12")
    player.find(".mkg-forward-check-guess").click()
    assert player.find(".mkg-forward-verdict").inner_text().startswith("Incorrect")
    assert_accessible(themed, "player with its quiz")


@pytest.mark.nightly
@in_shared_page
def test_the_knowledge_explorer(themed: NotebookPage) -> None:
    explorer = ExplorerPage.show(themed)
    explorer.row(explorer.item_of("Family:Net")).locator(".mkg-twisty").click()
    themed.execute("explorer.selected, explorer.color_by = digest(Block(8)), 'uses'")
    explorer.wait_for_selection(themed.value("digest(Block(8))"))
    assert_accessible(themed, "explorer with a structure")
    themed.execute("explorer.query = 'class:Block models>1'")
    explorer.find(".mkg-kg-result").first.wait_for()
    assert_accessible(themed, "explorer searched")
    themed.execute("explorer.query = 'nothing of this name'")
    explorer.find(".mkg-kg-nothing").first.wait_for()
    assert_accessible(themed, "explorer with nothing found")
    themed.execute("explorer.query, explorer.selected = '', 'Model:net2'")
    explorer.wait_for_selection("Model:net2")
    explorer.find(".mkg-kg-compare-with").click()
    assert_accessible(themed, "explorer with a list of models")
    themed.page.keyboard.press("Enter")
    explorer.find(".mkg-kg-answer").wait_for()
    assert_accessible(themed, "explorer with a comparison")
    for view in ("ranking", "frequency"):  # the other tables are built as the ranking is, the matrix is a canvas
        explorer.view(view)
        assert_accessible(themed, f"explorer {view}")


@in_shared_page
def test_the_workbench(themed: NotebookPage) -> None:
    graph, masks, panel = show_workbench(themed)
    graph.find('[role=treeitem][data-mkg-path="2"]').click()
    graph.wait_for_selection("2")
    panel.wait_for_selected("2")
    masks.click(HIDDEN, 3)
    masks.wait_for_report("Dry run passed")
    assert_accessible(themed, "workbench")


SAVED = """
small = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
mk.ModelGraph(small).export("read.modulekg.json")
graph = mk.trace(small, torch.randn(1, 4))
plan = mk.plan(graph, ratio=0.5)
plan.save("read-plan.modulekg.json")
monitor = mk.Monitor(small, {nn.Linear: ["OutputHistogram"]})
"""


@pytest.mark.nightly
def test_the_side_panel_and_the_viewers_of_files(themed: NotebookPage) -> None:
    plugin = LabPlugin(themed)
    themed.open([TORCH + SAVED])
    themed.run(0)
    plugin.start(SHOW_PANEL)
    plugin.page.locator(f"{PANEL} li[data-mkg-kind=plan]").wait_for()
    assert_accessible(themed, "side panel", f"{PANEL} .mkg-widget, {PANEL}.mkg-widget")
    themed.command("docmanager:open", path="read.modulekg.json")
    plugin.wait_for_graph(VIEWER, "Sequential")
    assert_accessible(themed, "viewer of a graph", VIEWER)
    themed.command("docmanager:open", path="read-plan.modulekg.json")
    plugin.page.locator(f"{VIEWER} .mkg-plan-view").wait_for()
    assert_accessible(themed, "viewer of a plan", VIEWER)
    plugin.focus_notebook()
