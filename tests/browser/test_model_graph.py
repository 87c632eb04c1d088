"""ModelGraph in JupyterLab: what is painted, and what clicks, keys and Python do to it."""

import json

import pytest

from browser.fixtures import in_shared_page
from browser.graph import ITEMS, LINES, ROOT, STAGE, GraphPage
from browser.page import NotebookPage

# the middle of the mark in the header of a frame
CHEVRON = f"""path => {{
  const {{ camera, host, picture }} = {STAGE};
  const [left, top] = picture.items.find(item => item.id === path).box;
  const {{ x, y, zoom }} = camera.pose;
  const canvas = host.getBoundingClientRect();
  return [canvas.left + x + (left + 16) * zoom, canvas.top + y + (top + 21) * zoom];
}}"""

FRAMES = 60
BYTES = 400_000
PICTURE_BYTES = 100_000


@pytest.mark.nightly
def test_resnet152_is_painted_folded_and_cheaply(notebook: NotebookPage) -> None:
    graph = GraphPage.show(notebook)
    traffic = notebook.traffic
    assert traffic.frames <= FRAMES, traffic.kinds("received")
    assert traffic.size <= BYTES
    # nothing is sent before the user acts
    assert traffic.sent("comm_open") == []
    told = [message.content["data"].get("content", {}).get("kind") for message in traffic.sent("comm_msg")]
    assert set(told) <= {"opened"}  # what the page has opened to fit itself, once
    assert len(told) <= 1

    nodes = graph.nodes()
    assert {"conv1", "layer3", "fc"} <= set(nodes)
    assert len(nodes) <= 25
    assert graph.evaluate(f"() => {LINES}.length") >= 10  # from input to output
    pixels = "canvas => canvas.width * canvas.height > 0 && canvas.toDataURL().length > 2000"
    assert any(graph.find(".mkg-graph-canvas canvas").evaluate_all(f"all => all.map({pixels})"))

    (output,) = notebook.outputs(1)
    picture = output["data"]["image/svg+xml"]
    picture = picture if isinstance(picture, str) else "".join(picture)
    assert picture.lstrip().startswith("<svg")
    assert len(picture.encode()) <= PICTURE_BYTES
    assert "application/vnd.jupyter.widget-view+json" in output["data"]
    notebook.screenshot("resnet152")


@in_shared_page
@pytest.mark.gate
def test_a_click_on_the_canvas_selects_in_python(notebook: NotebookPage) -> None:
    graph = GraphPage.show(notebook)
    assert notebook.value("graph.selected") is None
    assert graph.panel_path() is None
    for path in ("conv1", "fc", "layer1"):
        graph.click(path)
        graph.wait_for_selection(path)
        graph.wait_for_selected_node(path)
    assert "Sequential" in graph.find(".mkg-side-panel").inner_text()


@in_shared_page
def test_python_selects_and_the_page_follows(notebook: NotebookPage) -> None:
    graph = GraphPage.show(notebook)
    for path in ("layer3.17.conv2", "conv1", ""):
        notebook.execute(f"graph.selected = {path!r}")
        graph.wait_for_selection(path)
    notebook.execute("graph.selected = 'layer3.17.conv2'")
    graph.wait_for_selection("layer3.17.conv2")
    graph.wait_for_node("layer3.17.conv2")
    panel = "".join(graph.find(".mkg-side-panel").inner_text().split())
    assert "Conv2d" in panel
    assert "256×256×3×3" in panel
    notebook.screenshot("resnet152-selected")

    notebook.execute("graph.selected = None")
    notebook.wait_for(f"() => !document.querySelector('{ROOT} .mkg-side-panel').hasAttribute('data-mkg-path')")
    assert graph.tree_paths(selected_only=True) == []


@in_shared_page
def test_a_path_that_does_not_exist_is_an_error_and_changes_nothing(notebook: NotebookPage) -> None:
    graph = GraphPage.show(notebook, "resnet18")
    notebook.execute("graph.selected = 'layer1'")
    notebook.execute("""
try:
    graph.selected = 'layer1.nowhere'
except mk.ModuleKGError as error:
    assert 'layer1.nowhere' in str(error)
else:
    raise AssertionError('no error')
""")
    graph.wait_for_selection("layer1")


def test_a_double_click_opens_in_place_and_the_chevron_closes(notebook: NotebookPage) -> None:
    graph = GraphPage.show(notebook, "resnet18")
    notebook.execute("graph.expanded = []")
    graph.wait_for_node("layer2.0", there=False)
    notebook.traffic.clear()
    graph.double_click("layer2")
    graph.wait_for_node("layer2.0")
    assert graph.evaluate(f"() => {ITEMS}.find(item => item.id === 'layer2.0').parent") == "layer2"
    notebook.wait_for_value("'layer2' in graph.expanded", True)
    assert len(notebook.traffic.sent("comm_msg")) <= 3

    # what is open stays open, and comes closer
    graph.double_click("layer2")
    notebook.pause(300)
    assert "layer2.0" in graph.nodes()
    graph.page.mouse.click(*notebook.at_rest(CHEVRON, "layer2"))
    graph.wait_for_node("layer2.0", there=False)
    notebook.wait_for_value("graph.expanded", [])


