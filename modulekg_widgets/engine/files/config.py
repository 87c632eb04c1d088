"""A config.json beside a model file, as transformers, diffusers and timm write it: title and sizes, none of it run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from modulekg_widgets.engine.errors import shown
from modulekg_widgets.engine.files.graph_parts import MOST_ELEMENTS, short
from modulekg_widgets.engine.files.records import FileContents, Plain
from modulekg_widgets.engine.files.source import FileSource
from modulekg_widgets.engine.safe_files import parse_json

NAME = "config.json"
ADAPTER, OF_ADAPTER = "adapter_config.json", "adapter_model."  # and what the files of weights begin with that it is of
LARGEST = 1 << 20  # bytes
MOST_PARTS = 10_000
MOST_SETTINGS = 200
MOST_NESTED = 100  # settings of one object within the config; what has more is a table, such as one of labels
LONGEST = 200  # characters of a text
_TITLES = ("_class_name", "architecture", "model_type", "peft_type")
_EXACT = 1 << 53  # up to it doubles have all whole numbers


def with_config(contents: FileContents, source: FileSource) -> FileContents:
    """The contents with what a config.json of the same folder adds; one that makes no sense is a warning.

    An adapter, as peft saves it, has one of its own, and says which model it is for.
    """
    is_adapter = source.name.rpartition("/")[2].startswith(OF_ADAPTER)
    own = ADAPTER if is_adapter and source.has_beside(ADAPTER) else NAME
    if not source.has_beside(own):
        return contents
    try:
        with source.beside(own) as file:
            config = parse_json(file.read(), ValueError, MOST_PARTS) if file.size <= LARGEST else None
    except (OSError, ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        return replace(contents, warnings=(*contents.warnings, f"{own} beside the file cannot be read"))
    metadata = dict(contents.metadata)
    for key, value in list(_settings(config).items())[:MOST_SETTINGS]:
        metadata.setdefault(key, value)
    told = (*_of_adapter(config), *contents.warnings) if own == ADAPTER else contents.warnings
    return replace(contents, title=contents.title or _title(config), metadata=metadata, warnings=told)


def _of_adapter(config: dict[str, Any]) -> tuple[str]:
    base = config.get("base_model_name_or_path")
    named = shown(base, LONGEST) if isinstance(base, str) and base else "another model"
    return (f"this is an adapter of {named}, whose own weights are not in this file: open that model for them",)


def _title(config: dict[str, Any]) -> str:
    """The class that the model was saved from; its architecture or its type where none is named."""
    names = config.get("architectures")
    others = next((config[key] for key in _TITLES if config.get(key)), None)
    first = names[0] if isinstance(names, list) and names else others
    return first[:LONGEST] if isinstance(first, str) else ""


def _settings(config: dict[str, Any]) -> dict[str, Plain]:
    """Its own settings, and then those of the objects in it under dotted names."""
    found = dict(_own(config))
    for key, value in config.items():
        nested = dict(_own(value)) if isinstance(value, dict) and not _is_number(key) else {}
        if len(nested) <= MOST_NESTED:
            for name, setting in nested.items():
                found.setdefault(f"{key}.{name}", setting)
    return {key: value for key, value in found.items() if len(key) <= LONGEST}


def _own(config: dict[str, Any]) -> Iterator[tuple[str, Plain]]:
    """What is plain, and short lists as texts; under numbers stand entries of a list, as labels do."""
    for key, value in config.items():
        if _is_number(key):
            continue
        if isinstance(value, list):
            if len(value) <= MOST_ELEMENTS and all(isinstance(part, Plain) for part in value):
                yield key, short([_text(part) for part in value])
        elif isinstance(value, Plain) and not (isinstance(value, str) and len(value) > LONGEST):
            yield key, short(value)


def _is_number(key: str) -> bool:
    return key.isascii() and key.isdecimal()


def _text(value: Plain) -> str:
    """An element of a list. JavaScript has one kind of numbers: 2.0 is 2."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return str(short(value))
    if abs(value) <= _EXACT and value == int(value):
        return str(int(value))
    try:
        return str(float(value))
    except OverflowError:
        return "inf" if value > 0 else "-inf"
