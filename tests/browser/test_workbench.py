"""Workbench in JupyterLab: one click is seen in all of its parts, and Python has it."""

from __future__ import annotations

from browser.fixtures import in_shared_page
from browser.graph import ITEMS, GraphPage
from browser.graph import READY as GRAPH_READY
from browser.graph import ROOT as GRAPH
from browser.knowledge import READY as EXPLORER_READY
from browser.knowledge import ROOT as EXPLORER
from browser.knowledge import ExplorerPage
from browser.masks import HIDDEN, KERNEL, ROOT, SETUP, MasksPage
from browser.metrics import ROOT as PANEL
from browser.metrics import MetricsPage
from browser.page import NotebookPage

BENCH = ".mkg-workbench"
MONITORED = f"""{SETUP}
monitor = mk.Monitor(model, {{nn.Linear: ["WeightNorm"]}})
with monitor:
    for step in range(3):
        model(torch.randn(4, 8)).square().mean().backward()
        monitor.track(step)
"""
SHOW = "bench = mk.Workbench(model, x, monitor=monitor)\ngraph, editor = bench.graph, bench.editor\nbench"
ALL_READY = f"""() => [{GRAPH!r}, {ROOT!r}, {PANEL!r}].every(
  root => document.querySelector('{BENCH} ' + root + '[data-mkg-ready]') !== null)"""
COLOR = f"path => {ITEMS}.find(item => item.id === path).fill"
LIT = f"""() => Array.from(document.querySelectorAll('{GRAPH} .mkg-active-axis [data-mkg-target] bdi'),
  name => name.textContent)"""


def show(notebook: NotebookPage) -> tuple[GraphPage, MasksPage, MetricsPage]:
    notebook.open([MONITORED, SHOW])
    notebook.run(0)
    notebook.run(1, until=ALL_READY)
    return GraphPage(notebook), MasksPage(notebook), MetricsPage(notebook)


@in_shared_page
def test_selection_axis_masks_and_colors_are_shared(notebook: NotebookPage) -> None:
    graph, masks, panel = show(notebook)
    graph.find('[role=treeitem][data-mkg-path="2"]').click()
    graph.wait_for_selection("2")
    panel.find(".mkg-metric-modules").scroll_into_view_if_needed()  # out of sight it draws nothing
    panel.wait_for_selected("2")
    notebook.wait_for_value("[bench.graph.selected, editor.selected, bench.panel.selected]", ["2", "2", "2"])
    panel.row("0").locator("input").press("Enter")
    notebook.wait_for(f"() => document.querySelector('{GRAPH} .mkg-side-panel').dataset.mkgPath === '0'")

    # while the kernel is busy, the members of an axis light up and the dropped share colors the graph
    notebook.execute("bench.graph.color_by = 'pruned'")
    notebook.page.evaluate(f"() => {{ void {KERNEL}.requestExecute({{ code: 'import time; time.sleep(4)' }}); }}")
    before = notebook.page.evaluate(COLOR, "2")
    masks.drag(HIDDEN, 0, 11)
    notebook.wait_for(f"before => ({COLOR})('2') !== before", before, timeout=2500)
    notebook.wait_for(f"() => ({LIT})().length === 3", timeout=2500)
    assert notebook.page.evaluate(LIT) == ["0.weight", "0.bias", "2.weight"]
    masks.wait_for_dropped({HIDDEN: list(range(12))})
    notebook.wait_for_value("[editor.axis, bench.graph.axis]", [HIDDEN, HIDDEN])
    notebook.screenshot("workbench")

    masks.wait_for_report("it runs")
    masks.button("cut").click()
    masks.button("confirm").click()
    notebook.wait_for_value("[editor.stage, list(model[0].weight.shape)]", ["cut", [12, 8]])
    notebook.wait_for(
        f"() => document.querySelector('{GRAPH}').textContent.includes('24 → 12') === false && "
        f"document.querySelector('{GRAPH}[data-mkg-ready=\"true\"]') !== null"
    )
    left = 8 * 12 + 12 + 12 * 40 + 40 + 40 * 3 + 3
    notebook.wait_for_value("bench.graph.payload['columns']['params'][0]", left)
    masks.button("undo-model").click()
    notebook.wait_for_value("mk.weight_fingerprint(model) == weights", True)


