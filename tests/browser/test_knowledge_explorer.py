"""KnowledgeExplorer in JupyterLab: clicks reach Python, what Python sets is shown, looking needs no kernel."""

from __future__ import annotations

import pytest

from browser.fixtures import in_shared_page
from browser.graph import GraphPage
from browser.knowledge import MOST_CIRCLES, ROOT, ExplorerPage
from browser.page import NotebookPage

FIRST_CELL = {"x": 176, "y": 124}  # where the names of rows and columns end


@pytest.mark.nightly
@in_shared_page
@pytest.mark.gate
def test_groups_open_and_circles_are_selected(notebook: NotebookPage) -> None:
    explorer = ExplorerPage.show(notebook)
    assert {item[0] for item in explorer.items()} == {"f"}
    explorer.groups("communities")
    assert {item[0] for item in explorer.items()} == {"c", "f"}
    assert explorer.drawn() == len(explorer.items()) == explorer.find("[role=treeitem]").count()
    net = explorer.item_of("Family:Net")
    explorer.click(net)
    explorer.wait_for_selection("Family:Net")
    explorer.double_click(net)
    explorer.wait_for_item(f"{net}/m0")
    explorer.click(f"{net}/m1")
    explorer.wait_for_selection("Model:net3")
    panel = explorer.find(".mkg-side-panel").inner_text()
    assert "ada trained net3 on digits: 91.0 %" in " ".join(panel.split())
    explorer.double_click(f"{net}/m1")
    block, root = notebook.value("[digest(Block(16)), digest(models['net3'])]")
    explorer.find(f'[role=treeitem][data-mkg-key="{block}"]').wait_for()
    explorer.find(f'.mkg-side-panel [data-mkg-key="{root}"]').click()
    explorer.wait_for_selection(root)
    notebook.screenshot("explorer-open")
    assert explorer.drawn() <= MOST_CIRCLES
    sent = [
        message.content["data"]["state"]
        for message in notebook.traffic.sent("comm_msg")
        if "state" in message.content["data"]
    ]
    assert all(set(state) <= {"selected", "view", "query", "color_by"} for state in sent)


@in_shared_page
def test_what_python_selects_is_brought_into_the_picture(notebook: NotebookPage) -> None:
    explorer = ExplorerPage.show(notebook)
    notebook.execute("explorer.selected = digest(Block(8))")
    explorer.wait_for_selection(notebook.value("digest(Block(8))"))
    selected = explorer.find("[role=treeitem][aria-selected=true]")
    assert selected.locator(".mkg-row-name").inner_text() == notebook.value("kg.contents().names[digest(Block(8))]")
    item = selected.get_attribute("data-mkg-item") or ""
    assert item in explorer.items()
    notebook.execute("explorer.color_by, explorer.query = 'uses', 'class:Conv2d'")
    notebook.wait_for(f"() => document.querySelectorAll('{ROOT} .mkg-kg-result').length === 3")
    assert explorer.find(".mkg-color-by select").input_value() == "uses"
    assert explorer.find(".mkg-legend").inner_text().startswith("uses")


@in_shared_page
def test_the_search_lists_by_rank_and_selects(notebook: NotebookPage) -> None:
    explorer = ExplorerPage.show(notebook)
    explorer.row(explorer.item_of("Family:Net")).click()
    notebook.page.keyboard.press("/")
    notebook.page.keyboard.type("net3")
    notebook.wait_for_value("explorer.query", "net3")
    notebook.page.keyboard.press("Enter")
    explorer.wait_for_selection("Model:net3")
    notebook.page.keyboard.press("Escape")
    notebook.wait_for_value("explorer.query", "")
    explorer.find(".mkg-search input").fill("class:Block models>2")
    notebook.wait_for(f"() => document.querySelectorAll('{ROOT} .mkg-kg-result').length === 2")
    explorer.find(".mkg-kg-result").first.click()
    explorer.wait_for_selection(notebook.value("digest(Block(4))"))


@in_shared_page
def test_tables_sort_and_their_rows_select(notebook: NotebookPage) -> None:
    explorer = ExplorerPage.show(notebook)
    explorer.view("ranking")
    used = notebook.value("kg.most_used(3)['name'].tolist()")
    assert explorer.names()[0] == used[0]
    explorer.find(".mkg-kg-level").select_option("block")
    explorer.find(".mkg-kg-level").select_option("stage")
    counts = notebook.value("sorted(kg.most_used(99, level='stage')['count'].tolist(), reverse=True)")
    assert [int(text) for text in explorer.find("[role=gridcell]:nth-child(3)").all_inner_texts()] == counts
    explorer.find(".mkg-kg-level").select_option("all")
    explorer.find('[data-mkg-column="params"]').click()
    biggest = explorer.names()[0]
    explorer.find("[role=row][data-mkg-row='0']").click()
    notebook.wait_for_value("kg.contents().names.get(explorer.selected)", biggest)
    notebook.page.keyboard.press("ArrowDown")
    notebook.wait_for_value("kg.contents().names.get(explorer.selected)", explorer.names()[1])
    explorer.view("types")
    assert "Block*" in explorer.find("[role=grid]").inner_text()
    explorer.view("communities")
    explorer.find("[role=row][data-mkg-row='0']").click()
    explorer.wait_for_selection("Community:0")
    explorer.view("jobs")
    assert explorer.find("[role=row][data-mkg-row]").count() == 3
    explorer.find("[role=row][data-mkg-row='0']").click()
    explorer.wait_for_selection("Model:mixer2")
    explorer.view("graph")
    assert explorer.find("[role=treeitem][aria-selected=true]").get_attribute("data-mkg-key") == "Model:mixer2"


