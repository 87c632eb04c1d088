"""The site is built without a warning and without a network; every link leads somewhere, and every page can be read.

Links to other hosts are looked at for their form alone; the workflow *Documentation*, of which changes and releases get
their site, asks them with `sphinx-build -b linkcheck`, and stops a build that takes longer than five minutes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

import modulekg_widgets as mk
from architecture.docstrings import public
from browser.axe import CONTRAST, FEWEST_TEXTS, MEASURED, described, texts_of
from docs.site import ROOT, Build, Site, built

if TYPE_CHECKING:
    from playwright.sync_api import Page as BrowserPage

Opened = Callable[..., AbstractContextManager["BrowserPage"]]

CPU_SECONDS = 180  # of two cores in the five minutes that a build may take
SAMPLE = [
    "index.html",
    "how_to/find_the_nan.html",
    "gallery/index.html",
    "gallery/resnet152.html",
    "reference/files.html",
    "notebooks/09_model_files.html",
    "quality.html",
    "saving_table.html",
]
SCHEMES = {"light": {}, "dark": {"runOnly": [CONTRAST]}}  # the same elements in other colors
NARROW = 420


@pytest.fixture
def build(site: Site) -> Build:
    """How the site was built."""
    if site.build is None:
        pytest.skip("of the site in $MODULEKG_SITE nobody knows how it was built")
    return site.build


def test_the_site_is_built_without_a_warning(build: Build) -> None:
    assert build.printed == ""
    assert build.code == 0


def test_it_takes_no_longer_than_it_may(build: Build) -> None:
    assert build.cpu_seconds < CPU_SECONDS


def test_of_a_site_that_is_there_nothing_is_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODULEKG_SITE", str(tmp_path))
    monkeypatch.delenv("MODULEKG_REQUIRE_ALL", raising=False)
    assert built(tmp_path) == Site(tmp_path.resolve(), None)


def test_every_document_has_a_page(site: Site) -> None:
    documents = [path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts]
    names = {path.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for path in documents}
    notebooks = {f"notebooks/{path.stem}.html" for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert notebooks
    assert (names | notebooks) - set(site.pages) == set()


def test_every_link_leads_somewhere(site: Site) -> None:
    wrong = {
        f"{name}: {reason}"
        for name, page in site.pages.items()
        for address in [*page.links, *page.loaded]
        if (reason := site.missing(page, address))
    }
    assert wrong == set()


def test_no_page_loads_anything_of_another_host(site: Site) -> None:
    foreign = {address for page in site.pages.values() for address in page.loaded if urlsplit(address).netloc}
    assert foreign == set()
    sheets = [path.read_text("utf-8") for path in site.folder.rglob("*.css")]
    assert [
        found for text in sheets for found in re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\"']+", text)
    ] == []


def test_every_public_name_is_in_the_reference(site: Site) -> None:
    ids = set().union(*(page.ids for name, page in site.pages.items() if name.startswith("reference/")))
    told = {id.removeprefix("module-").replace("modulekg_widgets", "mk", 1) for id in ids}
    names = {f"mk.{name}" for name in mk.__all__} | set(public())
    assert "mk.PruningPlan.cut" in names
    assert names - told == set()


def findings(page: BrowserPage, **options: object) -> list[str]:
    """What axe-core finds wrong in a page, by the rule and the place."""
    from axe_playwright_python.sync_playwright import Axe

    quiet = {**MEASURED, "preload": False, **options}  # it would ask for style sheets again
    response = Axe().run(page, options=quiet).response
    assert texts_of(response) >= FEWEST_TEXTS
    return [f"{rule['id']}: {described(node)}" for rule in response["violations"] for node in rule["nodes"]]


def assert_accessible(opened: Opened, names: list[str]) -> None:
    found = []
    for scheme, options in SCHEMES.items():
        for name in names:
            with opened(name, scheme) as page:
                assert page.evaluate("() => document.documentElement.dataset.theme") == scheme
                found += [f"{name} {scheme}: {text}" for text in findings(page, **options)]
    assert found == []


def test_pages_can_be_read_in_light_and_in_dark(opened: Opened) -> None:
    assert_accessible(opened, SAMPLE[::2])


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_all_pages_can_be_read(site: Site, opened: Opened) -> None:
    others = {"genindex.html", "py-modindex.html", "search.html"}
    assert_accessible(opened, sorted(set(site.pages) - others))


def test_what_is_wrong_is_found(opened: Opened) -> None:
    with opened("index.html") as page:
        page.evaluate("() => document.querySelector('article').append(document.createElement('button'))")
        assert [text.partition(":")[0] for text in findings(page)] == ["button-name"]


@pytest.mark.parametrize("name", SAMPLE)
def test_a_page_fits_on_a_telephone(opened: Opened, name: str) -> None:
    with opened(name, width=NARROW) as page:
        assert page.evaluate("() => document.documentElement.scrollWidth") <= NARROW


def test_links_are_checked(tmp_path: Path) -> None:
    """Of a site that is made up."""
    (tmp_path / "b.html").write_text("<h1 id=here>b</h1>")
    (tmp_path / "a.html").write_text("<p id=top><a href=b.html>b</a></p>")
    site = Site(tmp_path.resolve())
    page = site.pages["a.html"]
    assert page.links == ["b.html"]
    good = ["b.html", "b.html#here", "#top", "https://example.org/x", "mailto:a@example.org"]
    assert [site.missing(page, address) for address in good] == [None] * len(good)
    assert site.missing(page, "c.html") == "there is no c.html"
    assert site.missing(page, "b.html#gone") == "b.html has no #gone"
    assert site.missing(page, "../b.html") == "there is no ../b.html"
    assert site.missing(page, "https:example") == "https:example is not an address"
