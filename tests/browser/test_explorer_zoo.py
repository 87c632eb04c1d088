"""KnowledgeExplorer on all models of torchvision: names that give way, comparisons, searches, limits."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from browser.fixtures import in_shared_page
from browser.knowledge import MOST_CIRCLES, READY, ROOT, SHOW, STAGE, ExplorerPage
from browser.page import NotebookPage

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
    from modulekg_widgets.engine.knowledge.facts.contents import Contents
    from modulekg_widgets.engine.knowledge.facts.records import model_record
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
    assert set(explorer.items()[:2]) <= set(first["ids"])  # what stands for most has its name at first sight
    for factor in (1.25, 1.25, 1.25, 1.6, 1.6, 0.5, 0.5, 0.5, 0.5):
        explorer.zoom(factor)
        assert explorer.labels()["pairs"] == [], factor
    explorer.find(".mkg-fit").click()
    explorer.groups("communities")
    assert {"c0", "c1"} <= set(explorer.labels()["ids"])
    family = next(item for item in explorer.items() if item.startswith("f"))
    for item in ("c0", "c3", "c5", family):
        explorer.row(item).locator(".mkg-twisty").click()
        explorer.wait_for_item(item)
        for factor in (1.0, 1.5, 0.4):
            explorer.zoom(factor)
            assert explorer.labels()["pairs"] == [], (item, factor)


@pytest.mark.nightly
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
from modulekg_widgets.engine.knowledge.analysis.similarity import difference
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
        assert "No results for" in explorer.find(".mkg-kg-nothing:visible").inner_text()
    explorer.find(".mkg-kg-clear:visible").click()
    notebook.wait_for_value("explorer.query", "")
    assert explorer.find(".mkg-kg-tree [role=treeitem]").first.is_visible()


@pytest.mark.nightly
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
