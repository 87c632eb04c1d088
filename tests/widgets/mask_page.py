"""The page of a mask editor, as a test speaks for it."""

from __future__ import annotations

import json
from typing import Any

import pytest


class Page:
    """Keeps what an editor sends, and speaks to it as the browser does."""

    def __init__(self, editor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.editor = editor
        self.heard: list[tuple[dict[str, Any], list[bytes]]] = []
        monkeypatch.setattr(editor, "send", self._receive)

    def _receive(self, content: dict[str, Any], buffers: Any = None) -> None:
        json.dumps(content, allow_nan=False)
        self.heard.append((content, [bytes(buffer) for buffer in buffers or ()]))

    def say(self, content: dict[str, Any], *buffers: bytes) -> list[dict[str, Any]]:
        """Send one message; what the editor answers."""
        known = len(self.heard)
        self.editor._handle_custom_msg(content, [memoryview(buffer) for buffer in buffers])
        return [content for content, _ in self.heard[known:]]

    def draw(self, goes: dict[str, bytes], **more: Any) -> list[dict[str, Any]]:
        """Set all that goes, on what the page knows; what the editor answers."""
        names, known = self.editor.payload["axes"]["name"], len(self.heard)
        drawing = {
            "generation": self.editor.payload["generation"],
            "base": self.editor.draft["revision"],
            "by": "page",
            "axes": [names.index(name) for name in goes],
            "bits": memoryview(b"".join(goes.values())),
        }
        self.editor.set_state({"draft": drawing | more})
        return [content for content, _ in self.heard[known:]]
