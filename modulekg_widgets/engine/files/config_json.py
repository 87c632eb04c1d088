"""config.json beside a model file, as transformers, diffusers and timm write it: title and settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.files.graph_building import MAX_ELEMENTS, abbreviate_value
from modulekg_widgets.engine.files.records import FileContents, PlainValue
from modulekg_widgets.engine.files.source import FileSource
from modulekg_widgets.engine.safe_files import parse_json

CONFIG_NAME = "config.json"
ADAPTER_CONFIG_NAME, ADAPTER_WEIGHTS_PREFIX = (
    "adapter_config.json",
    "adapter_model.",
)  # and what the files of weights begin with that it is of
MAX_BYTES = 1 << 20  # bytes
MAX_PARTS = 10_000
MAX_SETTINGS = 200
MAX_NESTED_SETTINGS = 100  # settings of one object within the config; what has more is a table, such as one of labels
MAX_TEXT = 200  # characters of a text
_TITLES = ("_class_name", "architecture", "model_type", "peft_type")
_MAX_EXACT_INTEGER = 1 << 53  # up to it doubles have all whole numbers


def add_config(contents: FileContents, source: FileSource) -> FileContents:
    """Returns the contents with the settings of a config.json in the same folder; an invalid one is a warning.

    An adapter, as peft saves it, has one of its own, and says which model it is for.
    """
    is_adapter = source.name.rpartition("/")[2].startswith(ADAPTER_WEIGHTS_PREFIX)
    own = ADAPTER_CONFIG_NAME if is_adapter and source.has_beside(ADAPTER_CONFIG_NAME) else CONFIG_NAME
    if not source.has_beside(own):
        return contents
    try:
        with source.beside(own) as file:
            config = parse_json(file.read(), ValueError, MAX_PARTS) if file.size <= MAX_BYTES else None
    except (OSError, ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        return replace(contents, warnings=(*contents.warnings, f"{own} next to the file cannot be read"))
    metadata = dict(contents.metadata)
    for key, value in list(_settings(config).items())[:MAX_SETTINGS]:
        metadata.setdefault(key, value)
    told = (*_adapter_note(config), *contents.warnings) if own == ADAPTER_CONFIG_NAME else contents.warnings
    return replace(contents, title=contents.title or _title(config), metadata=metadata, warnings=told)


def _adapter_note(config: Mapping[str, object]) -> tuple[str]:
    base = config.get("base_model_name_or_path")
    named = printable(base, MAX_TEXT) if isinstance(base, str) and base else "another model"
    return (f"this is an adapter of {named}, whose own weights are not in this file: open that model for them",)


def _title(config: Mapping[str, object]) -> str:
    """The class in the config; its architecture or model type if there is none."""
    names = config.get("architectures")
    others = next((config[key] for key in _TITLES if config.get(key)), None)
    first = names[0] if isinstance(names, list) and names else others
    return first[:MAX_TEXT] if isinstance(first, str) else ""


def _settings(config: Mapping[str, object]) -> dict[str, PlainValue]:
    """The plain settings, and those of nested objects under dotted names."""
    found = dict(_plain_settings(config))
    for key, value in config.items():
        nested = dict(_plain_settings(value)) if isinstance(value, dict) and not _is_number(key) else {}
        if len(nested) <= MAX_NESTED_SETTINGS:
            for name, setting in nested.items():
                found.setdefault(f"{key}.{name}", setting)
    return {key: value for key, value in found.items() if len(key) <= MAX_TEXT}


def _plain_settings(config: Mapping[str, object]) -> Iterator[tuple[str, PlainValue]]:
    """Plain values, and short lists as text; keys that are numbers are skipped, as they index lists of labels."""
    for key, value in config.items():
        if _is_number(key):
            continue
        if isinstance(value, list):
            if len(value) <= MAX_ELEMENTS and all(isinstance(part, PlainValue) for part in value):
                yield key, abbreviate_value([_text(part) for part in value])
        elif isinstance(value, PlainValue) and not (isinstance(value, str) and len(value) > MAX_TEXT):
            yield key, abbreviate_value(value)


def _is_number(key: str) -> bool:
    return key.isascii() and key.isdecimal()


def _text(value: PlainValue) -> str:
    """Returns an element of a list as JavaScript prints it: 2.0 is "2"."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return str(abbreviate_value(value))
    if abs(value) <= _MAX_EXACT_INTEGER and value == int(value):
        return str(int(value))
    try:
        return str(float(value))
    except OverflowError:
        return "inf" if value > 0 else "-inf"
