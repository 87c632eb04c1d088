"""The golden payloads: what Python writes today is what the TypeScript tests read (core/graph/golden.test.ts)."""

import json
from pathlib import Path

import pytest

from widgets.golden_masks import golden_masks
from widgets.golden_models import payloads, without_lines

GOLDEN = Path(__file__).parent / "golden"
MASKS = Path(__file__).parent / "golden_masks"
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
