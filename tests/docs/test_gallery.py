"""The gallery: pages that `mk.save_html` wrote while the site was built work from the disk, offline."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from browser import graph as graphs
from browser.graph import GraphPage
from browser.saved import saved_page
from docs.site import ROOT, Site

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Frame
    from playwright.sync_api import Page as BrowserPage

Opened = Callable[..., AbstractContextManager["BrowserPage"]]

ENTRIES = sorted(path.stem for path in (ROOT / "docs" / "gallery").glob("*.md") if path.stem != "index")
FEWEST_MODELS = 10
LIGHT = 128  # of most of a picture
APART = 2  # brightness by which pictures differ on average: two decoders do by little
GRAPH, PANEL = graphs.ROOT, "document.querySelector('.mkg-side-panel').dataset.mkgPath"
GROUND = f"() => getComputedStyle(document.querySelector('{graphs.ROOT}')).backgroundColor"


def code_of(name: str) -> str:
    """The code that stands on an entry's page."""
    return (ROOT / "docs" / "gallery" / f"{name}.md").read_text("utf-8").partition("```{live}")[2].partition("```")[0]


MODELS = [name for name in ENTRIES if "mk.ModelGraph(model" in code_of(name)]


def test_there_are_models_and_every_widget() -> None:
    assert len(MODELS) >= FEWEST_MODELS
    widgets = ("ModelGraph", "MaskEditor", "ForwardPlayer", "MetricPanel", "KnowledgeExplorer")
    shown = "".join(map(code_of, ENTRIES))
    assert [widget for widget in widgets if f"mk.{widget}(" not in shown] == []


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_is_whole(site: Site, name: str) -> None:
    """A card that leads to it, a frame with a title that keys reach, and the code that made it."""
    cards = site.pages["gallery/index.html"].soup.select(".live-cards > li")
    card = next(card for card in cards if card.a["href"] == f"{name}.html")
    assert [image["class"] for image in card.find_all("img")] == [["only-light"], ["only-dark"]]
    page = site.pages[f"gallery/{name}.html"].soup
    title, first = page.article.h1.find(string=True), page.article.p.get_text()
    assert [one.get_text() for one in card.find_all("p")] == [title, first]
    frame = page.find("iframe")
    assert frame["title"] == f"{title}, live"
    assert frame.get("tabindex") != "-1"
    assert page.select_one(".highlight-python").get_text().strip().endswith(f'"{name}.html")')


@contextmanager
def in_a_frame(opened: Opened, name: str) -> Iterator[Frame]:
    """The saved page in its frame, once it shows a graph."""
    with opened(f"gallery/{name}.html") as page:
        page.locator(".live iframe").scroll_into_view_if_needed()
        page.frame_locator(".live iframe").locator(f"{GRAPH} [role=treeitem]").first.wait_for()
        yield page.frames[1]


def test_a_widget_works_in_its_frame(opened: Opened) -> None:
    with in_a_frame(opened, "resnet152") as frame:
        frame.locator('[role=treeitem][data-mkg-path="fc"]').click()
        frame.wait_for_function(f"() => {PANEL} === 'fc'")
        frame.locator(".mkg-search input").first.fill("type:MaxPool2d")
        frame.locator(".mkg-search input").first.press("Enter")
        frame.wait_for_function(f"() => {PANEL} === 'maxpool'")


def searched(site: Site, browser: Browser, name: str) -> None:
    """The entry's saved page is alone and finds by a search what a click selects as well."""
    with saved_page(browser, site.folder / "live" / f"{name}.html", offline=True) as page:
        page.wait_for(graphs.READY)
        graph = GraphPage(page)
        paths = [item.get_attribute("data-mkg-path") for item in graph.find("[role=treeitem]").all()]
        path = next(path for path in paths if path)  # the last is often the only linear layer
        graph.click(path)
        page.wait_for(f"path => {PANEL} === path", path)
        page.page.keyboard.press("/")
        page.page.keyboard.type("type:Linear" if name != "unet" else "type:ConvTranspose2d")
        page.page.keyboard.press("Enter")
        page.wait_for(f"path => {PANEL} !== path", path)


def test_a_saved_page_works_alone(site: Site, browser: Browser) -> None:
    searched(site, browser, "llama")


@pytest.mark.nightly
@pytest.mark.parametrize("name", MODELS)
def test_every_saved_model_works_alone(site: Site, browser: Browser, name: str) -> None:
    searched(site, browser, name)


@pytest.mark.parametrize("name", [name for name in ENTRIES if name not in MODELS])
def test_every_other_widget_is_alone(site: Site, browser: Browser, name: str) -> None:
    with saved_page(browser, site.folder / "live" / f"{name}.html", offline=True) as page:
        assert page.page.locator(".mkg-widget").first.bounding_box()["height"] > 300
        assert page.page.locator("[role=alert]:visible").count() == 0


@contextmanager
def served(site: Site) -> Iterator[str]:
    """The site as a server gives it out: its address."""
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(site.folder))
    handler.log_message = lambda *_: None  # type: ignore[attr-defined]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("is_served", [False, True], ids=["from the disk", "served"])
def test_a_frame_follows_the_switch_of_the_site(site: Site, browser: Browser, is_served: bool) -> None:
    with served(site) if is_served else nullcontext(site.folder.as_uri()) as address:
        page = browser.new_page(color_scheme="light")
        page.goto(f"{address}/gallery/resnet152.html")
        steps = page.evaluate("() => history.length")
        page.frame_locator(".live iframe").locator(f"{GRAPH} [role=treeitem]").first.wait_for()
        frame = page.frames[1]
        assert frame.evaluate(GROUND) == "rgb(255, 255, 255)"
        page.evaluate("() => { document.documentElement.dataset.theme = 'dark'; }")
        frame.wait_for_function(f"() => ({GROUND})() === 'rgb(27, 31, 36)'")
        assert page.evaluate("() => history.length") == steps
        page.close()


def test_cards_have_pictures_that_differ(site: Site) -> None:
    """Of each entry one in the colors of each theme, none of them like that of another."""
    images = {path.stem: np.asarray(Image.open(path).convert("L"), float) for path in picture_files(site)}
    assert set(images) == {f"{name}_{theme}" for name in ENTRIES for theme in ("light", "dark")}
    for name, image in images.items():
        assert image.shape == (300, 480)
        assert (np.median(image) > LIGHT) == name.endswith("_light"), name
    for theme in ("light", "dark"):
        for one, other in combinations(ENTRIES, 2):
            apart = np.abs(images[f"{one}_{theme}"] - images[f"{other}_{theme}"]).mean()
            assert apart > APART, f"{one} and {other} look alike"


def picture_files(site: Site) -> list[Path]:
    cards = site.pages["gallery/index.html"].soup.select(".live-cards img")
    return [(site.folder / "gallery" / str(image["src"])).resolve() for image in cards]
