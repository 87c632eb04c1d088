"""What was measured, kept in a file after each cell, so that a run goes on where it was stopped."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Results:
    """Lists of repetitions, by part, tool and model. Several runs may fill one file at the same time."""

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
        with self._written():
            self.cell(part, tool, model).append(found)

    def put(self, part: str, found: Any) -> None:
        with self._written():
            self.kept[part] = found

    @contextmanager
    def _written(self) -> Iterator[None]:
        """What is changed here is changed in what the file has by now."""
        with self.path.open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            self.kept = json.loads(file.read() or "{}")
            yield
            file.truncate(0)
            file.write(json.dumps(self.kept, indent=1, ensure_ascii=False) + "\n")
