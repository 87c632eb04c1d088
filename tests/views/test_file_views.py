"""What a file tells, as the browser and the static picture get it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import torch
from torch import nn

import modulekg_widgets as mk
from browser.model_files import write_safetensors
from modulekg_widgets.engine.views.pictures.hierarchy import draw_hierarchy
from modulekg_widgets.engine.views.pictures.png import file_png
from modulekg_widgets.engine.views.pictures.svg import svg_text


def graph_of(path: Path) -> mk.ModelGraph:
    return mk.ModelGraph(mk.open_file(path))


def classes_of(payload: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Of each module, by its name, the class and with what stands before it."""
    classes, entities, nodes = payload["classes"], payload["entities"]["class"], payload["nodes"]
    return {
        name: (classes["name"][entities[entity]], classes["qualified"][entities[entity]])
        for name, entity in zip(nodes["name"], nodes["entity"], strict=True)
    }


def test_kinds_have_no_module_before_them(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    write_safetensors(path, {"a.conv.weight": (4, 3, 3, 3), "a.fc.weight": (4, 3)})
    found = classes_of(graph_of(path).payload)
    assert found["conv"] == ("convolution 2d", "convolution 2d")
    assert found["a"] == ("module", "module")
    assert found[""] == ("net.safetensors", "net.safetensors")


def test_classes_that_a_file_tells_keep_their_modules(tmp_path: Path) -> None:
    torch.save(nn.Sequential(nn.Linear(2, 2)), tmp_path / "whole.pt")
    found = classes_of(graph_of(tmp_path / "whole.pt").payload)
    assert found["0"] == ("Linear", "torch.nn.modules.linear.Linear")


def drawn(picture: str) -> tuple[list[str], int]:
    """The texts of a picture and how many lines it has."""
    elements = list(ElementTree.fromstring(picture).iter())
    texts = [element.text or "" for element in elements if element.tag.endswith("text")]
    return texts, sum(element.tag.endswith("path") and "stroke" in element.attrib for element in elements)


def test_a_file_without_a_graph_is_drawn_without_an_order(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    write_safetensors(path, {"a.conv.weight": (4, 3, 3, 3), "b.weight": (4, 3), "c.bias": (3,)})
    graph = graph_of(path)
    picture = draw_hierarchy(graph.payload, [1])
    texts, arrows = drawn(svg_text(picture))
    assert arrows == 0
    assert not {"input", "output"} & set(texts)
    assert any("conv" in text for text in texts)
    assert any(text.startswith("c ") for text in texts)
    assert file_png(picture).startswith(b"\x89PNG")
    live = drawn(svg_text(draw_hierarchy(mk.ModelGraph(nn.Sequential(nn.Linear(2, 2))).payload, [])))
    assert {"input", "output"} <= set(live[0])
    assert live[1] == 2


def test_a_file_of_one_module_is_a_picture(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "one.safetensors", {"weight": (2, 2)})
    picture = draw_hierarchy(graph_of(tmp_path / "one.safetensors").payload, [])
    root = ElementTree.fromstring(svg_text(picture))
    assert float(root.get("height", 0)) > 0
