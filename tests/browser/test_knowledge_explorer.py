"""KnowledgeExplorer in JupyterLab: clicks reach Python, what Python sets is shown, looking needs no kernel."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from browser.fixtures import in_shared_page
from browser.graph import GraphPage
from browser.knowledge import MOST_CIRCLES, READY, ROOT, SHOW, STAGE, ExplorerPage
from browser.page import NotebookPage

FIRST_CELL = {"x": 176, "y": 124}  # where the names of rows and columns end


@in_shared_page
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


ZOO = """
import pickle
from IPython.display import display
import modulekg_widgets as mk
contents = pickle.load(open({file!r}, "rb"))
class Stored:
    def contents(self):
        return contents
kg = Stored()
"""
MOST_BYTES = 1_500_000


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All models of torchvision, as the contents of a graph."""
    from modulekg_widgets.engine.knowledge.contents import Contents
    from modulekg_widgets.engine.knowledge.records import model_record
    from modulekg_widgets.engine.knowledge.zoo.meta_weights import meta_weights
    from modulekg_widgets.engine.knowledge.zoo.torchvision_models import torchvision_builders

    with meta_weights():
        records = [model_record(build(), name) for name, build in torchvision_builders().items()]
    nodes = {key: node for record in records for key, node in record.nodes.items()}
    contents = Contents(modules=nodes, models={record.model.name: record.model for record in records})
    file = tmp_path_factory.mktemp("zoo") / "zoo.pickle"
    file.write_bytes(pickle.dumps(contents))
    return file


@pytest.mark.nightly
@in_shared_page
def test_names_in_the_map_give_way_at_every_zoom(notebook: NotebookPage, zoo: Path) -> None:
    explorer = ExplorerPage.show(notebook, ZOO.format(file=str(zoo)), SHOW)
    first = explorer.labels()
    assert first["pairs"] == []
    assert len(first["ids"]) >= 15
    width, height = notebook.page.evaluate(f"() => [{STAGE}.camera.extent.width, {STAGE}.camera.extent.height]")
    assert all(box[0] >= 0 and box[1] >= 0 and box[2] <= width and box[3] <= height for box in first["boxes"])
    assert {"c0", "c1"} <= set(first["ids"])  # what stands for most has its name at first sight
    for factor in (1.25, 1.25, 1.25, 1.6, 1.6, 0.5, 0.5, 0.5, 0.5):
        explorer.zoom(factor)
        assert explorer.labels()["pairs"] == [], factor
    explorer.find(".mkg-fit").click()
    for number in (0, 3, 5):
        explorer.row(f"c{number}").locator(".mkg-twisty").click()
        explorer.wait_for_item(f"c{number}")
        for factor in (1.0, 1.5, 0.4):
            explorer.zoom(factor)
            assert explorer.labels()["pairs"] == [], (number, factor)


@in_shared_page
def test_a_name_that_gave_way_is_shown_on_hover_and_when_selected(notebook: NotebookPage, zoo: Path) -> None:
    explorer = ExplorerPage.show(notebook, ZOO.format(file=str(zoo)), SHOW)
    before = explorer.labels()["ids"]
    items = [item for item in explorer.items() if item[0] in "cf"]
    hidden = next(item for item in items if item not in before)
    notebook.page.mouse.move(*explorer.point(hidden))
    hovered = explorer.labels()
    assert hidden in hovered["ids"]
    assert hovered["pairs"] == []
    notebook.page.mouse.move(5, 5)
    assert explorer.labels()["ids"] == before
    explorer.click(hidden)
    notebook.page.mouse.move(5, 5)
    selected = explorer.labels()
    assert hidden in selected["ids"]
    assert selected["pairs"] == []


