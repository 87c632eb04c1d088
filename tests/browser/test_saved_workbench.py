"""Saved pages of what a kernel answers in a notebook: masks are edited and pictures shown without one."""

from __future__ import annotations

from pathlib import Path

import ipywidgets
import pytest
import torch
from playwright.sync_api import Browser
from torch import nn

import modulekg_widgets as mk
from browser.graph import READY, GraphPage
from browser.saved import SavedPage, saved_page
from cases.payloads import PAYLOADS

EDITOR, PLAYER, GRAPH = ".mkg-mask-editor", ".mkg-forward-player", ".mkg-model-graph"
PLAYER_MODULE = "modulekg_widgets.widgets.forward_player"
MESSAGE = f"{PLAYER} .mkg-forward-message"
SAID = f"text => document.querySelector('{MESSAGE}').textContent === text"
SHOWN_MAPS = f"key => document.querySelector('{PLAYER} .mkg-forward-pictures').dataset.mkgMaps === key"
COARSE_MAPS = f"key => document.querySelector('{PLAYER} .mkg-forward-pictures').dataset.mkgCoarse === key"
CHANNELS = 80  # more than one page of pictures


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, CHANNELS, 3), nn.ReLU(), nn.Conv2d(CHANNELS, 8, 3), nn.Flatten(), nn.Linear(8 * 16, 4)
    )


@pytest.fixture(scope="module")
def x() -> torch.Tensor:
    return torch.randn(2, 3, 8, 8)


def set_ratio(page: SavedPage, ratio: float) -> None:
    field = page.page.locator(f"{EDITOR} .mkg-mask-ratio-field")
    field.fill(str(ratio))
    field.press("Enter")


def wait_for_dropped(page: SavedPage, text: str) -> None:
    page.wait_for(f"text => document.querySelector('{EDITOR} .mkg-mask-dropped').textContent === text", text, 5_000)


def shares(page: SavedPage) -> dict[str, str]:
    """The color of each module."""
    items = f"document.querySelector('{GRAPH} .mkg-graph-canvas').mkgStage.picture.items"
    return page.page.evaluate(f"() => Object.fromEntries({items}.map(item => [item.id, item.fill]))")


def test_masks_are_tried_out_in_the_page(browser: Browser, tmp_path: Path, model: nn.Module, x: torch.Tensor) -> None:
    editor = mk.MaskEditor(model, x)
    file = mk.save_html(editor, tmp_path / "editor.html")
    before = editor.revision
    with saved_page(browser, file) as page:
        page.wait_for(f"() => document.querySelector('{EDITOR}[data-mkg-ready=true]') !== null")
        assert page.page.title() == "Sequential"
        wait_for_dropped(page, "No channels selected")
        fold = page.page.locator(f"{EDITOR} .mkg-mask-fold-toggle")
        assert fold.inner_text().startswith("8 fixed: 4 × positions of the kernel")
        frozen = page.page.locator(f"{EDITOR} .mkg-mask-row.mkg-is-frozen").first
        assert not frozen.is_visible()
        fold.press("Enter")
        frozen.wait_for(state="visible")
        fold.click()
        frozen.wait_for(state="hidden")
        set_ratio(page, 0.5)
        wait_for_dropped(page, "44 channels in 2 groups removed")
        text = page.page.locator(f"{EDITOR} .mkg-mask-counters").inner_text()
        cut = 3 * 9 * 40 + 40 + 40 * 4 * 9 + 4 + 4 * 16 * 4 + 4
        assert f"{cut / 1000:.2f} k" in text
        page.page.locator(f"{EDITOR} .mkg-mask-undo").click()
        wait_for_dropped(page, "No channels selected")
        set_ratio(page, 0.25)
        page.pause(1500)  # longer than the dry run is waited for
        assert "Waiting" not in page.page.locator(EDITOR).inner_text()
        for name in ("mask", "cut", "save", "load", "check"):
            assert not page.page.locator(f".mkg-mask-{name}").is_visible()
        page.screenshot("saved-editor")
    assert editor.revision == before


def test_a_saved_plan_is_shown_with_its_report(
    browser: Browser, tmp_path: Path, model: nn.Module, x: torch.Tensor
) -> None:
    editor = mk.MaskEditor(model, x)
    editor.plan = mk.plan(editor.graph, per_axis={"0.out": [1, 5]})
    with saved_page(browser, mk.save_html(editor, tmp_path / "editor.html")) as page:
        wait_for_dropped(page, "2 channels in 1 group removed")
        assert "Dry run passed" in page.page.locator(EDITOR).inner_text()
        set_ratio(page, 0.25)
        wait_for_dropped(page, "22 channels in 2 groups removed")
        page.wait_for(f"() => document.querySelector('{EDITOR}').innerText.includes('Outdated')")


def test_the_forward_pass_is_stepped_through(
    browser: Browser, tmp_path: Path, model: nn.Module, x: torch.Tensor
) -> None:
    player = mk.ForwardPlayer(model, x, step=1, playing=True)
    with saved_page(browser, mk.save_html(player, tmp_path / "player.html")) as page:
        maps = page.page.locator(f"{PLAYER} .mkg-forward-pictures")
        page.wait_for(SHOWN_MAPS, "1,1,0,0")
        assert maps.locator("canvas").count() == 64
        page.pause(1200)
        assert maps.get_attribute("data-mkg-maps") == "1,1,0,0"  # a page plays only when it is told to
        maps.locator(".mkg-forward-pager button").last.click()
        page.wait_for(SHOWN_MAPS, "1,1,0,1")
        assert maps.locator("canvas").count() == CHANNELS - 64
        for step in range(2, len(player)):
            page.page.locator(f"{PLAYER} .mkg-forward-next").click()
            page.wait_for(SHOWN_MAPS, f"1,{step},0,0")
        assert "not in the saved page" not in page.page.locator(PLAYER).inner_text()
        page.screenshot("saved-player")


