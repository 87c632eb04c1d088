"""Two models side by side: lined up, moved together, and their differences counted as everywhere else."""

from __future__ import annotations

from collections import Counter

import pytest

from browser.fixtures import in_shared_page
from browser.graph import ROOT, GraphPage
from browser.page import VIEWPORT, NotebookPage

SETUP = """
import torch, torchvision
from torch import nn
from IPython.display import display
import modulekg_widgets as mk

def changed():
    theirs = torchvision.models.resnet18(weights=None, num_classes=10)
    theirs.layer2[1].relu = nn.SiLU()
    theirs.layer4.append(nn.Dropout(0.1))
    return theirs

def small(extra=()):
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), *extra)

def stored(model, wrapped, name):
    torch.save({"model": model.state_dict(), "epoch": 20} if wrapped else model.state_dict(), name)
    return mk.open_file(name)

class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.head = nn.Linear(64, classes)

class Around(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model, self.average = model, nn.Linear(3, 3)

original = torchvision.models.resnet18(weights=None)
monday, friday = stored(Net(4), False, "monday.pt"), stored(Net(5), True, "friday.pt")
"""
SHOW = "graph = mk.ModelGraph({left}, compare={right})\ndisplay(graph)"
STAGES = f"Array.from(document.querySelectorAll('{ROOT} .mkg-graph-canvas'), canvas => canvas.mkgStage)"

# where cards are on the screen, by id, in both pictures
PLACES = f"""() => {STAGES}.map(({{ camera, picture }}) => {{
  const {{ x, y, zoom }} = camera.pose;
  return Object.fromEntries(picture.items.map(({{ id, box }}) => [id, [box[0] * zoom + x, box[1] * zoom + y]]));
}})"""
LOOKS = f"() => {STAGES}.map(stage => stage.camera.pose)"
SIZE = f"() => [{STAGES}[0].camera.extent.width, {STAGES}[0].camera.extent.height]"
NEAR = 14  # pixels


def show(notebook: NotebookPage, left: str = "original", right: str = "changed()") -> GraphPage:
    graph = GraphPage.show_code(notebook, SETUP, SHOW.format(left=left, right=right))
    graph.find(".mkg-graph-canvas").first.scroll_into_view_if_needed()
    notebook.pause(300)
    return graph


def assert_beside(graph: GraphPage, path: str) -> None:
    """The module is in view on both sides, at the same height and the same zoom."""
    graph.notebook.pause(300)
    first, second = graph.evaluate(LOOKS)
    assert first["zoom"] == pytest.approx(second["zoom"])
    left, right = (side[path] for side in graph.evaluate(PLACES))
    width, height = graph.evaluate(SIZE)
    assert left == pytest.approx(right, abs=NEAR)
    assert 0 <= left[0] < width
    assert 0 <= left[1] < height


# what of both pictures is out of view, and how far the first cards of both are from the same height
OUT_OF_VIEW = f"""() => {STAGES}.flatMap(({{ camera, picture }}) => {{
  const [left, top, width, height] = camera.view;
  return picture.items.filter(({{ box: [x, y, across, down] }}) =>
    x < left || y < top || x + across > left + width || y + down > top + height).map(item => item.id);
}})"""
# a folded card stands for as many as its badge says
MARKS = f"""() => {STAGES}.map(({{ picture }}) => picture.items.filter(item => item.mark).map(item =>
  [item.mark, item.id, Number(item.badge.slice(1) || 1)]))"""
ROOT_MARK = f"""() => document.querySelector('{ROOT} [role=treeitem][data-mkg-path=""]').dataset.mkgStatus"""
ADDED_AS_A_WHOLE = ".mkg-diff-title .mkg-diff-mark[data-mkg-status=added]"


def marks_of(graph: GraphPage) -> Counter[str]:
    """How many modules have each mark: in both pictures, a pair of partners once, and the root, which the tree has."""
    left, right = graph.evaluate(MARKS)
    found = Counter([graph.evaluate(ROOT_MARK)])
    for mark, _, count in [*left, *(one for one in right if one[0] == "added")]:
        found[mark] += count
    found["added"] += graph.find(ADDED_AS_A_WHOLE).count()
    return +found


