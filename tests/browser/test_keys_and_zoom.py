"""Every control is reached with Tab, is seen to have the focus and has a name; less motion; enlarged to 200 %."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from browser.fixtures import in_shared_page
from browser.keys import Walk, moving, too_wide, walk
from browser.knowledge import ROOT as EXPLORER
from browser.knowledge import ExplorerPage
from browser.lab import JupyterServer
from browser.masks import HIDDEN, WIDE, MasksPage
from browser.masks import ROOT as MASKS
from browser.page import VIEWPORT, NotebookPage
from browser.test_accessibility import PLAYER, TORCH
from browser.test_forward_player import ROOT as FORWARD
from browser.test_forward_player import PlayerPage
from browser.test_workbench import BENCH
from browser.test_workbench import show as show_workbench
from sampling import sampled

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def show_masks(notebook: NotebookPage) -> str:
    masks = MasksPage.show(notebook)
    masks.click(HIDDEN, 3)
    masks.drag(WIDE, 2, 17)
    masks.wait_for_report("Dry run passed")
    masks.find(".mkg-mask-more").first.click()
    return MASKS


def show_player(notebook: NotebookPage) -> str:
    player = PlayerPage.show(notebook, TORCH + PLAYER, "display(player)")
    player.find('[data-mkg-step="1"]').click()
    player.wait_for_maps(1)
    player.find(".mkg-forward-map").nth(3).click()
    return FORWARD


def show_quiz(notebook: NotebookPage) -> str:
    PlayerPage.show(notebook, TORCH + PLAYER, "player.step, player.hide_shapes = 1, True\ndisplay(player)")
    return FORWARD


def show_bench(notebook: NotebookPage) -> str:
    _, masks, _ = show_workbench(notebook)
    masks.click(HIDDEN, 3)
    masks.wait_for_report("Dry run passed")
    return BENCH


def show_explorer(notebook: NotebookPage) -> str:
    explorer = ExplorerPage.show(notebook)
    explorer.row(explorer.item_of("Family:Net")).locator(".mkg-twisty").click()
    notebook.execute("explorer.selected = 'Model:net3'")
    explorer.wait_for_selection("Model:net3")
    return EXPLORER


SHOWS = pytest.mark.parametrize(
    "show", sampled([show_bench, show_explorer, show_masks, show_player, show_quiz], [show_explorer])
)


@in_shared_page
@SHOWS
def test_tab_reaches_every_control(notebook: NotebookPage, show: Callable[[NotebookPage], str]) -> None:
    root = notebook.page.locator(show(notebook))
    found, count = walk(root)
    assert count > 10
    assert found == Walk()


@in_shared_page
def test_the_walk_finds_what_is_wrong(notebook: NotebookPage) -> None:
    root = notebook.page.locator(show_masks(notebook))
    root.evaluate("""root => {
      for (const style of ['', 'outline: none; box-shadow: none']) {
        const button = Object.assign(document.createElement('button'), { textContent: style ? 'unseen' : '' });
        button.style.cssText = `width: 20px; ${style}`;
        root.prepend(button);
      }
      const trap = Object.assign(document.createElement('a'), { href: '#', textContent: 'unreached' });
      trap.addEventListener('focus', () => trap.blur());
      root.append(trap);
    }""")
    found, _ = walk(root)
    assert len(found.unseen) == len(found.unnamed) == 1
    assert "unseen" in found.unseen[0]
    assert ["unreached" in text for text in found.unreached] == [True]


@in_shared_page
def test_the_dialog_keeps_the_focus_and_gives_it_back(notebook: NotebookPage) -> None:
    masks = MasksPage(notebook)
    show_masks(notebook)
    masks.button("cut").focus()
    notebook.page.keyboard.press("Enter")
    dialog = masks.find("[role=dialog]")
    dialog.wait_for()
    inside = "dialog => dialog.contains(document.activeElement) && document.activeElement.className"
    stops = []
    for _ in range(4):
        stops.append(dialog.evaluate(inside))
        notebook.page.keyboard.press("Tab")
    assert all(stops), stops
    assert stops[0] == stops[2] != stops[1] == stops[3]
    notebook.page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert masks.button("cut").evaluate("button => button === document.activeElement")
    assert notebook.value("editor.stage") == ""


@pytest.fixture
def calm(browser: Browser, jupyterlab: JupyterServer) -> Iterator[NotebookPage]:
    """A page of somebody who asked the system for less motion."""
    page = NotebookPage(browser, jupyterlab, reduced_motion="reduce")
    yield page
    page.assert_healthy()
    page.close()
    jupyterlab.shut_down_kernels()


@pytest.mark.nightly
def test_nothing_moves_for_those_who_asked_for_less_motion(calm: NotebookPage, notebook: NotebookPage) -> None:
    for page, is_calm in ((calm, True), (notebook, False)):
        show_bench(page)
        root = page.page.locator(BENCH)
        assert (moving(root) == []) == is_calm
    for show in (show_player, show_quiz, show_explorer):
        calm.close_notebook()
        assert moving(calm.page.locator(show(calm))) == []


@in_shared_page
@SHOWS
def test_at_200_percent_nothing_is_wider_than_its_output(
    notebook: NotebookPage, show: Callable[[NotebookPage], str]
) -> None:
    root = notebook.page.locator(show(notebook))
    try:
        notebook.page.set_viewport_size({"width": 640, "height": 450})
        notebook.pause(400)
        root.locator("button:visible").first.scroll_into_view_if_needed()
        assert too_wide(root) == []
        notebook.screenshot(f"zoomed-{show.__name__}")
        root.evaluate("root => { root.style.width = '1200px'; }")
        assert too_wide(root) != []
    finally:
        notebook.page.set_viewport_size(VIEWPORT)
