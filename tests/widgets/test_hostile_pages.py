"""Messages that no page of ours sends: a mask editor answers or ignores them, and goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import CutError


@pytest.fixture
def editor() -> Iterator[mk.MaskEditor]:
    made = mk.MaskEditor(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), torch.zeros(1, 4))
    made.plan = mk.plan(made.graph, ratio=0.5)
    yield made
    made.close()


@pytest.fixture
def heard(editor: mk.MaskEditor, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the editor sends."""
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(editor, "send", lambda content, buffers=None: found.append(content))
    return found


@pytest.mark.parametrize("action", ["save", "load"])
@pytest.mark.parametrize(
    "path", ["x" * 300, "x/" * 3000, "a\0b", "\ud800", "/dev/zero", "/proc/self/mem/x"],
    ids=["long name", "long path", "null", "surrogate", "device", "no folder"],
)  # fmt: skip
def test_a_file_that_cannot_be_is_told_to_the_page(
    editor: mk.MaskEditor, heard: list[dict[str, Any]], action: str, path: str
) -> None:
    offered = editor.path
    editor._handle_custom_msg({"type": action, "path": path}, [])
    assert [(answer["type"], answer["action"]) for answer in heard] == [("failed", action)]
    assert editor.path == offered


@pytest.mark.parametrize("content", [{}, {"type": ["draw"]}, {"type": {"a": 1}}, {"type": None}, ["draw"], "draw", 3])
def test_what_is_no_message_is_ignored(editor: mk.MaskEditor, heard: list[dict[str, Any]], content: Any) -> None:
    before = editor.revision
    editor._handle_custom_msg(content, [])
    assert (heard, editor.revision) == ([], before)


def test_an_importance_that_raises_is_not_offered(editor: mk.MaskEditor) -> None:
    def broken(group: Any) -> Any:
        raise ValueError("no")

    with pytest.raises(CutError, match="stopped on axis"):
        editor.rank_by(broken)
    editor.rank_by("l2")
    assert "broken" not in editor.payload["importances"]
    assert editor.importance == "l2"
