"""ModelGraph with inputs in JupyterLab: data flow, operators and axes, from the page to Python and back."""

import pytest

from browser.fixtures import in_shared_page
from browser.graph import ITEMS, LINES, ROOT, GraphPage
from browser.page import NotebookPage

FRAMES = 60
BYTES = 400_000

SETUP = """
import torch, torchvision
from IPython.display import display
import modulekg_widgets as mk
model = torchvision.models.{model}().eval()
image = torch.zeros(1, 3, 224, 224)
"""
SHOW = "graph = mk.ModelGraph(model, args=(image,))\ndisplay(graph)"

STOPPING = """
import torch
from torch import nn
from IPython.display import display
import modulekg_widgets as mk

class Stopping(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Sequential(nn.ReLU(), nn.Linear(5, 4))
        self.third = nn.ReLU()

    def forward(self, x):
        return self.third(self.second(self.first(x)))
"""

EDGES = f"""() => {LINES}.map(line => [line.source, line.target, line.label].join(' '))"""
ON_AXIS = f"""() => {ITEMS}.filter(item => item.onAxis).map(item => item.id).sort()"""
ROWS_ON_AXIS = f"""() => Array.from(document.querySelectorAll('{ROOT} .mkg-is-on-axis'), row => row.dataset.mkgPath)"""


def show(notebook: NotebookPage, model: str) -> GraphPage:
    return GraphPage.show_code(notebook, SETUP.format(model=model), SHOW)


def choose_view(graph: GraphPage, view: str) -> None:
    graph.find(".mkg-view select").select_option(view)
    graph.notebook.wait_for_value("graph.view", view)


@pytest.mark.nightly
def test_resnet152_with_inputs_is_painted_cheaply(notebook: NotebookPage) -> None:
    graph = show(notebook, "resnet152")
    traffic = notebook.traffic
    assert traffic.frames <= FRAMES, traffic.kinds("received")
    assert traffic.size <= BYTES
    assert traffic.sent("comm_open") == []
    told = [message.content["data"].get("content", {}).get("kind") for message in traffic.sent("comm_msg")]
    assert set(told) <= {"opened"}  # what the page has opened to fit itself, once
    assert len(told) <= 1
    print(f"resnet152 with inputs: {traffic.frames} frames, {traffic.size} bytes")

    edges = graph.evaluate(EDGES)
    assert "conv1 bn1 1×64×112×112" in edges
    assert "\0input conv1 1×3×224×224" in edges
    assert "fc \0output 1×1000" in edges
    assert len(graph.nodes()) <= 25
    notebook.screenshot("resnet152-traced")
    graph.find(".mkg-color-by select").select_option("flops")
    notebook.wait_for_value("graph.color_by", "flops")
    graph.click("conv1")
    graph.wait_for_selection("conv1")
    panel = graph.find(".mkg-side-panel").inner_text()
    assert "1×64×112×112" in panel
    assert "FLOPs" in panel
    notebook.screenshot("resnet152-flops")


