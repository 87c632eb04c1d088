"""Every widget on the whole screen, and in a tab of its own that shows the same live model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from browser.fixtures import in_shared_page
from browser.graph import READY, ROOT, SHOW, GraphPage
from browser.graph import SETUP as GRAPH_SETUP
from browser.knowledge import ROOT as EXPLORER
from browser.knowledge import ExplorerPage
from browser.masks import ROOT as MASKS
from browser.metrics import ROOT as PANEL
from browser.page import NotebookPage
from browser.test_accessibility import PLAYER, TORCH
from browser.test_forward_player import ROOT as FORWARD
from browser.test_forward_player import PlayerPage
from browser.test_workbench import BENCH
from browser.test_workbench import show as show_workbench
from sampling import sampled

if TYPE_CHECKING:
    from playwright.sync_api import Locator

TAB = ".mkg-view-tab"
STATE = """element => {
  const box = element.getBoundingClientRect();
  const top = document.elementFromPoint(innerWidth / 2, innerHeight / 2);
  return {
    fills: box.x === 0 && box.y === 0 && box.width === innerWidth && box.height === innerHeight,
    onTop: element.contains(top),
    api: document.fullscreenElement === element,
  };
}"""
REFUSE = "element => { element.requestFullscreen = () => Promise.reject(new TypeError('not allowed')); }"
LACK = "element => { element.requestFullscreen = undefined; element.showPopover = undefined; }"


def show_graph(notebook: NotebookPage) -> str:
    GraphPage.show(notebook, "resnet18")
    return ROOT


def show_player(notebook: NotebookPage) -> str:
    PlayerPage.show(notebook, TORCH + PLAYER, "display(player)")
    return FORWARD


def show_explorer(notebook: NotebookPage) -> str:
    ExplorerPage.show(notebook)
    return EXPLORER


def show_bench(notebook: NotebookPage) -> str:
    show_workbench(notebook)
    return BENCH


def show_editor(notebook: NotebookPage) -> str:
    show_workbench(notebook)
    return f"{BENCH} {MASKS}"


def show_panel(notebook: NotebookPage) -> str:
    show_workbench(notebook)
    return f"{BENCH} {PANEL}"


SHOWS = [show_graph, show_editor, show_panel, show_explorer, show_player, show_bench]


def wait_until_full(notebook: NotebookPage, root: Locator, full: bool) -> dict[str, Any]:
    handle = root.element_handle()
    notebook.wait_for(f"element => ({STATE})(element).fills === {str(full).lower()}", handle, timeout=5_000)
    return root.evaluate(STATE)


def own(root: Locator, button: str) -> Locator:
    """The button of the widget itself: the parts of a workbench have their own, after it."""
    return root.locator(f".mkg-{button}").first


@in_shared_page
@pytest.mark.parametrize("spoil", sampled([None, REFUSE, LACK], [None, REFUSE]), ids=["native", "refused", "lacking"])
def test_a_graph_has_the_whole_screen_and_gives_it_back(notebook: NotebookPage, spoil: str | None) -> None:
    graph = GraphPage.show(notebook, "resnet18")
    root = notebook.page.locator(ROOT)
    if spoil:
        root.evaluate(spoil)
    canvas = graph.find(".mkg-graph-canvas")
    canvas.scroll_into_view_if_needed()
    notebook.pause(200)
    size, shown = canvas.bounding_box(), sorted(graph.nodes())
    canvas.focus()
    notebook.page.keyboard.press("Shift+F")
    if spoil == LACK:
        # what is fixed is clipped by JupyterLab: it fills no more than its part of the page
        notebook.wait_for(f"() => document.querySelector('{ROOT}').classList.contains('mkg-is-full')")
    else:
        assert wait_until_full(notebook, root, True) == {"fills": True, "onTop": True, "api": spoil is None}
        larger = canvas.bounding_box()
        assert size is not None
        assert larger is not None
        assert larger["width"] > 1.1 * size["width"]
        assert larger["height"] > 1.1 * size["height"]
        picture = graph.find(".mkg-graph-picture").evaluate("canvas => canvas.clientWidth")
        assert picture == pytest.approx(larger["width"], abs=1)
    assert set(graph.nodes()) >= {name for name in shown if name in ("conv1", "layer1", "layer4", "fc")}
    assert own(root, "full-screen").get_attribute("aria-label") == "Exit full screen"
    notebook.screenshot(f"full-screen-{'native' if spoil is None else 'refused' if spoil == REFUSE else 'lacking'}")
    notebook.page.keyboard.press("Escape")
    wait_until_full(notebook, root, False)
    assert own(root, "full-screen").get_attribute("aria-label") == "Full screen"
    notebook.wait_for(f"() => !document.querySelector('{ROOT}').matches('[popover], .mkg-is-full')")
    assert canvas.bounding_box() == size
    graph.click("layer1")
    graph.wait_for_selection("layer1")


@in_shared_page
def test_all_of_a_graph_stays_in_view_on_the_whole_screen(notebook: NotebookPage) -> None:
    graph = GraphPage.show(notebook, "resnet18")
    whole = f"""() => {{
      const stage = document.querySelector('{ROOT} .mkg-graph-canvas').mkgStage;
      const [left, top, width, height] = stage.camera.view;
      return stage.picture.items.every(({{ box: [x, y, across, down] }}) =>
        x >= left && y >= top && x + across <= left + width && y + down <= top + height);
    }}"""
    graph.fit()
    assert graph.evaluate(whole)
    graph.find(".mkg-full-screen").click()
    wait_until_full(notebook, notebook.page.locator(ROOT), True)
    notebook.wait_for(whole, timeout=5_000)
    notebook.page.keyboard.press("Escape")
    wait_until_full(notebook, notebook.page.locator(ROOT), False)
    notebook.wait_for(whole, timeout=5_000)


@in_shared_page
@pytest.mark.parametrize("show", sampled(SHOWS, [show_graph, show_bench]))
def test_every_widget_has_the_whole_screen_and_a_tab(
    notebook: NotebookPage, show: Callable[[NotebookPage], str]
) -> None:
    selector = show(notebook)
    root = notebook.page.locator(selector).first
    button = own(root, "full-screen")
    button.scroll_into_view_if_needed()
    before = root.bounding_box()
    button.click()
    assert wait_until_full(notebook, root, True) == {"fills": True, "onTop": True, "api": True}
    notebook.pause(300)
    notebook.screenshot(f"full-{show.__name__}")
    notebook.page.keyboard.press("Escape")
    wait_until_full(notebook, root, False)
    assert root.bounding_box() == before

    own(root, "open-tab").click()
    name = selector.rpartition(" ")[2]
    shown = notebook.page.locator(f"{TAB} > {name}")
    shown.wait_for()
    notebook.pause(500)
    area = notebook.page.locator(TAB).bounding_box()
    assert area is not None
    assert shown.bounding_box() == area
    assert not own(shown, "open-tab").is_visible()  # it has its tab
    assert own(shown, "full-screen").is_visible()
    notebook.screenshot(f"tab-{show.__name__}")
    notebook.page.locator(".lm-TabBar-tab.lm-mod-current .lm-TabBar-tabCloseIcon").last.click()
    shown.wait_for(state="detached")
    assert root.is_visible()


@in_shared_page
def test_a_tab_shows_the_same_live_model(notebook: NotebookPage) -> None:
    graph = GraphPage.show_code(notebook, GRAPH_SETUP.format(model="resnet18"), SHOW)
    graph.find(".mkg-graph-canvas").focus()
    notebook.page.keyboard.press("Shift+T")
    tab = notebook.page.locator(f"{TAB} {ROOT}")
    tab.wait_for()
    notebook.wait_for(f"() => document.querySelector('{TAB} {ROOT}[data-mkg-ready]') !== null")
    tab.locator('[role=treeitem][data-mkg-path="layer3"]').click()
    notebook.wait_for_value("graph.selected", "layer3")
    panels = f"() => Array.from(document.querySelectorAll('{ROOT} .mkg-side-panel'), panel => panel.dataset.mkgPath)"
    notebook.wait_for(f"() => JSON.stringify(({panels})()) === JSON.stringify(['layer3', 'layer3'])")
    label = notebook.page.locator(".lm-TabBar-tab.lm-mod-current .lm-TabBar-tabLabel", has_text="ModelGraph: ResNet")
    assert label.count() == 1

    # a model that goes takes its tab along
    notebook.execute("graph.close()")
    tab.wait_for(state="detached")
    assert notebook.page.locator(TAB).count() == 0


@in_shared_page
def test_keys_of_the_window_are_letters_in_a_field(notebook: NotebookPage) -> None:
    graph = GraphPage.show(notebook, "resnet18")
    box = graph.find(".mkg-search input")
    box.focus()
    notebook.page.keyboard.press("Shift+F")
    notebook.page.keyboard.press("Shift+T")
    notebook.pause(300)
    assert box.input_value() == "FT"
    assert notebook.page.locator(f"{TAB}, .mkg-is-full").count() == 0
    notebook.wait_for(READY)
