"""What a saved notebook has beside each widget: an SVG, and a PNG of the same content for hosts that show no SVG."""

from __future__ import annotations

import base64
import io
import math
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from typing import Any

import ipywidgets
import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torchvision.models import resnet18, resnet152

import modulekg_widgets as mk
from cases.payloads import PAYLOADS
from modulekg_widgets.engine.views.pictures import png as png_module
from modulekg_widgets.engine.views.pictures.png import (
    CAPTION,
    FOOTER_HEIGHT,
    MAX_HEIGHT,
    MAX_PNG_BYTES,
    PNG_SCALES,
    png,
    polylines,
)
from modulekg_widgets.engine.views.pictures.shapes import Path, Picture, Rect, Text
from modulekg_widgets.engine.views.pictures.svg import svg_text
from widgets.golden_models import MODELS
from widgets.metric_samples import live_run, put

X = torch.zeros(1, 2)
ODD = ["", "\ud800", "\u202eabc", "Z" + "\u0301" * 60, "模型 🙂 نموذج", "a\x00b\nc", "<b>&amp;</b>", "x" * 100_000]


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))


def panel() -> mk.MetricPanel:
    run = live_run()
    for step in range(5):
        put(run, step, {("0", "Norm"): math.sin(step), ("2", "Norm"): math.nan if step == 2 else 1.0 - step})
    return mk.MetricPanel(run)


def explorer() -> mk.KnowledgeExplorer:
    kg = mk.KnowledgeGraph()
    kg.add_model(small(), name="net")
    return mk.KnowledgeExplorer(kg)


WIDGETS: dict[str, Callable[[], Any]] = {
    "ModelGraph": lambda: mk.ModelGraph(small(), X),
    "MaskEditor": lambda: mk.MaskEditor(small(), X),
    "MetricPanel": panel,
    "ForwardPlayer": lambda: mk.ForwardPlayer(small(), X, step=2),
    "KnowledgeExplorer": explorer,
    "Workbench": lambda: mk.Workbench(small(), X),
}


def image_of(content: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(content)) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB"), int)


def elements(svg: str, kind: str) -> list[ElementTree.Element]:
    return [element for element in ElementTree.fromstring(svg).iter() if element.tag.rpartition("}")[2] == kind]


def ink(image: np.ndarray, x: float, y: float, width: float, height: float, scale: float) -> float:
    """How far the darkest point of a part of the SVG is from the lightest in the PNG."""
    left, top = max(0, int(x * scale)), max(0, int(y * scale))
    part = image[top : int((y + height) * scale) + 1, left : int((x + width) * scale) + 1]
    return float(np.ptp(part.sum(2)))


@pytest.mark.parametrize("make", WIDGETS.values(), ids=WIDGETS)
def test_every_widget_has_both_pictures(make: Callable[[], Any]) -> None:
    widget = make()
    bundle = widget._repr_mimebundle_()
    widget.close()
    svg, content = bundle["image/svg+xml"], base64.b64decode(bundle["image/png"], validate=True)
    # VS Code shows what comes next in its order where it has no model: the PNG, as there is neither HTML nor Markdown
    assert set(bundle) == {"text/plain", "application/vnd.jupyter.widget-view+json", "image/svg+xml", "image/png"}
    assert svg.startswith('<svg class="mkg-saved-picture"')  # by which the page knows it
    assert len(content) <= MAX_PNG_BYTES
    assert svg.count(CAPTION) == 1
    root, image = ElementTree.fromstring(svg), image_of(content)
    scale = image.shape[1] / float(root.attrib["width"])
    assert image.shape[0] == round(float(root.attrib["height"]) * scale)
    texts = elements(svg, "text")
    bars = {(bar.get("x"), bar.get("y")): bar for bar in elements(svg, "rect")}.values()  # a later one lies above
    assert texts
    for text in texts:
        at, y = float(text.attrib["x"]), float(text.attrib["y"])
        x = at - {"start": 0, "middle": 5, "end": 10}[text.get("text-anchor", "start")]
        assert ink(image, x, y - 9, 10, 9, scale) > 150, text.text
    for bar in bars:
        x, y, width, height = (float(bar.get(name, 0)) for name in ("x", "y", "width", "height"))
        color = bar.attrib["fill"]
        if min(width, height) < 3 or color in ("#ffffff", "#f7f8fa"):
            continue
        wanted = [int(color[at : at + 2], 16) for at in (1, 3, 5)]
        found = image[int((y + height / 2) * scale), int((x + 1.5) * scale)]
        assert np.abs(found - wanted).max() <= 24, (color, found)
    words = texts[-1]  # hosts that have no page of ours show no text beside the pictures
    assert (words.text, words.attrib["class"]) == (CAPTION, "mkg-words")
    assert float(words.attrib["y"]) > float(root.attrib["height"]) - FOOTER_HEIGHT


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_has_a_png(name: str) -> None:
    assert image_of(png(mk.ModelGraph(MODELS[name]())._static_picture())).shape[1] in (460, 690)