@pytest.mark.nightly
@in_shared_page
def test_names_do_not_flicker_while_the_map_is_moved(notebook: NotebookPage, zoo: Path) -> None:
    explorer = ExplorerPage.show(notebook, ZOO.format(file=str(zoo)), SHOW)
    before = explorer.labels()
    for _ in range(6):
        notebook.page.evaluate(f"() => {STAGE}.camera.panBy(-3, 2)")
        after = explorer.labels()
        moved = dict(zip(after["ids"], after["boxes"], strict=True))
        for item, box in zip(before["ids"], before["boxes"], strict=True):
            if item in moved:  # the others have left the canvas
                shift = [new - old for new, old in zip(moved[item], box, strict=True)]
                assert shift == pytest.approx([-3, 2, -3, 2], abs=1e-3)
        assert set(after["ids"]) <= set(before["ids"])
        before = after


# "What do resnet50 and wide_resnet50_2 share?", asked of the models themselves
ASKED = """
from modulekg_widgets.engine.knowledge.analysis.comparison import difference
import torch, torchvision
answer = difference(contents, "resnet50", "wide_resnet50_2")
with torch.device("meta"):
    two = [torchvision.models.get_model(name, weights=None) for name in ("resnet50", "wide_resnet50_2")]
prints = [[mk.fingerprint(module).hexdigest for module in model.modules()] for model in two]
common = set(prints[0]) & set(prints[1])
def own(module):
    return sum(parameter.numel() for parameter in module.parameters(recurse=False))
def shared(of):
    kept = [module for module, digest in zip(two[of].modules(), prints[of]) if digest in common]
    return [len(kept), len(prints[of]), sum(map(own, kept)), sum(map(own, two[of].modules()))]
"""


@in_shared_page
def test_what_two_models_share_is_answered_by_clicks(notebook: NotebookPage, zoo: Path) -> None:
    explorer = ExplorerPage.show(notebook, ZOO.format(file=str(zoo)), SHOW)
    notebook.execute(ASKED)
    explorer.find(".mkg-search input").fill("resnet50")
    explorer.find('.mkg-kg-result[data-mkg-key="Model:resnet50"]').click()
    explorer.wait_for_selection("Model:resnet50")
    explorer.find(".mkg-kg-compare-with").click()
    notebook.page.keyboard.type("wide_resn")
    notebook.page.keyboard.press("ArrowDown")  # the other wide one has more in common
    chosen = explorer.find(".mkg-kg-picker [aria-selected=true]")
    assert chosen.inner_text() == "wide_resnet50_2"
    notebook.page.keyboard.press("Enter")
    said = " ".join(explorer.find(".mkg-kg-answer").inner_text().split())
    both = notebook.value("answer.loc[answer['where'] == 'both', 'name'].tolist()")
    assert said.startswith(f"In common with wide_resnet50_2: {len(both)} structures, overlap ")
    cells = explorer.find(".mkg-kg-share").evaluate_all("cells => cells.map(cell => cell.title)")
    counts = [[int(part.replace(",", "")) for part in cell.split(" of ")] for cell in cells]
    sides = notebook.value("[shared(0), shared(1)]")
    assert [counts[2], counts[3]] == [side[:2] for side in sides]  # modules
    assert [counts[4], counts[5]] == [side[2:] for side in sides]  # parameters
    used = notebook.value("[int((answer[side] > 0).sum()) for side in ('first', 'second')]")
    assert counts[:2] == [[len(both), used[0]], [len(both), used[1]]]
    for title, where in (("In both", "both"), ("Only in resnet50", "first"), ("Only in wide_resnet50_2", "second")):
        part = explorer.find(f"section:has(h4 > bdi:text-is('{title}'))")
        names = notebook.value(f"answer.loc[answer['where'] == {where!r}, 'name'].tolist()")
        assert part.locator(".mkg-kg-row-name").all_text_contents() == names
    notebook.screenshot("explorer-compared")
    row = explorer.find(".mkg-kg-row").nth(3)
    row.locator(".mkg-kg-count").click()  # a row is one button
    digest = notebook.value(f"[key for key, name in contents.names.items() if name == {both[3]!r}][0]")
    explorer.wait_for_selection(digest)
    explorer.find(".mkg-kg-back").click()
    explorer.wait_for_selection("Model:resnet50")
    assert explorer.find(".mkg-kg-row").first.is_visible()