@in_shared_page
@pytest.mark.parametrize("size", [(1400, 900), (1100, 800)], ids=["wide", "with the file list"])
@pytest.mark.parametrize("right", ["changed()", "torchvision.models.resnet34(weights=None)"], ids=["edited", "deeper"])
def test_both_sides_open_whole_and_aligned_where_they_differ(
    notebook: NotebookPage, right: str, size: tuple[int, int]
) -> None:
    notebook.page.set_viewport_size({"width": size[0], "height": size[1]})
    try:
        graph = show(notebook, right=right)
        assert notebook.value("graph.view") == "diff"  # nobody has asked for it but by compare=
        assert graph.evaluate(OUT_OF_VIEW) == []
        first, second = graph.evaluate(PLACES)
        for card in ("conv1", "bn1"):
            assert first[card] == pytest.approx(second[card], abs=0.5)
        assert "changed inside" in marks_of(graph)
        notebook.screenshot(f"comparison-{size[0]}-{'edited' if right == 'changed()' else 'deeper'}")
    finally:
        notebook.page.set_viewport_size(VIEWPORT)


@in_shared_page
def test_the_next_difference_leaves_all_in_view_that_fits(notebook: NotebookPage) -> None:
    graph = show(notebook, right="torchvision.models.resnet34(weights=None)")
    for number in range(1, 3):
        graph.find(".mkg-next-difference").click()
        notebook.wait_for(f"""() => {STAGES}[1].picture.items.some(item => item.id === 'layer{number}.2')""")
        notebook.pause(500)
        assert graph.evaluate(OUT_OF_VIEW) == []
        first, second = graph.evaluate(PLACES)
        assert first["conv1"] == pytest.approx(second["conv1"], abs=0.5)
        notebook.screenshot(f"comparison-step-{number}")


@in_shared_page
def test_the_sides_move_together(notebook: NotebookPage) -> None:
    graph = show(notebook)
    notebook.execute("graph.expanded = ['layer1', 'layer2', 'layer3']")
    drawn = f"() => {STAGES}.every(stage => stage.picture.items.some(item => item.id === 'layer2.1'))"
    notebook.wait_for(drawn)
    notebook.execute("graph.selected = 'layer2.1'")
    graph.wait_for_selection("layer2.1")
    assert_beside(graph, "layer2.1")
    notebook.screenshot("comparison")

    canvas = graph.find(".mkg-graph-canvas").nth(1)
    box = canvas.bounding_box()
    assert box is not None
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    before = graph.evaluate(LOOKS)
    graph.page.mouse.move(*middle)
    graph.page.mouse.down()
    graph.page.mouse.move(middle[0] + 20, middle[1] + 130, steps=4)
    graph.page.mouse.up()
    assert graph.evaluate(LOOKS)[0] != before[0]
    assert_beside(graph, "layer2.1")
    graph.page.keyboard.down("Control")
    graph.page.mouse.wheel(0, 60)
    graph.page.keyboard.up("Control")
    first, second = graph.evaluate(LOOKS)
    assert first["zoom"] == pytest.approx(second["zoom"])
    assert first["zoom"] < before[0]["zoom"]

    # the other way round
    other = graph.find(".mkg-graph-canvas").first.bounding_box()
    assert other is not None
    graph.page.mouse.move(other["x"] + 60, other["y"] + 60)
    graph.page.keyboard.down("Control")
    graph.page.mouse.wheel(0, -120)
    graph.page.keyboard.up("Control")
    notebook.pause(100)
    assert graph.evaluate(LOOKS)[1]["zoom"] > second["zoom"]


@in_shared_page
def test_what_opens_on_one_side_opens_on_the_other(notebook: NotebookPage) -> None:
    graph = show(notebook)
    notebook.execute("graph.expanded = ['layer2']")
    drawn = f"path => {STAGES}.map(stage => stage.picture.items.some(item => item.id === path))"
    notebook.wait_for(f"() => ({drawn})('layer3.0').every(is => !is)")
    graph.find('[role=treeitem][data-mkg-path="layer3"] .mkg-twisty').click()
    notebook.wait_for(f"() => ({drawn})('layer3.0').every(is => is)")
    graph.find('[role=treeitem][data-mkg-path="layer3"] .mkg-twisty').click()
    notebook.wait_for(f"() => ({drawn})('layer3.0').every(is => !is)")
    assert graph.evaluate(drawn, "layer2.0") == [True, True]