def test_pictures_beyond_the_limit_are_said_to_be_missing(
    browser: Browser, tmp_path: Path, model: nn.Module, x: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{PLAYER_MODULE}.MAX_PIXEL_BYTES", 1000)  # the rest of one output's pictures, and not of two
    player = mk.ForwardPlayer(model, x, step=1)
    with saved_page(browser, mk.save_html(player, tmp_path / "player.html")) as page:
        maps = page.page.locator(f"{PLAYER} .mkg-forward-pictures")
        turn = maps.locator(".mkg-forward-pager button").last
        turn.click()
        page.wait_for(SHOWN_MAPS, "1,1,0,1")
        assert page.page.locator(MESSAGE).is_hidden()
        page.page.locator(f"{PLAYER} .mkg-forward-next").click()
        page.wait_for(SHOWN_MAPS, "1,2,0,0")
        turn.click()
        page.wait_for(SAID, "This picture is not in the saved page.")
        assert maps.locator("canvas:visible").count() == 0


def test_coarse_pictures_without_finer_ones_are_said_to_be_coarse(
    browser: Browser, tmp_path: Path, model: nn.Module, x: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a large model: what came with the player is drawn, and is not said to be missing."""
    monkeypatch.setattr(f"{PLAYER_MODULE}.MAX_PIXEL_BYTES", 1)
    monkeypatch.setattr("modulekg_widgets.engine.playback.player.MAX_PREVIEW_BYTES", 1500)
    player = mk.ForwardPlayer(model, x)
    with saved_page(browser, mk.save_html(player, tmp_path / "player.html")) as page:
        for step in (1, 2):
            page.page.locator(f"{PLAYER} .mkg-forward-next").click()
            page.wait_for(COARSE_MAPS, f"1,{step},0,0")
            page.wait_for(SAID, "Finer pictures of this step are not in the saved page.")
            assert page.page.locator(f"{PLAYER} .mkg-forward-pictures canvas:visible").count() == 16


def test_a_workbench_is_linked_in_the_page(browser: Browser, tmp_path: Path, model: nn.Module, x: torch.Tensor) -> None:
    bench = mk.Workbench(model, x)
    with saved_page(browser, mk.save_html(bench, tmp_path / "bench.html")) as page:
        page.wait_for(READY)
        page.wait_for(f"() => document.querySelector('{EDITOR}[data-mkg-ready=true]') !== null")
        before = shares(page)
        assert len(set(before.values())) == 1  # as without colors, until something goes
        assert page.page.locator(f"{GRAPH} .mkg-legend").first.is_hidden()
        set_ratio(page, 0.5)
        wait_for_dropped(page, "44 channels in 2 groups removed")
        page.wait_for(
            f"""before => {{
          const {{ items }} = document.querySelector('{GRAPH} .mkg-graph-canvas').mkgStage.picture;
          return items.some(item => item.fill !== before[item.id]);
        }}""",
            before,
        )
        GraphPage(page).open_panes()  # type: ignore[arg-type]
        axis = page.page.locator(f"{GRAPH} .mkg-side-panel").get_by_text("2.out", exact=True)
        axis.click()
        page.wait_for(
            f"""() => document.querySelector('{EDITOR} [aria-current=true], {EDITOR} .mkg-is-current')
              ?.textContent.includes('2.out')"""
        )
        page.screenshot("saved-workbench")
    assert bench.graph.axis is None


@pytest.mark.nightly
def test_hostile_texts_stay_texts(browser: Browser, tmp_path: Path) -> None:
    """As names of modules and classes, in axes, reasons, reports and steps."""
    net = type(PAYLOADS[0], (nn.Sequential,), {"__module__": PAYLOADS[1]})()
    for text in PAYLOADS:
        net._modules[text] = type(text, (nn.Linear,), {"__module__": text})(4, 4)
    x = torch.zeros(1, 4)
    bench = mk.Workbench(net, x)
    bench.editor.plan = mk.plan(bench.editor.graph, ratio=0.5)
    page_of_all = ipywidgets.VBox([bench, mk.ForwardPlayer(net, x, hide_shapes=True)])
    with saved_page(browser, mk.save_html(page_of_all, tmp_path / "hostile.html")) as page:
        page.wait_for(READY)
        page.wait_for(f"() => document.querySelector('{PLAYER}[data-mkg-ready=true]') !== null")
        finder = page.page.locator(f"{EDITOR} input[type=search]")
        for text in PAYLOADS[:-1]:
            finder.fill(text)
            page.wait_for(f"text => document.querySelector('{EDITOR}').textContent.includes(text)", text)
        finder.fill("")
        for step in range(1, len(PAYLOADS) + 1):
            page.page.locator(f"{PLAYER} .mkg-forward-next").click()
            page.wait_for(f"step => document.querySelector('{PLAYER}').dataset.mkgStep === step", str(step))
        assert PAYLOADS[-1] in page.page.locator(PLAYER).evaluate("player => player.textContent")
        page.screenshot("saved-hostile-workbench")