def notebook_image(net: nn.Module) -> Any:
    return image_of(base64.b64decode(mk.ModelGraph(net)._repr_mimebundle_()["image/png"]))


@pytest.mark.parametrize("text", [*PAYLOADS, *ODD])
def test_any_text_is_drawn_as_text(text: str) -> None:
    net = type(text.replace("\0", "").encode("utf-8", "replace").decode() or "Net", (nn.Sequential,), {})()
    net._modules[text] = nn.Linear(2, 2)
    image = notebook_image(net)
    card = slice(85, 140)
    outside = np.ones(len(image), bool)
    outside[card] = False
    alike = []
    for name in ("0", "".join(sorted(text))):  # of one letter, and as wide as the text, which moves what is around it
        harmless = nn.Sequential()
        harmless._modules[name] = nn.Linear(2, 2)
        other = notebook_image(harmless)
        assert image.shape == other.shape
        alike.append((image[outside] == other[outside]).mean())
    assert max(alike) > 0.99  # nothing but its card differs


def test_large_pictures_stay_small() -> None:
    with torch.device("meta"):
        model = resnet152()
    graph = mk.ModelGraph(model, expanded=[f"layer{i}" for i in (1, 2, 3, 4)])
    assert len(png(graph._static_picture())) <= MAX_PNG_BYTES
    bars = [Rect(7 * i % 400, i * 3, 9, 3, f"#{i * 7919 % 0xFFFFFF:06x}") for i in range(3000)]
    words = [Text(9, i * 7 + 9, f"{i * 104729}", "#000000") for i in range(3000)]
    content = png(Picture("many", 460, 21000, [*bars, *words]))
    assert len(content) <= MAX_PNG_BYTES
    assert image_of(content).shape[0] <= (MAX_HEIGHT + FOOTER_HEIGHT) * 1.5


def test_chart_lines_are_where_the_values_are() -> None:
    shapes = [
        Path([("M", (10, 50)), ("L", (50, 10)), ("l", (40, 40))], stroke="#ff0000", width=2),
        Path([("M", (10, 10)), ("h", (0,))], fill=None, stroke="#0000ff", width=4),
        Path([("M", (20, 58)), ("h", (20,))], fill=None, stroke="#00ff00"),
    ]
    image = image_of(png(Picture("lines", 100, 60, shapes)))
    for x, y, color in ((30, 30, 0), (70, 30, 0), (10, 10, 2), (30, 58, 1)):
        assert image[int(y * 1.5), int(x * 1.5)].argmax() == color
    assert image[45, 75].tolist() == [255, 255, 255]  # below the line: it is not filled


def test_paths() -> None:
    around = [("M", (1, 2)), ("V", (5,)), ("H", (3,)), ("l", (-1, 2)), ("z", ()), ("M", (0, 0)), ("h", (0,))]
    assert list(polylines(Path(around))) == [
        [(1, 2), (1, 5), (3, 5), (2, 7), (1, 2)],
        [(0, 0), (0, 0)],
    ]
    assert 'd="M1 2V5H3l-1 2zM0 0h0"' in svg_text(Picture("around", 9, 9, [Path(around)]))
    line = Path([("M", (1e3, -2.5)), ("L", (1, 1))])
    assert list(polylines(line)) == [[(1000, -2.5), (1, 1)]]
    assert 'd="M1000 -2.5L1 1"' in svg_text(Picture("line", 9, 9, [line]))
    with pytest.raises(ValueError, match="path command 'C'"):
        list(polylines(Path([("M", (0, 0)), ("C", (1, 1))])))


def test_without_its_font_there_is_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    png_module._font.cache_clear()
    monkeypatch.setattr(png_module, "find_spec", lambda name: None)
    picture = mk.ModelGraph(small())._static_picture()
    assert np.ptp(image_of(png(picture))) > 150
    png_module._font.cache_clear()


@pytest.mark.slow
def test_nothing_heavy_is_imported() -> None:
    """Neither for the package nor for a picture; a search for fonts would take seconds on a new machine."""
    code = (
        "import sys, torch, modulekg_widgets as mk\n"
        "assert not {'PIL', 'matplotlib'} & set(sys.modules)\n"
        "assert mk.ModelGraph(torch.nn.Linear(2, 2))._repr_mimebundle_()['image/png']\n"
        "assert 'matplotlib' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_widget_without_a_picture_has_none() -> None:
    class Plain(mk.ModelGraph):
        def _static_picture(self) -> None:  # type: ignore[override]
            return None

    assert set(Plain(small())._repr_mimebundle_()) == set(ipywidgets.IntSlider()._repr_mimebundle_())


def test_the_picture_of_resnet18_is_whole() -> None:
    picture = mk.ModelGraph(resnet18(), (torch.zeros(1, 3, 64, 64),))._static_picture()
    height = float(ElementTree.fromstring(svg_text(picture)).attrib["height"])
    assert height == picture.height
    assert image_of(png(picture)).shape[0] == round((height + FOOTER_HEIGHT) * PNG_SCALES[0])
