"""Where there is little room: names can be read, a wider window is used, and what is pointed at says the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from browser import graph as graphs
from browser.graph import ITEMS, ROOT, STAGE, GraphPage
from browser.saved import SavedPage, saved_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SITE = {"width": 896, "height": 620}  # the frame of the documentation's site
SMALL = {"width": 420, "height": 560}
TALL = {"width": 420, "height": 1100}
THREE_COLUMNS = {"width": 1010, "height": 620}  # the least width with a column for the tree alone
WIDE = {"width": 1280, "height": 620}

# what can be read of a row: its name as it is cut, and the signs and the class that are in its line
SEEN = f"""() => [...document.querySelectorAll('{ROOT} [data-mkg-path][role=treeitem]')].map(row => {{
  const label = row.querySelector('.mkg-row-label');
  const line = label.getBoundingClientRect();
  const isSeen = part => {{
    const {{ left, right, top, bottom }} = part.getBoundingClientRect();
    return right - left > 1 && right <= line.right + 1 && top >= line.top - 1 && bottom <= line.bottom + 1;
  }};
  const isWhole = part => part.scrollWidth <= part.clientWidth;
  const [start, end] = [label.querySelector('.mkg-row-start'), label.querySelector('.mkg-row-end')];
  const name = isWhole(start) ? label.querySelector('.mkg-row-name').textContent : '…' + (end?.textContent ?? '');
  return {{
    path: row.dataset.mkgPath,
    name: isSeen(start) && (!end || isSeen(end)) ? name : '',
    signs: [...label.querySelectorAll('.mkg-row-count, .mkg-row-block')].filter(isSeen).map(sign => sign.textContent),
    class: [...label.querySelectorAll('.mkg-row-class')].filter(isSeen).length,
  }};
}})"""

TITLES = f"() => {ITEMS}.map(item => item.texts[0]?.text ?? '')"
ZOOM = f"() => {STAGE}.camera.pose.zoom"
TIP = f"{ROOT} .mkg-metric-tip"


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.denselayer_convolution = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.denselayer_convolution(x)


class Net(nn.Module):
    """Names of which the ends differ, containers of one class, and a fold of residual blocks deep in the tree."""

    def __init__(self) -> None:
        super().__init__()
        for number in range(1, 5):
            stage = nn.Sequential(nn.Sequential(*[Block() for _ in range(12)]), nn.BatchNorm2d(8))
            self.add_module(f"batchnormalization{number}", nn.BatchNorm2d(8))
            self.add_module(f"layer{number}", stage)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.children():
            x = part(x)
        return x


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    widget = mk.ModelGraph(Net(), torch.zeros(1, 8, 4, 4), expanded=["layer3", "layer3.0"], color_by="params")
    return mk.save_html(widget, tmp_path_factory.mktemp("narrow") / "net.html")


@pytest.fixture
def page(browser: Browser, saved: Path, request: pytest.FixtureRequest) -> Iterator[SavedPage]:
    with saved_page(browser, saved, viewport=getattr(request, "param", SITE)) as page:
        page.wait_for(graphs.READY)
        yield page


@pytest.mark.parametrize("page", [THREE_COLUMNS], indirect=True, ids=["three columns"])
def test_the_tree_gives_names_their_room_first(page: SavedPage) -> None:
    rows = {row["path"]: row for row in page.page.evaluate(SEEN)}
    assert all(row["name"] for row in rows.values()), rows
    assert rows["layer3.0.0"]["name"] == "0"
    assert rows["layer3.0.0"]["signs"] == ["×12", "−"]
    siblings = [row["name"] for path, row in rows.items() if "." not in path]
    assert len(set(siblings)) == len(siblings)  # each is told from the others
    assert rows["batchnormalization1"]["class"] == 0  # which has given way
    title = page.page.locator('[data-mkg-path="layer3.0.0"]').get_attribute("title")
    assert "×12 same structure, own weights" in title
    assert "− " in title


@pytest.mark.parametrize("page", [SMALL], indirect=True, ids=["small"])
def test_small_cards_say_their_names(page: SavedPage) -> None:
    page.wait_for(f"() => ({ZOOM})() < 0.69")
    titles = page.page.evaluate(TITLES)
    assert {"layer1", "layer2", "layer4"} <= set(titles)
    assert "Sequential" not in titles


@pytest.mark.parametrize("page", [WIDE], indirect=True, ids=["wide"])
def test_a_wider_window_is_used_until_somebody_has_moved_the_picture(page: SavedPage) -> None:
    places = f"() => JSON.stringify({ITEMS}.map(item => item.box))"
    other = f"before => JSON.stringify({ITEMS}.map(item => item.box)) !== before"
    fresh = page.page.evaluate(places)
    page.page.set_viewport_size(TALL)
    page.wait_for(other, fresh)
    small = page.page.evaluate(places)
    page.page.set_viewport_size(WIDE)
    page.wait_for(other, small)
    assert page.page.evaluate(places) == fresh
    page.page.locator(f"{ROOT} .mkg-graph-canvas").hover()
    page.page.mouse.wheel(0, -100)
    page.page.set_viewport_size(TALL)
    page.page.wait_for_timeout(300)
    assert page.page.evaluate(places) == fresh


def test_a_card_under_the_pointer_stands_out_and_says_the_rest(page: SavedPage) -> None:
    graph = GraphPage(page)  # type: ignore[arg-type]
    plain = graph.find(".mkg-graph-picture").evaluate("canvas => canvas.toDataURL()")
    page.page.mouse.move(*graph.point("layer3.0.0"))
    page.wait_for(f"() => {STAGE}.picture.over === 'layer3.0.0'")
    tip = page.page.locator(TIP)
    tip.wait_for()
    for text in ("layer3.0.0", "Block", "×12 same structure, own weights", "− "):
        assert text in tip.inner_text()
    assert graph.find(".mkg-graph-picture").evaluate("canvas => canvas.toDataURL()") != plain
    page.page.mouse.move(2, 2)
    tip.wait_for(state="hidden")


SHARES = f"""() => {{
  const rect = selector => document.querySelector(selector).getBoundingClientRect();
  const [all, stage] = [rect('{ROOT}'), rect('{ROOT} .mkg-stage')];
  return {{ width: stage.width / all.width, area: stage.width * stage.height / (all.width * all.height) }};
}}"""
SHOWN = f"""() => {{
  const {{ camera, host }} = {STAGE};
  const {{ left, top, width, height }} = host.getBoundingClientRect();
  return JSON.stringify([camera.pose, left, top, width, height]);
}}"""
FOLD = f"{ROOT} .mkg-pane-gutter:not([hidden]) > .mkg-pane-fold"


@pytest.mark.parametrize("page", [{"width": 960, "height": 700}], indirect=True, ids=["960"])
def test_the_canvas_has_two_thirds_of_a_window(page: SavedPage) -> None:
    assert page.page.evaluate(SHARES)["width"] >= 0.65
    assert page.page.locator(f"{ROOT} [role=treeitem]").first.is_visible()
    assert page.page.locator(f"{ROOT} .mkg-side-panel").is_visible()


@pytest.mark.parametrize(
    "page", [{"width": width, "height": 700} for width in (400, 520, 600, 690)], indirect=True, ids=lambda size: size
)
def test_the_canvas_has_most_of_a_narrow_cell(page: SavedPage) -> None:
    assert page.page.evaluate(SHARES)["area"] >= 0.6
    fold = page.page.locator(FOLD)
    fold.click()  # the tree is one click away
    page.page.locator(f"{ROOT} [role=treeitem]").first.wait_for()
    fold.click()
    assert page.page.evaluate(SHARES)["area"] >= 0.6


@pytest.mark.parametrize("page", [WIDE], indirect=True, ids=["wide"])
def test_panes_stay_as_they_were_left(page: SavedPage) -> None:
    left, right = page.page.locator(FOLD).all()
    right.click()
    handle = page.page.locator(f"{ROOT} [role=separator]").first
    handle.focus()
    page.page.keyboard.press("ArrowRight")
    width = page.page.locator(f"{ROOT} .mkg-left").bounding_box()
    page.page.reload()
    page.wait_for(graphs.READY)
    assert page.page.locator(f"{ROOT} .mkg-left").bounding_box() == width
    assert page.page.locator(f"{ROOT} .mkg-side-panel").is_hidden()
    assert left.get_attribute("aria-expanded") == "true"


@pytest.mark.parametrize("page", [SITE, WIDE], indirect=True, ids=["one column", "three"])
def test_a_selection_moves_nothing(page: SavedPage) -> None:
    graph = GraphPage(page)  # type: ignore[arg-type]
    page.page.mouse.move(*graph.point("layer3.0.0"))
    before = page.page.evaluate(SHOWN)
    for path in ("layer3.0.0", "layer1", "batchnormalization2", "layer3.0.0"):
        graph.click(path)
        assert page.page.evaluate(SHOWN) == before, path


BAR = f"""() => {{
  const {{ offsetHeight, scrollWidth, clientWidth }} = document.querySelector('{ROOT} .mkg-bar');
  return [offsetHeight, scrollWidth > clientWidth];
}}"""


@pytest.mark.parametrize(
    "page", [{"width": width, "height": 700} for width in (400, 700, 960)], indirect=True, ids=lambda size: size
)
def test_the_tools_are_one_row_whatever_is_typed(page: SavedPage) -> None:
    height, is_cut = page.page.evaluate(BAR)
    assert (height < 50, is_cut) == (True, False)
    search = page.page.locator(f"{ROOT} input[type=search]")
    for query, found in {"Conv2d": "match", "params > 1Q": "", "type:Nothing": ""}.items():
        search.fill(query)
        page.wait_for(f"found => document.querySelector('{ROOT} .mkg-search-count').textContent.includes(found)", found)
        assert page.page.evaluate(BAR) == [height, False]
    search.fill("")
    opener = page.page.locator(f"{ROOT} .mkg-more-opener")
    if opener.is_visible():
        opener.click()
        page.page.get_by_role("button", name="Collapse all").click()
        page.page.keyboard.press("Escape")
        assert opener.get_attribute("aria-expanded") == "false"
    assert page.page.get_by_role("button", name="Collapse all").is_visible() == (not opener.is_visible())


SEARCH = f"""() => {{
  const [field, count] = ['.mkg-search input', '.mkg-search-count'].map(s => document.querySelector(`{ROOT} ${{s}}`));
  return [field.clientWidth, count.scrollWidth <= count.clientWidth];
}}"""


@pytest.mark.parametrize(
    "page",
    [{"width": width, "height": 700} for width in (400, 600, 710, 870, 1090, 1400)],
    indirect=True,
    ids=lambda size: size,
)
def test_what_is_typed_and_what_it_finds_have_room(page: SavedPage) -> None:
    search = page.page.locator(f"{ROOT} input[type=search]")
    search.fill("class:Conv2d")
    for said in ("48 matches", "1 of 48", "No field"):
        if said == "1 of 48":
            search.press("Enter")
        if said == "No field":
            search.fill("speed > 3")
        page.wait_for(f"said => document.querySelector('{ROOT} .mkg-search-count').textContent.startsWith(said)", said)
        width, is_whole = page.page.evaluate(SEARCH)
        assert width >= 140, said
        assert is_whole, said
    page.page.keyboard.press("Tab")
    assert page.page.get_by_label("View", exact=True).is_visible()


MASKS = ".mkg-mask-editor"
MASK_TOOLS = f"""() => {{
  const {{ offsetHeight, scrollWidth, clientWidth }} = document.querySelector('{MASKS} .mkg-mask-toolbar');
  return [offsetHeight < 50, scrollWidth > clientWidth];
}}"""


@pytest.fixture(scope="module")
def saved_masks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    return mk.save_html(mk.MaskEditor(Net(), torch.zeros(1, 8, 4, 4)), tmp_path_factory.mktemp("narrow") / "masks.html")


@pytest.mark.parametrize("width", [400, 600, 800, 1000, 1400])
def test_the_tools_of_a_mask_editor_are_one_row(browser: Browser, saved_masks: Path, width: int) -> None:
    with saved_page(browser, saved_masks, viewport={"width": width, "height": 700}) as page:
        page.wait_for(f"() => document.querySelector('{MASKS}[data-mkg-ready=\"true\"]') !== null")
        assert page.page.evaluate(MASK_TOOLS) == [True, False]
        search = page.page.locator(f"{MASKS} input[type=search]")
        page.page.locator(f"{MASKS} .mkg-search").click()
        page.page.keyboard.type("layer1")
        page.wait_for(f"() => /groups?$/.test(document.querySelector('{MASKS} .mkg-search-count').textContent)")
        assert search.evaluate("field => field.clientWidth") >= 140
        assert page.page.evaluate(MASK_TOOLS) == [True, False]
        search.fill("")
        page.page.locator(f"{MASKS} .mkg-mask-counters").click()
        opener, compare = page.page.locator(f"{MASKS} .mkg-more-opener"), page.page.get_by_label("Compare")
        assert opener.is_visible() == (width <= 860)
        if opener.is_visible():
            assert compare.is_hidden()
            opener.click()
        compare.select_option("global")
        page.page.keyboard.press("Escape")
        assert compare.is_hidden() == opener.is_visible()


class Bottleneck(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first_convolution, self.second_convolution = nn.Conv2d(8, 16, 1), nn.Conv2d(16, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second_convolution(self.first_convolution(x).relu())


class Encoder(nn.Module):
    """Its channel groups and blocks differ in the last parts of long names."""

    def __init__(self) -> None:
        super().__init__()
        self.transformer_encoder_layers = nn.Sequential(Bottleneck(), Bottleneck())
        self.head = nn.Conv2d(8, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.transformer_encoder_layers(x))


# names of which a part is cut, and those whose end is
CUT = """() => [...document.querySelectorAll('.mkg-mask-editor .mkg-mask-name')].flatMap(name => {
  const parts = [...name.querySelectorAll('span')];
  return parts.filter(part => part.scrollWidth > part.clientWidth).map(part => part === parts.at(-1) ? 'end' : 'start');
})"""


@pytest.mark.parametrize(("width", "may_be_cut"), [(620, set()), (420, {"start"})])
def test_names_of_an_editor_use_the_room_and_keep_their_end(
    browser: Browser, tmp_path: Path, width: int, may_be_cut: set[str]
) -> None:
    editor = mk.MaskEditor(Encoder(), torch.zeros(1, 8, 6, 6))
    with saved_page(
        browser, mk.save_html(editor, tmp_path / "page.html"), viewport={"width": width, "height": 900}
    ) as saved:
        saved.page.locator(".mkg-mask-editor[data-mkg-ready=true]").wait_for()
        names = saved.page.locator(".mkg-mask-name").all_text_contents()
        assert "transformer_encoder_layers.1.first_convolution.out" in names
        assert set(saved.page.evaluate(CUT)) <= may_be_cut
