"""Workbench in JupyterLab: one click is seen in all of its parts, and Python has it."""

from __future__ import annotations

import pytest

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
from browser.page import VIEWPORT, NotebookPage

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
    graph = GraphPage(notebook)
    graph.open_panes()
    return graph, MasksPage(notebook), MetricsPage(notebook)


@in_shared_page
@pytest.mark.gate
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

    masks.wait_for_report("Dry run passed")
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


FILLS = f"() => Object.fromEntries({ITEMS}.map(item => [item.id, item.fill]))"
LEGEND = (
    f"() => [...document.querySelectorAll('{GRAPH} .mkg-legend')].map(one => one.hidden ? '' : one.textContent).join()"
)


@pytest.mark.nightly
@in_shared_page
def test_the_graph_has_its_usual_colors_until_something_is_pruned(notebook: NotebookPage) -> None:
    _, masks, _ = show(notebook)
    notebook.wait_for(f"() => {ITEMS}.length > 5")
    swatches = f"() => document.querySelectorAll('{GRAPH} [role=treeitem] .mkg-swatch:not([hidden])').length"
    notebook.execute("bench.graph.color_by = 'none'")
    notebook.wait_for(f"() => document.querySelector('{GRAPH} .mkg-color-by select').value === 'none'")
    usual = notebook.page.evaluate(FILLS)
    notebook.execute("bench.graph.color_by = 'pruned'")
    notebook.wait_for(f"() => document.querySelector('{GRAPH} .mkg-color-by select').value === 'pruned'")
    assert [notebook.page.evaluate(FILLS), notebook.page.evaluate(LEGEND)] == [usual, ""]
    assert "no value" not in (notebook.page.locator(GRAPH).text_content() or "")
    assert notebook.page.evaluate(swatches) == 0

    def wait_for_colored(names: list[str], legend: str) -> None:
        notebook.wait_for(
            f"""([usual, names, legend]) => {{
              const fills = ({FILLS})();
              return Object.keys(fills).filter(id => fills[id] !== usual[id]).join() === names.join() &&
                ({LEGEND})() === legend;
            }}""",
            [usual, names, legend],
        )

    # a draft colors what loses parameters, and no more than that; the legend says so
    said = "share pruned0 %50 %No color: nothing removed"
    masks.drag(HIDDEN, 0, 11)
    wait_for_colored(["0", "2"], said)

    # so does a cut, whose draft is empty, until it is undone
    masks.wait_for_report("Dry run passed")
    masks.button("cut").click()
    masks.button("confirm").click()
    notebook.wait_for_value("[editor.stage, editor.plan]", ["cut", None])
    masks.wait_for_after("params", 8 * 12 + 12 + 12 * 40 + 40 + 40 * 3 + 3)
    wait_for_colored(["0", "2"], said)
    notebook.screenshot("workbench-cut")
    masks.button("undo-model").click()
    notebook.wait_for_value("[editor.stage, editor.uncut]", ["", {}])
    notebook.execute("editor.plan = None")
    wait_for_colored([], "")


# what of each part is to be seen without a click
SEEN = {
    GRAPH: [".mkg-graph-canvas", ".mkg-toolbar"],
    ROOT: [".mkg-mask-check", ".mkg-mask-outcome", ".mkg-mask-counters", ".mkg-mask-ends", ".mkg-mask-row canvas"],
    PANEL: [".mkg-metric-toolbar", ".mkg-metric-picture"],
}
HIDDEN_PARTS = """wanted => {
  const page = document.querySelector('.jp-NotebookPanel-notebook').getBoundingClientRect();
  return Object.entries(wanted).flatMap(([root, parts]) => parts.map(part => `${root} ${part}`)).filter(selector => {
    const element = document.querySelector(selector);
    const { left, right, top, bottom } = element.getBoundingClientRect();
    const at = document.elementFromPoint((left + right) / 2, (top + Math.min(bottom, page.bottom)) / 2);
    return bottom - top < 4 || top < page.top - 1 || bottom > page.bottom + 1 ||
      !at || !(element.contains(at) || at.contains(element));
  });
}"""


@in_shared_page
def test_all_parts_are_in_one_window(notebook: NotebookPage) -> None:
    notebook.command("application:toggle-left-area")
    try:
        show(notebook)
        for width, height in ((1400, 900), (1100, 800)):
            notebook.page.set_viewport_size({"width": width, "height": height})
            notebook.page.locator(BENCH).evaluate("bench => bench.scrollIntoView({ block: 'start' })")
            wanted = {root: parts[:1] if root == PANEL else parts for root, parts in SEEN.items()}
            notebook.wait_for(f"wanted => ({HIDDEN_PARTS})(wanted).length === 0", wanted)
            notebook.screenshot(f"workbench-{width}")
    finally:
        notebook.page.set_viewport_size(VIEWPORT)
        notebook.command("application:toggle-left-area")


@in_shared_page
def test_a_knowledge_graph_stands_beneath_and_shares_the_selection(notebook: NotebookPage) -> None:
    show = "bench = mk.Workbench(model, x, kg=kg)\ngraph, explorer = bench.graph, bench.explorer\nbench"
    notebook.open([f"{SETUP}\nkg = mk.KnowledgeGraph()\nkg.add_model(model, name='ours')", show])
    notebook.run(0)
    notebook.run(1, until=f"() => ({GRAPH_READY})() && ({EXPLORER_READY})()")
    graph, explorer = GraphPage(notebook), ExplorerPage(notebook)
    graph.open_panes()
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
    handle = notebook.page.locator(f"{BENCH} .mkg-workbench-handle").first
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
    notebook.wait_for(f"() => document.querySelector('{BENCH} .mkg-workbench-handle').ariaValueNow === '30'")
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
