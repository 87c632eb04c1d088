"""The scatter of a KnowledgeExplorer in JupyterLab, and a graph whose structures come after its models."""

from __future__ import annotations

from browser.fixtures import in_shared_page
from browser.knowledge import READY, ROOT, SETUP, SHOW, STAGE, ExplorerPage
from browser.page import NotebookPage

DOTS = f"() => {STAGE}.picture.items.map(({{ title, box }}) => [title, box[0], box[1]])"
ANALYSED = f"() => document.querySelector('{ROOT}[data-mkg-analysis=done]') !== null"
# the analysis waits until the test has looked at what there is before
SLOW = (
    SETUP
    + """
import pathlib, time
from modulekg_widgets.widgets import knowledge_explorer
knowledge_explorer.MAX_SYNCHRONOUS = 3
analyse_contents = knowledge_explorer.analyse_contents
def later(contents, *rest):
    while not pathlib.Path("looked-at").exists():
        time.sleep(0.02)
    return analyse_contents(contents, *rest)
knowledge_explorer.analyse_contents = later
pathlib.Path("looked-at").unlink(missing_ok=True)
"""
)


@in_shared_page
def test_numbers_of_models_are_set_against_each_other(notebook: NotebookPage) -> None:
    explorer = ExplorerPage.show(notebook)
    explorer.view("scatter")
    dots = {title: (x, y) for title, x, y in notebook.page.evaluate(DOTS)}
    assert set(dots) == {"net2", "net3", "mixer2"}
    # accuracies 0.90, 0.91 and 0.92 upwards, parameters to the right
    assert dots["net2"][1] > dots["net3"][1] > dots["mixer2"][1]
    sizes = notebook.value("{name: sum(p.numel() for p in models[name].parameters()) for name in models}")
    assert sorted(dots, key=lambda name: dots[name][0]) == sorted(dots, key=lambda name: sizes[name])
    best = explorer.find(".mkg-kg-front .mkg-kg-row-name").all_inner_texts()
    assert "mixer2" in best
    explorer.find(".mkg-kg-front [data-mkg-key]").first.click()
    explorer.wait_for_selection(f"Model:{best[0]}")
    place = next(at for at, (title, *_) in enumerate(notebook.page.evaluate(DOTS)) if title == "net3")
    explorer.click(str(place))
    explorer.wait_for_selection("Model:net3")
    assert "acc@1, digits 91 %" in " ".join(explorer.find(".mkg-side-panel").inner_text().split())
    explorer.find(".mkg-kg-scatter-x").select_option(label="modules")
    modules = notebook.value("{name: sum(1 for _ in models[name].modules()) for name in models}")
    dots = {title: x for title, x, _ in notebook.page.evaluate(DOTS)}
    assert sorted(dots, key=dots.__getitem__) == sorted(dots, key=lambda name: modules[name])
    notebook.screenshot("explorer-scatter")


@in_shared_page
def test_the_models_are_there_before_their_structures(notebook: NotebookPage) -> None:
    explorer = ExplorerPage.show(notebook, SLOW, SHOW)
    notebook.wait_for(READY)
    assert explorer.find(".mkg-kg-counts").inner_text().startswith("5 models")
    explorer.click(explorer.item_of("Family:Net"))
    explorer.wait_for_selection("Family:Net")
    explorer.row(explorer.item_of("Family:Net")).locator(".mkg-twisty").click()
    explorer.wait_for_item("f0/m0")
    explorer.find('[data-mkg-view="overlap"]').click()
    assert "Analyzing" in explorer.find(".mkg-kg-view-place").inner_text()
    explorer.find('[data-mkg-view="graph"]').click()
    search = explorer.find(".mkg-search input")
    search.fill("net")
    before = explorer.items()
    notebook.execute("pathlib.Path('looked-at').touch()")
    notebook.wait_for(ANALYSED)
    assert explorer.items() == before
    assert search.input_value() == "net"
    assert search.evaluate("input => input === document.activeElement")
    search.fill("")
    explorer.double_click("f0/m0")
    digest = notebook.value("digest(Block(4))")
    explorer.find(f'[role=treeitem][data-mkg-key="{digest}"]').wait_for()
