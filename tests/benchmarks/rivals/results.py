"""What was measured, kept in a file after each cell, so that a run goes on where it was stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Results:
    """Lists of repetitions, by part, tool and model."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kept: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}

    def cell(self, part: str, tool: str, model: str) -> list[dict[str, Any]]:
        return self.kept.setdefault(part, {}).setdefault(tool, {}).setdefault(model, [])

    def lacks(self, part: str, tool: str, model: str, times: int) -> bool:
        """Whether a cell shall be measured once more; what failed is not tried again."""
        cell = self.cell(part, tool, model)
        return len(cell) < times and not any("error" in one for one in cell)

    def add(self, part: str, tool: str, model: str, found: dict[str, Any]) -> None:
        self.cell(part, tool, model).append(found)
        self.put(part, self.kept[part])

    def put(self, part: str, found: Any) -> None:
        self.kept[part] = found
        self.path.write_text(json.dumps(self.kept, indent=1, ensure_ascii=False) + "\n", "utf-8")