@pytest.mark.nightly
@in_shared_page
def test_the_matrix_and_the_ranks_are_read_and_clicked(notebook: NotebookPage) -> None:
    explorer = ExplorerPage.show(notebook)
    explorer.view("overlap")
    note = explorer.find(".mkg-kg-matrix-view .mkg-kg-note")
    explorer.find(".mkg-kg-matrix").focus()
    notebook.page.keyboard.press("ArrowDown")
    notebook.page.keyboard.press("ArrowRight")
    names, value = note.inner_text().split(": ")
    row, column = names.split(" × ")
    assert notebook.value(f"round(kg.overlap().loc[{row!r}, {column!r}], 3)") == float(value.split(",")[0])
    notebook.page.keyboard.press("Enter")
    explorer.wait_for_selection(f"Model:{row}")
    for title, where in ((f"Only in {row}", "first"), (f"Only in {column}", "second"), ("In both", "both")):
        listed = explorer.find(f"section:has(h4 > bdi:text-is('{title}')) .mkg-kg-row-name").all_text_contents()
        notebook.execute(f"difference = kg.difference({row!r}, {column!r})")
        expected = notebook.value(f"sorted(difference['name'][difference['where'] == {where!r}])")
        assert sorted(listed) == expected
    explorer.find(".mkg-kg-matrix canvas").click(position=FIRST_CELL)
    explorer.wait_for_selection("Model:net2")
    notebook.screenshot("explorer-overlap")
    explorer.view("frequency")
    explorer.find(".mkg-kg-chart").focus()
    notebook.page.keyboard.press("Home")
    assert explorer.find(".mkg-kg-frequency-view .mkg-kg-note").inner_text().startswith("rank 1: ")
    notebook.page.keyboard.press("Enter")
    notebook.wait_for_value("kg.contents().names.get(explorer.selected) == kg.rank_frequency().table['name'][0]", True)
    explorer.find('[data-mkg-scale="linear"]').click()
    notebook.wait_for(f"() => document.querySelector('{ROOT} .mkg-kg-plot canvas') !== null")
    assert notebook.value("kg.rank_frequency().verdict") in explorer.find(".mkg-kg-fit").inner_text()
    notebook.screenshot("explorer-frequency")


LINKED = """
explorer, graph = mk.KnowledgeExplorer(kg), mk.ModelGraph(models["net3"])
link = mk.link(explorer, graph)
display(explorer, graph)
"""
BUSY = """
import pathlib, time
end = time.time() + 120
while time.time() < end and not pathlib.Path("looked-at").exists():
    time.sleep(0.02)
"""
# JupyterLab shows a kernel as idle once a subshell has answered; whether the cell runs is known from its own messages
BEGIN = """code => {
  const future = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.requestExecute({ code });
  window.mkgCell = 'waits';
  future.onIOPub = ({ header }) => { if (header.msg_type === 'execute_input') { window.mkgCell = 'runs'; } };
  void future.done.then(() => { window.mkgCell = 'ended'; });
}"""


@in_shared_page
def test_looking_and_linked_graphs_need_no_kernel(notebook: NotebookPage) -> None:
    explorer = ExplorerPage.show(notebook, show=LINKED)
    graph = GraphPage(notebook)
    looked_at = notebook.server.notebooks / "looked-at"
    looked_at.unlink(missing_ok=True)
    block = notebook.value("digest(Block(8))")
    net = explorer.item_of("Family:Net")
    notebook.page.evaluate(BEGIN, BUSY)
    notebook.wait_for("() => window.mkgCell === 'runs'")
    explorer.row(net).locator(".mkg-twisty").click()
    explorer.wait_for_item(f"{net}/m0")
    explorer.find(".mkg-search input").fill(block)
    explorer.find(f'.mkg-kg-result[data-mkg-key="{block}"]').click()
    notebook.wait_for("() => document.querySelector('.mkg-model-graph .mkg-side-panel').dataset.mkgPath === '1'")
    graph.find('[role=treeitem][data-mkg-path="2"]').click()
    notebook.wait_for(f"() => document.querySelector('{ROOT} .mkg-panel-class').textContent.startsWith('Block')")
    assert notebook.page.evaluate("() => window.mkgCell") == "runs"
    looked_at.touch()
    notebook.wait_for("() => window.mkgCell === 'ended'")
    notebook.wait_for_value("[graph.selected, explorer.selected == digest(Block(16))]", ["2", True])


@pytest.mark.nightly
def test_without_its_kernel_it_says_so_and_looks_on(notebook: NotebookPage) -> None:
    explorer = ExplorerPage.show(notebook)
    notebook.execute("kg.add_model(Net(64), name='added'); explorer.refresh()")
    notebook.wait_for(f"() => document.querySelector('{ROOT} .mkg-side-panel').textContent.includes('Models6')")
    notebook.page.evaluate("() => void window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    notebook.page.locator(f"{ROOT}.mkg-is-disconnected").wait_for(timeout=2_000)
    net = explorer.item_of("Family:Net")
    explorer.row(net).locator(".mkg-twisty").click()
    explorer.wait_for_item(f"{net}/m0")
    assert "disconnected" in explorer.find(".mkg-status").inner_text()
    notebook.wait_for_kernel()
