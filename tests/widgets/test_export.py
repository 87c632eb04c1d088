"""ModelGraph as a file, and its static picture."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.dot import quoted_label
from modulekg_widgets.engine.views.pictures.hierarchy import draw_hierarchy
from modulekg_widgets.engine.views.pictures.svg import svg_text
from widgets.golden_models import MODELS

PAYLOADS = [
    line
    for line in (Path(__file__).parents[1] / "cases" / "xss_payloads.txt").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
]


def named(name: str) -> nn.Module:
    """A model in which `name` is the name of a module, of a class and of a value."""
    cls = type(name.replace("\0", ""), (nn.Sequential,), {})
    model = cls()
    model._modules[name] = nn.Identity()
    model.note = name
    return model


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_picture_is_well_formed(name: str) -> None:
    root = ElementTree.fromstring(svg_text(mk.ModelGraph(MODELS[name]())._static_picture()))
    kinds = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert kinds <= {"svg", "title", "rect", "path", "text"}


def test_the_picture_shows_the_fold_and_its_place() -> None:
    root = ElementTree.fromstring(svg_text(mk.ModelGraph(MODELS["folded"]())._static_picture()))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "0  Block  ×5" in texts
    assert "0  Block  ≈×3" in texts
    assert (texts[0], texts[-1]) == ("input", "output")


@pytest.mark.parametrize("line", PAYLOADS)
def test_hostile_text_stays_text_in_the_picture(line: str) -> None:
    graph = mk.ModelGraph(named(line))
    root = ElementTree.fromstring(svg_text(draw_hierarchy(graph.payload, [])))
    assert {e.tag.rpartition("}")[2] for e in root.iter()} <= {"svg", "title", "rect", "path", "text"}
    attributes = {name for element in root.iter() for name in element.attrib}
    assert not {name for name in attributes if name.startswith("on") or "href" in name}
    shown = "".join(text or "" for text in root.itertext())
    assert "".join(c if c.isprintable() else "\ufffd" for c in line)[:40] in shown


@pytest.mark.parametrize("line", PAYLOADS)
def test_hostile_text_stays_data_in_the_page(line: str, tmp_path: Path, require: Callable[..., None]) -> None:
    page = mk.ModelGraph(named(line)).export(tmp_path / "page.html").read_text("utf-8")
    start = page.index('id="mkg-page">') + len('id="mkg-page">')
    data = page[start : page.index("</script>", start)]
    assert "<" not in data
    (widget,) = [widget for widget in json.loads(data)["widgets"] if widget["kind"] == "ModelGraph"]
    assert widget["state"]["payload"]["nodes"]["name"][1] == line


def test_json_is_the_payload(tmp_path: Path) -> None:
    graph = mk.ModelGraph(MODELS["folded"]())
    path = graph.export(tmp_path / "graph.json")
    assert json.loads(path.read_text("utf-8")) == json.loads(json.dumps(graph.payload))


def test_png_is_a_picture(tmp_path: Path) -> None:
    content = mk.ModelGraph(MODELS["awkward"]()).export(tmp_path / "graph.png").read_bytes()
    assert content.startswith(b"\x89PNG")


@pytest.mark.parametrize("name", sorted(MODELS))
def test_graphviz_reads_the_dot_file(name: str, tmp_path: Path, require: Callable[..., None]) -> None:
    require("$dot")
    path = mk.ModelGraph(MODELS[name]()).export(tmp_path / "graph.dot")
    drawn = subprocess.run([str(shutil.which("dot")), "-Tplain", path], capture_output=True, check=True, timeout=60)
    assert drawn.stdout.startswith(b"graph")
    assert not drawn.stderr


@pytest.mark.parametrize(
    ("label", "written"), json.loads((Path(__file__).parents[1] / "cases" / "dot_labels.json").read_text("utf-8"))
)
def test_labels_are_written_as_the_page_writes_them(label: str, written: str) -> None:
    """`export.test.ts` reads the same file: Python writes the hierarchy, the page what is on its canvas."""
    assert quoted_label(label) == written


@pytest.mark.parametrize("name", ["A&lt;B", "&amp;", "\\N", 'a"b', "end\\", "a\x01b"])
def test_graphviz_shows_a_name_as_it_is(name: str, tmp_path: Path, require: Callable[..., None]) -> None:
    require("$dot")
    path = mk.ModelGraph(named(name)).export(tmp_path / "graph.dot")
    drawn = subprocess.run([str(shutil.which("dot")), "-Tsvg", path], capture_output=True, check=True, timeout=60)
    texts = [
        element.text or "" for element in ElementTree.fromstring(drawn.stdout).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert any(name.replace("\x01", "\ufffd") in text.replace("\xa0", " ") for text in texts)


def test_the_picture_shows_what_is_open(tmp_path: Path) -> None:
    graph = mk.ModelGraph(MODELS["folded"](), expanded=[])
    closed = graph.export(tmp_path / "closed.svg").read_text("utf-8")
    graph.expand("1.3")
    opened = graph.export(tmp_path / "open.svg").read_text("utf-8")
    assert "conv  Conv2d" in opened
    assert "conv  Conv2d" not in closed


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(mk.ModuleKGError, match=r"no folder .*missing"):
        mk.ModelGraph(nn.Linear(1, 1)).export(tmp_path / "missing" / "graph.svg")


def test_an_unknown_format_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(mk.ModuleKGError, match="did you mean"):
        mk.ModelGraph(nn.Linear(1, 1)).export(tmp_path / "graph.htm")
    assert not list(tmp_path.iterdir())