@in_shared_page
def test_small_models_are_seen_whole_from_the_same_beginning(notebook: NotebookPage) -> None:
    graph = show(notebook, "small()", "small([nn.Dropout()])")
    assert_beside(graph, "0")
    inside = f"""() => {STAGES}.every(({{ camera, picture }}) => {{
      const [left, top, width, height] = camera.view;
      return picture.items.every(({{ box: [x, y, across, down] }}) =>
        x >= left && y >= top && x + across <= left + width && y + down <= top + height);
    }})"""
    assert graph.evaluate(inside)


@in_shared_page
@pytest.mark.parametrize(
    ("left", "right", "said"),
    [
        ("original", "changed()", "3 differences: 2 changed, 1 added"),
        ("original", "torchvision.models.resnet34(weights=None)", "8 differences: 8 added"),
        ("nn.Sequential(small(), small())", "nn.ModuleList([small(), nn.Sequential(nn.Linear(4, 4), nn.SiLU())])",
         "2 differences: 2 changed"),
        ("small([nn.Sequential(nn.ReLU(), nn.Tanh())])", "small()", "1 difference: 1 removed"),
        ("Net(4)", "Around(Net(5))", "3 differences: 1 changed, 2 added"),
        ("Around(Net(5))", "Net(4)", "3 differences: 1 changed, 2 removed"),
        ("monday", "friday", "3 differences: 1 renamed, 1 changed, 1 added"),
        ("friday", "Net(4)", "3 differences: 1 renamed, 1 changed, 1 removed"),
    ],
    ids=["edited", "deeper", "another class around", "gone", "wrapped", "unwrapped", "files", "a file and a model"],
)  # fmt: skip
def test_the_page_counts_as_python_does(notebook: NotebookPage, left: str, right: str, said: str) -> None:
    graph = show(notebook, left, right)
    lines = notebook.value(f"str(mk.diff({left}, {right}).structure).splitlines()")
    place = graph.find(".mkg-diff-place")
    assert lines[-1] == said
    assert place.inner_text() == said
    entries = graph.find(".mkg-diff-entry:not(.mkg-is-none) > span:last-child").all_inner_texts()
    inside = [entries.pop()] if entries[-1] == "changed inside" else []
    assert entries == [" ".join(reversed(part.split())) for part in said.partition(": ")[2].split(", ")]
    counts = dict(part.split()[::-1] for part in said.partition(": ")[2].split(", "))
    notebook.wait_for(f"() => {STAGES}.length === 2 && {STAGES}.every(stage => stage.picture.items.length > 0)")
    graph.press_tool("expand-all")
    notebook.pause(400)
    marks = marks_of(graph)
    assert {mark: str(count) for mark, count in marks.items() if mark != "changed inside"} == counts
    assert ("changed inside" in marks) == bool(inside)
    found = []
    for number in range(1, len(lines)):
        graph.find(".mkg-next-difference").click()
        text = place.inner_text()
        assert text.startswith(f"{number} of {len(lines) - 1} · ")
        found.append(text.rpartition(" ")[2] + " " + text.partition(" · ")[2].rpartition(" ")[0])
    # the same places, in the same order
    paths = [" ".join(line[2:].split()[:2]) for line in lines[:-1]]
    titles = notebook.value("[graph.payload['title'], graph.payload['compare']['model']['title']]")
    assert found == [path.replace("(root)", titles[path.startswith("added")]) for path in paths]
    notebook.screenshot(f"comparison-{left[:6].lower()}-{right[:6].lower()}")
    tensors = notebook.value("graph.payload['compare']['tensors']")
    assert graph.find(".mkg-diff-tensors").all_inner_texts() == ([f"Tensors: {tensors}"] if tensors else [])
    if tensors:
        assert tensors == notebook.value(f"str(mk.diff({left}, {right})).splitlines()")[-1]
