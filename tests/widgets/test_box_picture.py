"""Boxes of ipywidgets keep the pictures of our widgets in a saved notebook, and other boxes are displayed as before."""

from __future__ import annotations

import base64
import io
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import ipywidgets as W
import numpy as np
import pytest
from IPython.core.formatters import DisplayFormatter
from PIL import Image
from torch import nn

import modulekg_widgets as mk
from cases.payloads import PAYLOADS
from modulekg_widgets.engine.views.pictures.boxes import MAX_SVG_CHARACTERS, MAX_WIDTH
from modulekg_widgets.engine.views.pictures.png import CAPTION
from modulekg_widgets.engine.views.pictures.png import MAX_PNG_BYTES as LARGEST_PNG
from modulekg_widgets.widgets.shared import base as _base
from modulekg_widgets.widgets.shared import output_pictures

VIEW = "application/vnd.jupyter.widget-view+json"
PICTURES = {"image/svg+xml", "image/png"}
RUN = "a run of a cell"


@pytest.fixture
def formatter(monkeypatch: pytest.MonkeyPatch) -> DisplayFormatter:
    """IPython's formatter of a new shell, in which a cell runs."""
    made = DisplayFormatter()
    shell = SimpleNamespace(display_formatter=made)
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: shell)
    monkeypatch.setattr(_base, "_current_run", lambda: (None, RUN))
    return made


def graph(*layers: nn.Module) -> mk.ModelGraph:
    return mk.ModelGraph(nn.Sequential(*(layers or (nn.Linear(2, 8), nn.ReLU()))))


def displayed(formatter: DisplayFormatter, widget: W.Widget) -> dict[str, Any]:
    return formatter.format(widget)[0]


def places(svg: str) -> list[tuple[float, float]]:
    """Where the pictures are that stand directly in the box."""
    (box,) = (child for child in ElementTree.fromstring(svg) if child.tag.endswith("svg"))
    inside = [child for child in box if child.tag.endswith("svg")]
    return [(float(child.attrib["x"]), float(child.attrib["y"])) for child in inside]


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("text")]


BOXES: dict[str, tuple[Callable[[list[W.Widget]], W.Widget], bool]] = {
    "HBox": (W.HBox, True),
    "Box": (W.Box, True),
    "GridBox": (W.GridBox, True),
    "Box in a column": (lambda parts: W.Box(parts, layout=W.Layout(flex_flow="column wrap")), False),
    "VBox": (W.VBox, False),
    "Tab": (W.Tab, False),
    "Accordion": (W.Accordion, False),
    "Stack": (W.Stack, False),
}


@pytest.mark.parametrize(("make", "is_row"), BOXES.values(), ids=BOXES)
def test_a_box_has_the_pictures_of_what_is_in_it(
    formatter: DisplayFormatter, make: Callable[[list[W.Widget]], W.Widget], is_row: bool
) -> None:
    parts = [graph(), W.IntSlider(), graph(nn.Embedding(3, 5))]
    bundle = displayed(formatter, make(parts))
    assert set(bundle) == {"text/plain", VIEW} | PICTURES
    svg = bundle["image/svg+xml"]
    assert svg.startswith('<svg class="mkg-saved-picture"')
    assert svg.count(CAPTION) == 1
    assert {"0  Linear", "0  Embedding"} <= set(texts(svg))
    (x, y), (other_x, other_y) = places(svg)
    assert (x, y) == (0, 0)
    assert (other_x > 400, other_y > 100) == (is_row, not is_row)


def test_the_png_shows_every_part_where_the_svg_has_it(formatter: DisplayFormatter) -> None:
    one, other = graph(), graph(nn.Embedding(3, 5))
    bundle = displayed(formatter, W.VBox([W.HBox([one, other]), one]))
    with Image.open(io.BytesIO(base64.b64decode(bundle["image/png"]))) as image:
        whole = np.asarray(image.convert("RGB"), int)
    scale = whole.shape[1] / float(ElementTree.fromstring(bundle["image/svg+xml"]).attrib["width"])
    seen = []
    for x, y, part in ((0, 0, one), (472, 0, other), (0, None, one)):
        with Image.open(io.BytesIO(base64.b64decode(part._repr_mimebundle_()["image/png"]))) as image:
            alone = np.asarray(image.convert("RGB"), int)[: -int(26 * 1.5)]
        top = int(y * scale) if y is not None else whole.shape[0] - int(26 * scale) - len(alone)
        left = int(x * scale)
        there = whole[top : top + len(alone), left : left + alone.shape[1]]
        assert there.shape == alone.shape
        seen.append(np.mean(np.abs(there - alone).max(2) < 80))  # of one another's palette they may differ
    assert min(seen) > 0.99


def test_titles_stand_above_their_pictures(formatter: DisplayFormatter) -> None:
    for kind in (W.Tab, W.Accordion):
        svg = displayed(formatter, kind([graph(), graph()], titles=("first <b>", PAYLOADS[0])))["image/svg+xml"]
        assert "first <b>" in texts(svg)
        assert any(text and PAYLOADS[0].startswith(text.rstrip("…")) for text in texts(svg))
        assert all(y >= 20 for _, y in places(svg))


def test_boxes_in_boxes_and_what_shows_itself_twice(formatter: DisplayFormatter) -> None:
    inner = graph()
    svg = displayed(formatter, W.VBox([W.HBox([W.Button(), W.VBox([inner])]), inner]))["image/svg+xml"]
    assert texts(svg).count("0  Linear") == 2
    circle = W.VBox([inner])
    circle.children = [circle, inner]
    assert texts(displayed(formatter, circle)["image/svg+xml"]).count("0  Linear") == 1