@in_shared_page
def test_a_click_on_an_axis_lights_up_its_members(notebook: NotebookPage) -> None:
    graph = show(notebook, "resnet18")
    notebook.execute("graph.expanded = ['layer1', 'layer1.0', 'layer2']")
    choose_view(graph, "dataflow")
    graph.wait_for_node("layer1.0.conv2")
    graph.click("conv1")
    graph.wait_for_selection("conv1")
    assert graph.evaluate(ON_AXIS) == []

    graph.find('.mkg-expression [data-mkg-axis="conv1.out"]').first.click()
    notebook.wait_for_value("graph.axis", "conv1.out")
    members = {"conv1", "bn1", "layer1.0.conv1", "layer1.0.conv2", "layer1.0.bn2", "layer2.0"}
    found = set(graph.evaluate(ON_AXIS))
    assert members <= found
    # it runs through what has no parameters too: of the block's ReLU through the second call, after the addition
    assert {"relu", "maxpool"} <= found
    assert graph.evaluate(f"() => {ITEMS}.filter(item => item.onAxis && item.title === 'add_').length") == 1
    assert len([path for path in found if path.endswith("layer1.0.relu")]) == 1
    assert not [path for path in found if path.startswith(("fc", "layer1.0.bn1"))]
    rows = graph.evaluate(ROWS_ON_AXIS)
    assert rows == [
        "conv1",
        "bn1",
        "relu",
        "maxpool",
        *(f"layer1.0.{name}" for name in ("conv1", "relu", "conv2", "bn2")),
    ]
    assert "19 tensors" in graph.find(".mkg-active-axis").inner_text()
    notebook.screenshot("resnet18-axis")

    notebook.execute("graph.axis = 'layer1.0.conv1.out'")
    notebook.wait_for(
        f"() => ({ON_AXIS})().filter(id => !id.endsWith('relu')).join()"
        " === 'layer1.0.bn1,layer1.0.conv1,layer1.0.conv2'"
    )
    assert len([path for path in graph.evaluate(ON_AXIS) if path.endswith("layer1.0.relu")]) == 1  # the first call
    graph.find(".mkg-members .mkg-link").filter(has_text="layer1.0.bn1.weight").click()
    graph.wait_for_selection("layer1.0.bn1")
    graph.find(".mkg-active-axis .mkg-close").click()
    notebook.wait_for_value("graph.axis", None)
    assert graph.evaluate(ON_AXIS) == []


@in_shared_page
def test_operators_are_nodes_inside_their_modules(notebook: NotebookPage) -> None:
    graph = show(notebook, "resnet18")
    notebook.execute("graph.expanded = []")
    choose_view(graph, "operators")
    graph.wait_for_node("layer1")
    titles = f"() => {ITEMS}.map(item => item.title)"
    assert {"conv1", "bn1", "view", "fc"} <= set(graph.evaluate(titles))
    assert "add_" not in graph.evaluate(titles)
    graph.click("conv1")
    graph.wait_for_selection("conv1")
    assert graph.find(".mkg-operator").get_attribute("data-mkg-operator") == "aten::convolution"

    graph.double_click("layer1")
    graph.wait_for_node("layer1.0")
    graph.double_click("layer1.0")
    graph.wait_for_node("layer1.0.conv1")
    notebook.wait_for_value("graph.expanded", ["layer1", "layer1.0"])
    graph.fit()
    add = graph.evaluate(f"() => {ITEMS}.filter(item => item.title === 'add_').map(item => [item.id, item.parent])")
    assert [parent for _, parent in add] == ["layer1.0"]
    notebook.screenshot("resnet18-operators")
    graph.click(add[0][0])
    graph.wait_for_selection("layer1.0")  # the module that called it
    assert graph.find(".mkg-operator").get_attribute("data-mkg-operator") == "aten::add_"
    assert "resnet.py:" in graph.find(".mkg-operator").inner_text()
    graph.wait_for_selected_node(add[0][0])
    notebook.screenshot("resnet18-operator-selected")


@in_shared_page
def test_a_forward_pass_that_fails_is_told_and_the_rest_is_shown(notebook: NotebookPage) -> None:
    show = "graph = mk.ModelGraph(Stopping(), args=(torch.zeros(1, 3),))\ndisplay(graph)"
    graph = GraphPage.show_code(notebook, STOPPING, show)
    notice = graph.find(".mkg-trace-error")
    assert "stopped in 'second.1'" in notice.inner_text()
    assert notice.get_attribute("role") == "alert"
    assert {"first", "second", "third"} <= set(graph.nodes())
    assert "\0input first 1×3" in graph.evaluate(EDGES)
    notebook.screenshot("stopped")
    choose_view(graph, "operators")
    graph.wait_for_node("first")
    graph.find(".mkg-view select").select_option("hierarchy")
    graph.wait_for_node("third")
    graph.click("third")
    graph.wait_for_selection("third")

    notebook.execute("graph.close(); graph = mk.ModelGraph(Stopping(), args='no tensor')")
    assert notebook.value("graph.error is not None and not graph.payload['traced']") is True
