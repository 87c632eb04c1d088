"""axe-core over what opens on request: keys, menus of tools, a notice of the search, a group of operators, the grid."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import modulekg_widgets as mk
from browser.axe import findings
from browser.graph import GraphPage
from browser.saved import SavedPage, saved_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

WIDE = {"width": 1300, "height": 900}
SMALL = {"width": 400, "height": 900}
READY = "() => document.querySelector('.mkg-widget[data-mkg-ready=\"true\"]') !== null"
GROUP = "\0ops:2:9"


class Net(nn.Module):
    """Two layers with a group of operators between them, and two that are folded."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)
        self.twins = nn.Sequential(*[nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.softmax(self.first(x) * 2 + 1, -1)
        y = y.cumsum(-1) - y.mean(-1, keepdim=True)
        return self.twins(self.last(y.sort(-1).values.exp().clamp(max=3)))


def graph() -> mk.ModelGraph:
    return mk.ModelGraph(Net(), torch.zeros(2, 4), color_by="params", expanded=["twins"])


def masks() -> mk.MaskEditor:
    torch.manual_seed(0)
    return mk.MaskEditor(Net(), torch.zeros(2, 4))


def metrics() -> mk.MetricPanel:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    monitor = mk.Monitor(model, {nn.Linear: ["OutputSndNorm", "WeightNorm"]})
    with monitor:
        for step in range(8):
            loss = model(torch.ones(2, 4)).square().mean()
            loss.backward()
            monitor.log({"loss": loss.item()})
            monitor.track(step)
    return mk.MetricPanel(monitor)


def show_keys(page: SavedPage) -> None:
    page.page.locator(".mkg-graph-canvas").click(position={"x": 5, "y": 5})
    page.page.keyboard.press("?")
    page.page.get_by_role("dialog").wait_for()


def show_tools(page: SavedPage) -> None:
    page.page.locator(".mkg-more-opener").click()
    page.page.locator(".mkg-more-tools.mkg-is-open").wait_for()


def show_notice(page: SavedPage) -> None:
    page.page.locator(".mkg-search").click()
    page.page.keyboard.type("speed > 3")
    page.page.locator(".mkg-search-count.mkg-is-notice").wait_for()
    assert page.page.locator("datalist").count() == 1  # the browser draws the suggestions


def show_operators(page: SavedPage) -> None:
    shown = GraphPage(page)  # type: ignore[arg-type]
    shown.click(GROUP)
    page.page.locator(".mkg-operators").wait_for()


def show_operator_group(page: SavedPage) -> None:
    shown = GraphPage(page)  # type: ignore[arg-type]
    shown.double_click(GROUP)
    page.page.locator(".mkg-operators").wait_for()


def show_twins(page: SavedPage) -> None:
    page.page.locator("[data-mkg-copies]").click()
    page.page.locator("[role=treeitem][data-mkg-path='twins.1']").wait_for()


def show_grid(page: SavedPage) -> None:
    page.page.locator(".mkg-metric-stage").wait_for()


STATES: list[tuple[Callable[[], Any], dict[str, int], Callable[[SavedPage], None]]] = [
    (graph, WIDE, show_keys),
    (graph, WIDE, show_notice),
    (graph, WIDE, show_operators),
    (graph, WIDE, show_operator_group),
    (graph, WIDE, show_twins),
    (graph, SMALL, show_tools),
    (graph, SMALL, show_notice),
    (masks, SMALL, show_tools),
    (metrics, WIDE, show_grid),
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[], Any]], Path]:
    folder = tmp_path_factory.mktemp("menus")

    def written(make: Callable[[], Any]) -> Path:
        file = folder / f"{make.__name__}.html"
        return file if file.exists() else mk.save_html(make(), file)

    return written


@pytest.fixture(params=["light", "dark"])
def theme(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize(
    ("make", "viewport", "opened"),
    STATES,
    ids=[f"{made.__name__}-{act.__name__}-{size['width']}" for made, size, act in STATES],
)
def test_nothing_grave_is_found_in_what_opens(
    browser: Browser,
    saved: Callable[[Callable[[], Any]], Path],
    make: Callable[[], Any],
    viewport: dict[str, int],
    opened: Callable[[SavedPage], None],
    theme: str,
) -> None:
    with saved_page(browser, saved(make), viewport=viewport, color_scheme=theme) as page:
        page.wait_for(READY)
        opened(page)
        page.screenshot(f"menus-{make.__name__}-{opened.__name__}-{viewport['width']}-{theme}")
        assert findings(page.page) == []