@pytest.mark.nightly
@in_shared_page
def test_a_search_for_a_model_blanks_no_view(notebook: NotebookPage, zoo: Path) -> None:
    explorer = ExplorerPage.show(notebook, ZOO.format(file=str(zoo)), SHOW)
    explorer.find(".mkg-search input").fill("resnet50")
    notebook.wait_for_value("explorer.query", "resnet50")
    held = notebook.value("len({key for key, _ in contents.models['resnet50'].occurrences})")
    for view, noun in (("ranking", "structures"), ("communities", "communities"), ("types", "types")):
        explorer.view(view)
        assert explorer.find("[role=row][data-mkg-row]").count() > 1
        note = explorer.find(".mkg-kg-table-view .mkg-kg-note").inner_text()
        assert f" {noun} of " in note
        assert "resnet50" in note
        if view == "ranking":
            assert note.startswith(f"{held} structures of ")
    explorer.view("overlap")
    assert explorer.find(".mkg-kg-matrix-view .mkg-kg-note").inner_text() == "13 of 121 models"
    explorer.view("frequency")
    assert explorer.find(".mkg-kg-frequency-view .mkg-kg-note").inner_text().startswith(f"{held} of ")
    explorer.find(".mkg-search input").fill("no such thing")
    for view in ("frequency", "overlap", "types", "communities", "ranking", "graph"):
        explorer.view(view)
        assert "Nothing is found for" in explorer.find(".mkg-kg-nothing:visible").inner_text()
    explorer.find(".mkg-kg-clear:visible").click()
    notebook.wait_for_value("explorer.query", "")
    assert explorer.find(".mkg-kg-tree [role=treeitem]").first.is_visible()


@in_shared_page
def test_no_two_communities_are_called_alike(notebook: NotebookPage, zoo: Path) -> None:
    explorer = ExplorerPage.show(notebook, ZOO.format(file=str(zoo)), SHOW)
    explorer.view("communities")
    names = [name.partition(" ")[2] for name in explorer.names()]
    assert len(set(names)) == len(names) > 10
    every = notebook.value("explorer.payload['communities']['names']")
    assert len(set(every)) == notebook.value("explorer.payload['communities']['count']") > 20


@in_shared_page
def test_the_whole_zoo_is_explored(notebook: NotebookPage, zoo: Path) -> None:
    explorer = ExplorerPage.show(notebook, ZOO.format(file=str(zoo)), SHOW)
    notebook.wait_for(READY)
    received = sum(message.size for message in notebook.traffic.messages if message.direction == "received")
    assert received < MOST_BYTES + 200_000
    payload = "len(__import__('json').dumps(explorer.payload, separators=(',', ':')))"
    assert notebook.value(payload) < MOST_BYTES
    assert 20 <= explorer.drawn() <= 40
    explorer.groups("communities")
    first = explorer.drawn()
    assert 24 <= first <= 80
    for number in range(14):
        explorer.row(f"c{number}").locator(".mkg-twisty").click()
        assert explorer.drawn() <= MOST_CIRCLES
    assert explorer.drawn() > 400
    explorer.find(".mkg-offer button").first.click()
    notebook.wait_for(f"() => Number(document.querySelector('{ROOT}').dataset.mkgDrawn) < 200")
    notebook.execute("explorer.selected = 'Model:resnet18'")
    explorer.wait_for_selection("Model:resnet18")
    explorer.find(".mkg-search input").fill("class:Conv2d params>1M")
    notebook.wait_for_value("explorer.query", "class:Conv2d params>1M")
    for view in ("ranking", "overlap", "frequency", "types"):
        explorer.view(view)
    notebook.screenshot("explorer-zoo")