def test_a_wide_row_goes_on_below_and_a_large_one_is_cut(formatter: DisplayFormatter) -> None:
    svg = displayed(formatter, W.HBox([graph() for _ in range(5)]))["image/svg+xml"]
    assert [y > 0 for _, y in places(svg)] == [False, False, True, True, True]
    assert float(ElementTree.fromstring(svg).attrib["width"]) <= MAX_WIDTH
    bundle = displayed(formatter, W.HBox([graph() for _ in range(90)]))
    assert len(bundle["image/svg+xml"]) < 1.1 * MAX_SVG_CHARACTERS
    assert len(base64.b64decode(bundle["image/png"])) <= LARGEST_PNG
    assert texts(bundle["image/svg+xml"])[-2] == f"and {90 - len(places(bundle['image/svg+xml']))} more"


class Theirs(W.VBox):
    """A box of somebody else's, displayed in a way of its own."""

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return {"text/plain": "theirs"}


@pytest.mark.parametrize("make", [lambda: W.HBox([W.IntSlider()]), W.VBox, W.Output, Theirs, W.IntSlider])
def test_what_has_nothing_of_ours_is_displayed_as_before(
    formatter: DisplayFormatter, make: Callable[[], W.Widget]
) -> None:
    widget = make()
    before = displayed(formatter, widget)
    graph()  # from now on boxes are looked at
    assert displayed(formatter, widget) == before


def test_others_who_display_boxes_go_on(formatter: DisplayFormatter) -> None:
    formatter.mimebundle_formatter.for_type(W.Box, lambda box: {**W.Box._repr_mimebundle_(box), "text/x": "theirs"})
    bundle = displayed(formatter, W.HBox([graph()]))
    assert bundle["text/x"] == "theirs"
    assert set(bundle) >= PICTURES
    shown = Theirs([graph()])
    formatter.mimebundle_formatter.for_type(Theirs, lambda box: {"text/plain": "their own"})
    assert displayed(formatter, shown) == {"text/plain": "their own"}


def test_a_closed_widget_is_not_in_the_picture(formatter: DisplayFormatter) -> None:
    one, other = graph(), graph(nn.Embedding(3, 5))
    box = W.HBox([one, other])
    one.close()
    assert "0  Linear" not in texts(displayed(formatter, box)["image/svg+xml"])
    other.close()
    assert not PICTURES & set(displayed(formatter, box))


# ------------------------------------------------------------------ what an Output has taken


def test_an_output_has_what_the_running_cell_displayed_in_it(formatter: DisplayFormatter) -> None:
    around, output = W.Output(), W.Output()
    around.msg_id = output.msg_id = RUN  # as inside of `with around, output:`
    displayed(formatter, graph())
    displayed(formatter, W.HBox([graph(nn.Embedding(3, 5))]))
    output.msg_id = around.msg_id = ""
    displayed(formatter, graph(nn.Conv2d(1, 1, 1)))  # outside
    svg = displayed(formatter, W.VBox([W.IntSlider(), output]))["image/svg+xml"]
    assert {"0  Linear", "0  Embedding"} <= set(texts(svg))
    assert "0  Conv2d" not in texts(svg)
    assert not PICTURES & set(displayed(formatter, around))


def test_an_output_has_what_its_last_run_displayed(
    formatter: DisplayFormatter, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = W.Output()
    for run, layer in (("first", nn.Linear(2, 2)), ("second", nn.Embedding(3, 5))):
        monkeypatch.setattr(_base, "_current_run", lambda run=run: (None, run))
        output.msg_id = run
        displayed(formatter, graph(layer))
    assert [text for text in texts(displayed(formatter, output)["image/svg+xml"]) if "0  " in text] == ["0  Embedding"]


def test_an_output_has_what_the_page_tells_and_no_picture_of_the_page(formatter: DisplayFormatter) -> None:
    shown = graph()
    output = W.Output()
    foreign = {"image/svg+xml": '<svg class="mkg-saved-picture"><text>foreign</text></svg>'}
    for data in ({VIEW: {"model_id": shown.model_id}, **foreign}, {VIEW: {"model_id": "gone"}}, foreign, {}):
        output.outputs += ({"output_type": "display_data", "data": data, "metadata": {}},)
    output.append_stdout("text")
    svg = displayed(formatter, output)["image/svg+xml"]
    assert "0  Linear" in texts(svg)
    assert "foreign" not in svg


@pytest.mark.parametrize("data", [{VIEW: None}, {VIEW: "x"}, {VIEW: {"model_id": []}}, None, 3])
def test_no_entry_of_a_page_stops_a_display(formatter: DisplayFormatter, data: Any) -> None:
    graph()
    output = W.Output()
    output.outputs = ({"output_type": "display_data", "data": data},)
    assert set(displayed(formatter, output)) == {"text/plain", VIEW}


def test_an_output_keeps_no_widget(formatter: DisplayFormatter) -> None:
    output = W.Output()
    output.msg_id = RUN
    shown = graph()
    displayed(formatter, shown)
    shown.close()
    del shown
    assert output_pictures.picture_of(output) is None


def test_boxes_are_looked_at_once_for_many_widgets(formatter: DisplayFormatter) -> None:
    for _ in range(3):
        graph()
    printers = formatter.mimebundle_formatter.type_printers
    assert [printer.before for printer in printers.values()] == [None, None]
