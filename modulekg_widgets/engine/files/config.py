"""A config.json beside a model file, as transformers writes it: class, title and sizes as text, none of it run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from modulekg_widgets.engine.files.records import FileContents, Plain
from modulekg_widgets.engine.files.source import FileSource
from modulekg_widgets.engine.safe_files import parse_json

NAME = "config.json"
LARGEST = 1 << 20  # bytes
MOST_PARTS = 10_000
MOST_SETTINGS = 200
LONGEST = 200  # characters of a text


def with_config(contents: FileContents, source: FileSource) -> FileContents:
    """The contents with what a config.json of the same folder adds; one that makes no sense is a warning."""
    if not source.has_beside(NAME):
        return contents
    try:
        with source.beside(NAME) as file:
            config = parse_json(file.read(), ValueError, MOST_PARTS) if file.size <= LARGEST else None
    except (OSError, ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        return replace(contents, warnings=(*contents.warnings, f"{NAME} beside the file cannot be read"))
    settings = {key: value for key, value in config.items() if _is_plain(value)}
    metadata = dict(contents.metadata)
    for key, value in list(settings.items())[:MOST_SETTINGS]:
        metadata.setdefault(key, value)
    return replace(contents, title=contents.title or _title(config), metadata=metadata)


def _title(config: dict[str, Any]) -> str:
    """The class that the model was saved from; its type where none is named."""
    names = config.get("architectures")
    first = names[0] if isinstance(names, list) and names else config.get("_class_name") or config.get("model_type")
    return first[:LONGEST] if isinstance(first, str) else ""


def _is_plain(value: Any) -> bool:
    return isinstance(value, Plain) and not (isinstance(value, str) and len(value) > LONGEST)
