"""Colors stand in one file, engine/palette.json: no source has one of its own."""

import json
import re
from pathlib import Path

import pytest

from modulekg_widgets.engine.palette import PALETTE, family_color

ROOT = Path(__file__).resolve().parents[2]
PACKAGE, PAGE = ROOT / "modulekg_widgets", ROOT / "js" / "src"
SOURCES = [
    *PACKAGE.rglob("*.py"),
    *(file for file in PAGE.rglob("*.ts") if "generated" not in file.parts and ".test." not in file.name),
]
NO_COLOR = {"#000000", "#ffffff"}  # what a color is mixed with
ELSEWHERE = {"js/src/lab/icons.ts"}  # JupyterLab's own grey, which its themes replace


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_no_source_has_colors_of_its_own(file: Path) -> None:
    found = set(re.findall(r"(?i)[\"']#[0-9a-f]{6}\b", file.read_text("utf-8")))
    assert {color[1:].lower() for color in found} <= NO_COLOR or file.relative_to(ROOT).as_posix() in ELSEWHERE


def test_every_color_can_be_read() -> None:
    text = (PACKAGE / "engine" / "palette.json").read_text("utf-8")
    colors = re.findall(r'"(#[^"]*)"', text)
    assert all(re.fullmatch("#[0-9a-f]{6}", color) for color in colors)
    assert json.loads(text)["page"]["text"] == PALETTE.page.text


@pytest.mark.parametrize(
    ("name", "is_container", "like"),
    [
        ("Conv2d", False, "conv"),
        ("LazyConvTranspose3d", False, "conv"),
        ("ConvBlock", True, None),
        ("MultiheadAttention", True, "attention"),
        ("ReLU6", False, "relu"),
        ("Identity", False, "dropout"),
    ],
)
def test_families(name: str, is_container: bool, like: str | None) -> None:
    colors = {pattern.split("|")[0]: color for pattern, color in PALETTE.families}
    assert family_color(name, is_container) == (PALETTE.container if like is None else colors[like])
    assert family_color("Mine", False) == PALETTE.other_family
