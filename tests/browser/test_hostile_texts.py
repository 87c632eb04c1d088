"""Every payload through every text of the widget: nothing runs, nothing is fetched, the text is shown as it is."""

from pathlib import Path

import pytest

from browser.fixtures import in_shared_page
from browser.graph import READY, ROOT, GraphPage
from browser.hostile import assert_harmless, inspect, model_code
from browser.knowledge import ROOT as EXPLORER
from browser.knowledge import ExplorerPage
from browser.page import NotebookPage, WatchedPage
from cases.payloads import PAYLOADS

SETUP = "from IPython.display import display\nimport modulekg_widgets as mk\n" + model_code()


@pytest.fixture
def hostile(notebook: NotebookPage) -> GraphPage:
    """A page that shows the graph of the hostile model."""
    return GraphPage.show_code(notebook, SETUP)


def test_the_watch_sees_what_it_is_for(notebook: NotebookPage) -> None:
    notebook.open([])
    notebook.page.evaluate(
        """payloads => {
      const place = document.body.appendChild(document.createElement('div'));
      place.id = 'unsafe';
      for (const payload of payloads) { place.appendChild(document.createElement('div')).innerHTML = payload; }
      const image = place.appendChild(document.createElement('img'));
      image.src = 'http://xss.invalid/control';
      place.setAttribute('data-commandlinker-command', 'x');
    }""",
        [text for text in PAYLOADS if "http-equiv" not in text],
    )
    notebook.wait_for("() => window.__xss !== undefined")
    seen = inspect(notebook.page, "#unsafe")
    assert {"SCRIPT", "IFRAME", "EMBED", "FORM", "MATH"} <= set(seen["found"])
    assert any(text.startswith("onerror=") for text in seen["found"])
    assert "data-commandlinker-command=x" in seen["found"]
    notebook.wait_for("() => true")
    assert "http://xss.invalid/control" in notebook.trouble.foreign_requests
    notebook.trouble.clear()


@in_shared_page
@pytest.mark.gate
def test_names_in_tree_and_graph(hostile: GraphPage) -> None:
    address = hostile.page.url
    shown = hostile.find("[role=treeitem]").all_inner_texts()
    names = [text for text in PAYLOADS if not any(text.strip() in row for row in shown)]
    assert names == []
    assert_harmless(hostile.page, ROOT, address)
    hostile.notebook.screenshot("hostile")


@in_shared_page
def test_every_module_selected(hostile: GraphPage) -> None:
    """Panel, breadcrumb, strip, notices and tooltips, for every payload as path, class, attribute and value."""
    notebook = hostile.notebook
    address = hostile.page.url
    for text in PAYLOADS:
        notebook.execute(f"graph.selected = {text!r}")
        notebook.wait_for(f"path => document.querySelector('{ROOT} .mkg-side-panel').dataset.mkgPath === path", text)
        panel = hostile.find(".mkg-side-panel").evaluate("panel => panel.textContent")
        # path, class, attribute name and two attribute values
        assert panel.count(text) >= 4, text
    hostile.find(".mkg-tree [role=treeitem]").nth(2).hover()
    assert_harmless(hostile.page, ROOT, address)
    # what the widget puts outside of itself, too
    assert_harmless(hostile.page, ".mkg-tooltip, .mkg-menu, .jp-OutputArea-output .mkg-widget", address)


@pytest.mark.nightly
@in_shared_page
def test_search_and_notices(hostile: GraphPage) -> None:
    address = hostile.page.url
    box = hostile.find(".mkg-search input")
    for text in PAYLOADS:
        box.fill(text)
        box.press("Enter")
        assert box.input_value() == text
    hostile.notebook.wait_for_value("graph.query", PAYLOADS[-1])
    for text in PAYLOADS:
        hostile.notebook.execute(f"graph.query = {text!r}")
    hostile.notebook.wait_for(
        f"text => document.querySelector('{ROOT} .mkg-search input').value === text", PAYLOADS[-1]
    )
    assert_harmless(hostile.page, ROOT, address)