@in_shared_page
def test_a_knowledge_graph_stands_beneath_and_shares_the_selection(notebook: NotebookPage) -> None:
    show = "bench = mk.Workbench(model, x, kg=kg)\ngraph, explorer = bench.graph, bench.explorer\nbench"
    notebook.open([f"{SETUP}\nkg = mk.KnowledgeGraph()\nkg.add_model(model, name='ours')", show])
    notebook.run(0)
    notebook.run(1, until=f"() => ({GRAPH_READY})() && ({EXPLORER_READY})()")
    graph, explorer = GraphPage(notebook), ExplorerPage(notebook)
    graph.find('[role=treeitem][data-mkg-path="2"]').click()
    digest = notebook.value("mk.fingerprint(model[2]).hexdigest")
    explorer.wait_for_selection(digest)

    # and back, while the kernel is busy
    explorer.view("ranking")
    notebook.page.evaluate(f"() => {{ void {KERNEL}.requestExecute({{ code: 'import time; time.sleep(3)' }}); }}")
    name = notebook.page.locator(f"{EXPLORER} [role=row]", has_text="Linear").last
    name.click()
    notebook.wait_for(
        f"before => document.querySelector('{GRAPH} .mkg-side-panel').dataset.mkgPath !== before", "2", timeout=2500
    )
    notebook.screenshot("workbench-knowledge")
    chosen = "mk.fingerprint(model.get_submodule(graph.selected)).hexdigest == explorer.selected"
    notebook.wait_for_value(f"graph.selected != '2' and {chosen}", True)


@in_shared_page
def test_the_panes_are_resized_and_closing_leaves_nothing(notebook: NotebookPage) -> None:
    notebook.open([MONITORED, SHOW])
    notebook.run(0)
    comms = notebook.value("len(__import__('comm').get_comm_manager().comms)")
    notebook.run(1, until=ALL_READY)
    handle = notebook.page.locator(f"{BENCH} [role=separator]").first
    handle.focus()
    before = notebook.page.locator(GRAPH).bounding_box()
    handle.press("ArrowDown")
    handle.press("ArrowDown")
    notebook.wait_for_value("round(bench.split['rows'], 2)", 0.6)
    after = notebook.page.locator(GRAPH).bounding_box()
    assert before is not None
    assert after is not None
    assert after["height"] > before["height"] + 50
    notebook.execute("bench.split = {'rows': 0.3, 'columns': 0.4}")
    notebook.wait_for(f"() => document.querySelector('{BENCH} [role=separator]').ariaValueNow === '30'")
    notebook.execute("bench.close()")
    notebook.wait_for(f"() => document.querySelector('{BENCH} .mkg-graph-canvas') === null")
    assert notebook.value("len(__import__('comm').get_comm_manager().comms)") == comms


@in_shared_page
def test_widgets_in_separate_cells_are_linked_in_the_page(notebook: NotebookPage) -> None:
    notebook.open(
        [
            SETUP,
            "graph, editor = mk.ModelGraph(model, x), mk.MaskEditor(model, x)\nlink = mk.link(graph, editor)\ngraph",
            "editor",
        ]
    )
    notebook.run(0)
    notebook.run(1, until=GRAPH_READY)
    notebook.run(2, until=f"() => document.querySelector('{ROOT}[data-mkg-ready]') !== null")
    masks = MasksPage(notebook)
    masks.click(HIDDEN, 4)
    notebook.wait_for_value("[graph.axis, editor.axis]", [HIDDEN, HIDDEN])
    notebook.wait_for(f"() => ({LIT})().length === 3")
    notebook.execute("graph.axis = '2.out'")
    notebook.wait_for_value("editor.axis", "2.out")
    notebook.execute("link.close()")
    masks.click(HIDDEN, 5)
    notebook.wait_for_value("[graph.axis, editor.axis]", ["2.out", HIDDEN])
