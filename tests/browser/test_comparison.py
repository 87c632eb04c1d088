"""Two models side by side: lined up, moved together, and their differences counted as everywhere else."""

from __future__ import annotations

import pytest

from browser.fixtures import in_shared_page
from browser.graph import ROOT, GraphPage
from browser.page import NotebookPage

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

original = torchvision.models.resnet18(weights=None)
"""
SHOW = "graph = mk.ModelGraph({left}, compare={right}, view='diff')\ndisplay(graph)"
STAGES = f"Array.from(document.querySelectorAll('{ROOT} .mkg-graph-canvas'), canvas => canvas.mkgStage)"

# where cards are on the screen, by id, in both pictures
PLACES = f"""() => {STAGES}.map(({{ camera, picture }}) => {{
  const {{ x, y, zoom }} = camera.look;
  return Object.fromEntries(picture.items.map(({{ id, box }}) => [id, [box[0] * zoom + x, box[1] * zoom + y]]));
}})"""
LOOKS = f"() => {STAGES}.map(stage => stage.camera.look)"
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


@in_shared_page
def test_the_sides_open_at_the_first_difference_and_move_together(notebook: NotebookPage) -> None:
    graph = show(notebook)
    assert_beside(graph, "layer2.1")  # closed, and it holds the first
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
    ],
    ids=["edited", "deeper", "another class around", "gone"],
)  # fmt: skip
def test_the_page_counts_as_python_does(notebook: NotebookPage, left: str, right: str, said: str) -> None:
    graph = show(notebook, left, right)
    lines = notebook.value(f"str(mk.diff({left}, {right})).splitlines()")
    place = graph.find(".mkg-diff-place")
    assert lines[-1] == said
    assert place.inner_text() == said
    entries = graph.find(".mkg-diff-entry:not(.mkg-is-none) > span:last-child").all_inner_texts()
    assert entries == ["same", *(" ".join(reversed(part.split())) for part in said.partition(": ")[2].split(", "))]
    found = []
    for number in range(1, len(lines)):
        graph.find(".mkg-next-difference").click()
        text = place.inner_text()
        assert text.startswith(f"{number} of {len(lines) - 1} · ")
        found.append(text.rpartition(" ")[2] + " " + text.partition(" · ")[2].rpartition(" ")[0])
    # the same places, in the same order
    paths = [" ".join(line[2:].split()[:2]) for line in lines[:-1]]
    title = notebook.value(f"type({left}).__name__")
    assert found == [path.replace("(root)", title) for path in paths]