@in_shared_page
def test_overlay_and_views(hostile: GraphPage) -> None:
    notebook = hostile.notebook
    address = hostile.page.url
    notebook.execute("graph.overlay = {text: float(i) for i, text in enumerate(payloads)}; graph.color_by = 'overlay'")
    notebook.wait_for(f"() => document.querySelector('{ROOT} .mkg-color-by select').value === 'overlay'")
    for view in ("deduplicated", "hierarchy"):
        notebook.execute(f"graph.view = {view!r}")
        notebook.wait_for(f"view => document.querySelector('{ROOT} .mkg-view select').value === view", view)
        notebook.pause(400)
        assert_harmless(hostile.page, ROOT, address)


@pytest.mark.nightly
@in_shared_page
def test_side_by_side(notebook: NotebookPage) -> None:
    second = (
        "graph = mk.ModelGraph(model, compare=nn.Sequential(hostile(payloads[2])))\ngraph.view = 'diff'\ndisplay(graph)"
    )
    graph = GraphPage.show_code(notebook, SETUP, second)
    assert_harmless(graph.page, ROOT, graph.page.url)


GRAPH_OF_MODELS = """
kg = mk.KnowledgeGraph()
for text in payloads:
    kg.add_model(nn.Sequential(hostile(text)), name=text)
    kg.add_user(text, **{"note": text})
    kg.add_dataset(text)
    kg.add_job(name=text, user=text, dataset=text, model=text, accuracy=0.5)
explorer = mk.KnowledgeExplorer(kg)
display(explorer)
"""


@pytest.mark.nightly
@in_shared_page
def test_a_graph_of_models(notebook: NotebookPage) -> None:
    """Names of models, people and data sets, in every view, as a selection and as a search."""
    explorer = ExplorerPage.show(notebook, SETUP, GRAPH_OF_MODELS)
    address = notebook.page.url
    for text in PAYLOADS[::3]:
        notebook.execute(f"explorer.selected = {'Model:' + text!r}")
        explorer.wait_for_selection("Model:" + text)
        panel = explorer.find(".mkg-side-panel").evaluate("panel => panel.textContent")
        assert panel.count(text) >= 4, text  # the model, and who trained what on what
    for view in ("ranking", "communities", "types", "overlap", "frequency", "jobs", "graph"):
        explorer.view(view)
        notebook.execute(f"explorer.query = {PAYLOADS[0]!r}")
        notebook.pause(200)
        assert_harmless(notebook.page, EXPLORER, address)
        notebook.execute("explorer.query = ''")


@in_shared_page
def test_ipycytoscape(notebook: NotebookPage) -> None:
    """The picture for ipycytoscape carries the texts as data of its nodes."""
    notebook.open([SETUP, "display(mk.ModelGraph(model).to_ipycytoscape())"])
    notebook.run(0)
    notebook.run(1, until="() => Array.from(document.querySelectorAll('div')).some(div => div._cyreg?.cy)")
    notebook.pause(500)
    assert_harmless(notebook.page, ".jp-OutputArea-output", notebook.page.url)


@in_shared_page
@pytest.mark.parametrize("ending", ["html", "svg"])
def test_exported_pages(notebook: NotebookPage, ending: str) -> None:
    """The exported files, opened from the disk by themselves."""
    notebook.open([SETUP, f"mk.ModelGraph(model).export('hostile.{ending}')"])
    notebook.run(0)
    notebook.run(1)
    file = notebook.server.notebooks / f"hostile.{ending}"
    page = WatchedPage(notebook.browser, notebook.server)
    try:
        open_file(page, file)
        page.pause(500)
        assert_harmless(page.page, ROOT if ending == "html" else "svg", file.as_uri())
        assert page.trouble.foreign_requests == [file.as_uri()]
        page.trouble.foreign_requests.clear()
        page.assert_healthy()
    finally:
        page.close()


def open_file(page: WatchedPage, file: Path) -> None:
    page.page.goto(file.as_uri())
    if file.suffix == ".html":
        page.wait_for(READY)


@in_shared_page
def test_the_static_picture_in_the_notebook(notebook: NotebookPage) -> None:
    """The picture beside the widget, shown as a trusted output would be."""
    picture = "from IPython.display import SVG\nSVG(mk.ModelGraph(model)._repr_mimebundle_()['image/svg+xml'])"
    notebook.open([SETUP, picture])
    notebook.run(0)
    notebook.run(1, until="() => document.querySelector('.jp-RenderedSVG') !== null")
    notebook.pause(300)
    assert_harmless(notebook.page, ".jp-OutputArea-output", notebook.page.url)