@in_shared_page
def test_the_tree_is_driven_by_keys(notebook: NotebookPage) -> None:
    graph = GraphPage.show(notebook, "resnet18")
    notebook.execute("graph.expanded = []; graph.selected = 'layer1'")
    graph.wait_for_selection("layer1")
    graph.wait_for_node("layer1.0", there=False)
    graph.find(".mkg-tree [role=treeitem][aria-selected=true]").focus()
    keyboard = graph.page.keyboard
    keyboard.press("ArrowRight")
    graph.wait_for_node("layer1.0")
    keyboard.press("ArrowRight")
    graph.wait_for_selection("layer1.0")
    keyboard.press("Enter")
    graph.wait_for_node("layer1.0.conv1")
    keyboard.press("ArrowDown")
    graph.wait_for_selection("layer1.0.conv1")
    keyboard.press("ArrowLeft")
    graph.wait_for_selection("layer1.0")
    keyboard.press("ArrowLeft")
    graph.wait_for_node("layer1.0.conv1", there=False)
    keyboard.press("Home")
    notebook.wait_for_value("graph.selected", "")
    # one row only is in the tab order
    assert graph.find(".mkg-tree [role=treeitem][tabindex='0']").count() == 1


@in_shared_page
def test_search_finds_opens_and_selects(notebook: NotebookPage) -> None:
    graph = GraphPage.show(notebook)
    graph.find(".mkg-tree [role=treeitem]").first.focus()
    graph.page.keyboard.press("/")
    box = graph.find(".mkg-search input")
    assert box.evaluate("input => input === document.activeElement")
    box.fill("layer4.2.conv3")
    box.press("Enter")
    graph.wait_for_selection("layer4.2.conv3")
    graph.wait_for_node("layer4.2.conv3")
    notebook.wait_for_value("graph.query", "layer4.2.conv3")
    box.fill("type:Linear")
    box.press("Enter")
    graph.wait_for_selection("fc")
    box.fill("params>2M")
    notebook.wait_for_value("graph.query", "params>2M")


@in_shared_page
def test_a_click_on_an_instance_selects_exactly_it(notebook: NotebookPage) -> None:
    graph = GraphPage.show(notebook)
    notebook.execute("graph.selected = 'layer3.1'")
    graph.wait_for_selection("layer3.1")
    graph.find('.mkg-strip [data-mkg-path="layer3.17"]').click()
    graph.wait_for_selection("layer3.17")
    graph.wait_for_node("layer3.17")
    graph.wait_for_selected_node("layer3.17")


@pytest.mark.nightly
@in_shared_page
def test_color_and_view(notebook: NotebookPage) -> None:
    graph = GraphPage.show(notebook, "resnet18")
    colors = f"() => {ITEMS}.map(item => item.fill).join()"
    plain = graph.evaluate(colors)
    graph.find(".mkg-color-by select").select_option("params")
    notebook.wait_for_value("graph.color_by", "params")
    notebook.wait_for(f"plain => ({colors})() !== plain", plain)
    assert graph.find(".mkg-legend").inner_text().strip()
    graph.find(".mkg-view select").select_option("deduplicated")
    notebook.wait_for_value("graph.view", "deduplicated")
    notebook.screenshot("resnet18-deduplicated")
    graph.find(".mkg-view select").select_option("hierarchy")
    notebook.wait_for_value("graph.view", "hierarchy")
    graph.wait_for_node("layer1")


@in_shared_page
def test_an_overlay_from_python_colors_the_graph(notebook: NotebookPage) -> None:
    graph = GraphPage.show(notebook, "resnet18")
    notebook.execute("graph.overlay = {'conv1': 1.5, 'fc': float('nan'), 'layer1': 3}")
    graph.find(".mkg-color-by select").select_option("overlay")
    notebook.wait_for_value("graph.color_by", "overlay")
    graph.click("conv1")
    graph.wait_for_selection("conv1")
    assert "1.5" in graph.find(".mkg-side-panel").inner_text()


@pytest.mark.nightly
@in_shared_page
def test_two_models_side_by_side(notebook: NotebookPage) -> None:
    show = "graph = mk.ModelGraph(model, compare=torchvision.models.resnet34())\ngraph.view = 'diff'\ndisplay(graph)"
    graph = GraphPage.show(notebook, "resnet18", show)
    notebook.wait_for(f"() => document.querySelectorAll('{ROOT} .mkg-graph-canvas').length >= 1")
    notebook.pause(500)
    notebook.screenshot("resnet18-resnet34")
    notebook.execute("graph.selected = 'layer2'")
    graph.wait_for_selection("layer2")


@in_shared_page
def test_the_export_menu_downloads(notebook: NotebookPage) -> None:
    graph = GraphPage.show(notebook, "resnet18")
    begins = {"svg": b"<svg", "png": b"\x89PNG", "dot": b"digraph", "json": b"{", "html": b"<!doctype html"}
    for ending, begin in begins.items():
        item = graph.find(f'.mkg-export [data-mkg-export="{ending}"]')
        if not item.is_visible():
            graph.find(".mkg-export").locator("button, summary").first.click()
        with graph.page.expect_download() as download:
            item.click()
        content = download.value.path().read_bytes()
        assert download.value.suggested_filename.endswith(f".{ending}")
        assert begin.lower() in content[:200].lower(), ending
        if ending == "json":
            assert json.loads(content)


@in_shared_page
def test_to_ipycytoscape_renders(notebook: NotebookPage) -> None:
    show = "graph = mk.ModelGraph(model)\nclassic = graph.to_ipycytoscape()\ndisplay(classic)"
    notebook.open(["import torchvision, modulekg_widgets as mk\nmodel = torchvision.models.resnet18()", show])
    notebook.run(0)
    found = "Array.from(document.querySelectorAll('.jp-OutputArea div'), div => div._cyreg?.cy).find(cy => cy)"
    notebook.run(1, until=f"() => ({found})?.nodes().length > 5")
    notebook.pause(500)
    ids = notebook.page.evaluate(f"() => ({found}).nodes().map(node => node.id())")
    assert len(ids) == len(set(ids)) == notebook.value("len(classic.graph.nodes)")
    notebook.screenshot("ipycytoscape")
