"""The golden payloads: what Python writes today is what the TypeScript tests read (core/graph/golden.test.ts)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from modulekg_widgets.engine.errors import ModuleKGError
from modulekg_widgets.engine.views.schema import MODEL, SCHEMAS
from widgets.golden_masks import golden_masks
from widgets.golden_models import payloads, without_lines

GOLDEN = Path(__file__).parent / "golden"
MASKS = Path(__file__).parent / "golden_masks"
ALL = sorted(Path(__file__).parent.glob("golden*/*.json"))
MADE = {name: without_lines(payload) for name, payload in payloads().items()}
MADE_MASKS = golden_masks()


def test_every_golden_file_has_its_payload() -> None:
    assert {file.stem for file in GOLDEN.glob("*.json")} == set(MADE)


@pytest.mark.parametrize("name", sorted(MADE))
def test_payload_is_the_golden_one(name: str) -> None:
    # a wanted change is written with: python tests/widgets/write_golden.py
    assert json.loads(json.dumps(MADE[name])) == json.loads((GOLDEN / f"{name}.json").read_text("utf-8"))


@pytest.mark.parametrize("name", sorted(MADE_MASKS))
def test_masks_are_the_golden_ones(name: str) -> None:
    assert {file.stem for file in MASKS.glob("*.json")} == set(MADE_MASKS)
    assert json.loads(json.dumps(MADE_MASKS[name])) == json.loads((MASKS / f"{name}.json").read_text("utf-8"))


@pytest.mark.parametrize("name", sorted(MADE))
def test_payload_is_strict_json_in_utf8(name: str) -> None:
    json.dumps(MADE[name], allow_nan=False, ensure_ascii=False).encode("utf-8")


@pytest.mark.parametrize("file", ALL, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_golden_files_have_the_parts_of_their_schema(file: Path) -> None:
    found = json.loads(file.read_text("utf-8"))
    payload = found if "kind" in found else found["payload"]
    SCHEMAS[payload["kind"]].check(payload)


@pytest.mark.parametrize(
    ("change", "odd"),
    [
        (lambda payload: payload.pop("folds"), "folds"),
        (lambda payload: payload.update(colors=[]), "colors"),
        (lambda payload: payload["nodes"].pop("parent"), "parent"),
        (lambda payload: payload["flow"]["steps"].update(time=[]), "time"),
    ],
)
def test_a_payload_with_other_parts_is_refused(change: Callable[[dict[str, Any]], Any], odd: str) -> None:
    payload = json.loads((GOLDEN / "traced.json").read_text("utf-8"))
    change(payload)
    with pytest.raises(ModuleKGError, match=f"other parts than its schema: {odd}$"):
        MODEL.check(payload)
