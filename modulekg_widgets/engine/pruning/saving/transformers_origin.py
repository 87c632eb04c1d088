"""Models of transformers, built from their configurations by the classes of the library itself."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

from torch import nn

from modulekg_widgets.engine.errors import MissingPackageError, ModelFolderError, shown
from modulekg_widgets.engine.identity.walk import nominal_class, walk
from modulekg_widgets.engine.pruning.cut.notes import KEY
from modulekg_widgets.engine.pruning.saving.origin import SavedCut, Trusted, before_cuts, fresh, path_of
from modulekg_widgets.engine.pruning.saving.timm_origin import checked_timm_arguments

LIBRARY = "transformers"
INFINITE = {"Infinity": float("inf"), "-Infinity": -float("inf"), "NaN": float("nan")}
# keys that would make the library run code, open other files or ask the network; also of configurations in it
REFUSED = {"auto_map", "custom_pipelines", "transformers_weights", "configuration_files", "quantization_config",
           "_name_or_path_to_code", "trust_remote_code"}  # fmt: skip
KERNELS = {"attn_implementation", "_attn_implementation", "experts_implementation", "_experts_implementation",
           "_attn_implementation_internal", "_experts_implementation_internal"}  # fmt: skip
OWN_KERNELS = {"eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention", "grouped_mm", "batched_mm"}
PRETRAINED = {"use_pretrained_backbone"}
# names by which the library lets timm, or itself, build a part, and what it hands on to timm
PARTS = {"architecture", "backbone"}
HANDED_ON = {"model_args", "backbone_kwargs", "backbone_args", "timm_kwargs"}
BARE = re.compile(r"[\w.\-]+\Z")  # a name, and no path or address
ADDRESS = re.compile(r"\s*(hf[-_]hub|local-dir|file|https?|s3|ftp):", re.IGNORECASE)  # wherever it stands
MOST_LAYERS, MOST_LABELS, MOST_NESTED = 10_000, 100_000, 3
_LAYERS = re.compile(r"layer|depth|block")
_LABELS = re.compile(r"(num|n)_(labels|classes)$")  # of which the library makes lists of names


@dataclass(frozen=True)
class TransformersOrigin:
    """A class of the library and the document of a configuration."""

    cls: type
    config: Mapping[str, Any]
    kernels: Mapping[str, str]  # the implementations of attention and experts, which no configuration file has
    generation: Mapping[str, Any] | None = None  # the document of what `generate` goes by

    def document(self) -> dict[str, Any]:
        return {"library": LIBRARY, "class": _name_of(self.cls), "kernels": dict(self.kernels)}

    def with_config(self, config: Mapping[str, Any]) -> TransformersOrigin:
        return TransformersOrigin(self.cls, config, self.kernels, self.generation)

    @cached_property
    def computed(self) -> frozenset[str]:
        """The lists that the configuration's class makes so by itself when they are not given, as names of stages."""
        lists = {key: value for key, value in self.config.items() if isinstance(value, list)}
        try:
            made = document_of(self._configuration({k: v for k, v in self.config.items() if k not in lists}))
        except Exception:  # noqa: BLE001 - of the library, whatever it needs
            return frozenset()
        return frozenset(key for key, value in lists.items() if made.get(key) == value)

    def _configuration(self, document: Mapping[str, Any]) -> Any:
        return self.cls.config_class.from_dict(_decoded(fresh(document)))  # type: ignore[attr-defined]

    def build(self) -> nn.Module:
        config = self._configuration(self.config)
        for name, value in self.kernels.items():
            setattr(config, name, value)
        model = self.cls(config)
        if self.generation is not None and getattr(model, "generation_config", None) is not None:
            model.generation_config = type(model.generation_config).from_dict(fresh(self.generation))
        return model


def transformers_origin(model: Any, cuts: Sequence[SavedCut]) -> TransformersOrigin | None:
    """The origin of a model of the library, None for any other; `cuts` are those that have been made."""
    library = sys.modules.get(LIBRARY)
    cls = nominal_class(model)
    if library is None or not isinstance(model, library.PreTrainedModel):
        return None
    document = document_of(model.config)
    for keys, before in _config_before(model, cuts).items():
        part = document
        for key in keys[:-1]:
            part = part[key]
        part[keys[-1]] = before
    for key in ("_name_or_path", "transformers_version", KEY, *KERNELS):
        document.pop(key, None)
    document["architectures"] = [cls.__name__]
    parameter = next((each for each in model.parameters() if each.is_floating_point()), None)
    if parameter is not None:
        document["dtype"] = str(parameter.dtype).removeprefix("torch.")
    kernels = {name: getattr(model.config, name, None) for name in ("_attn_implementation", "_experts_implementation")}
    generation = getattr(model, "generation_config", None) if model.can_generate() else None
    return TransformersOrigin(
        cls, _checked(document), {name: value for name, value in kernels.items() if value in OWN_KERNELS},
        None if generation is None else json.loads(generation.to_json_string(use_diff=True)),
    )  # fmt: skip


def document_of(config: Any) -> dict[str, Any]:
    """A configuration of the library as JSON, with what is as by default."""
    return json.loads(config.to_json_string(use_diff=False))


def _config_before(model: Any, cuts: Sequence[SavedCut]) -> dict[tuple[str, ...], Any]:
    """What cuts have changed in the configuration of the whole model, or in one within it, as it was, by its keys."""
    walked = walk(model)
    states = {path: walked.states[index] for path, index in walked.places()}
    inside = dict(_configurations_in(model.config))
    found = {}
    for path, before in before_cuts(cuts).items():
        holder, _, key = path.rpartition(".")
        module, _, attribute = holder.rpartition(".")
        keys = inside.get(id(states.get(module, {}).get(attribute)))
        if keys is not None:
            found[(*keys, key)] = list(before) if isinstance(before, tuple) else before
    return found


def _configurations_in(config: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The identities of a configuration and of those in it, with the keys that lead there."""
    yield id(config), keys
    for key, value in vars(config).items():
        if callable(getattr(type(value), "to_json_string", None)) and len(keys) < MOST_NESTED:
            yield from _configurations_in(value, (*keys, key))


def read_transformers_origin(
    manifest: Mapping[str, Any], config: Mapping[str, Any], generation: Any, trusted: Trusted
) -> TransformersOrigin:
    """The origin that a folder tells of; raises `ModelFolderError` for what the library would not build by itself."""
    name = manifest.get("class")
    kernels = manifest.get("kernels", {})
    if not isinstance(name, str) or not isinstance(kernels, dict) or not isinstance(config, dict):
        raise ModelFolderError("the manifest names no class of transformers: save the model again")
    cls = trusted.find(name) or _class_of_library(name, trusted)
    _checked(config)
    names = {"_attn_implementation", "_experts_implementation"}
    if not kernels.keys() <= names or not all(value in OWN_KERNELS for value in kernels.values()):
        raise ModelFolderError("the manifest names kernels that are not the library's own: save the model again")
    if generation is not None and not isinstance(generation, dict):
        raise ModelFolderError("generation_config.json is no object: save the model again")
    return TransformersOrigin(cls, config, kernels, generation)


def _class_of_library(name: str, trusted: Trusted) -> type:
    try:
        library = import_module(LIBRARY)
    except ImportError as error:
        raise MissingPackageError("the folder holds a model of transformers: pip install transformers") from error
    cls = getattr(library, name, None) if name.isidentifier() and not name.startswith("_") else None
    if not (isinstance(cls, type) and issubclass(cls, library.PreTrainedModel)):
        hint = f", of which {', '.join(trusted.names)} were passed" if trusted.names else ""
        raise ModelFolderError(
            f"{shown(name)} is no model class of transformers: for one of your own pass classes=[{shown(name)}]{hint}"
        )
    return cls


def _name_of(cls: type) -> str:
    library = sys.modules.get(LIBRARY)
    return cls.__name__ if getattr(library, cls.__name__, None) is cls else path_of(cls)


def _checked(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document; raises `ModelFolderError` where it asks for code, other files or the network, at any depth."""
    waiting: list[Any] = [document]
    while waiting:
        part = waiting.pop()
        for key, value in part.items() if isinstance(part, Mapping) else ():
            if (key in REFUSED or key in PRETRAINED) and value:
                raise ModelFolderError(
                    f"the configuration has {shown(key)!r}, which leads to code, quantisation or files that are not in "
                    "the folder: take it out, if you know what the model is without it"
                )
            if key in KERNELS and value is not None and not _are_own(value):
                raise ModelFolderError(f"the configuration has {shown(key)} = {shown(repr(value))}, a kernel of others")
            if key in PARTS and isinstance(value, str) and not BARE.match(value):
                raise ModelFolderError(
                    f"the configuration has {shown(key)} = {shown(repr(value))}, which leads to other files: name an "
                    "architecture that the library builds by itself"
                )
            if key in HANDED_ON and isinstance(value, Mapping):
                checked_timm_arguments(value)
            for most, what in ((MOST_LAYERS, _LAYERS), (MOST_LABELS, _LABELS)):
                if type(value) is int and value > most and what.search(str(key)):
                    raise ModelFolderError(f"the configuration has {shown(key)} = {value:,}: no model has so many")
        if isinstance(part, str) and ADDRESS.match(part):
            raise ModelFolderError(f"the configuration has the address {shown(repr(part), 100)}: nothing is fetched")
        waiting += part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else ()
    return document


def _are_own(value: Any) -> bool:
    values = value.values() if isinstance(value, dict) else [value]
    return all(isinstance(each, str) and each in OWN_KERNELS for each in values)


def _decoded(value: Any) -> Any:
    """What the library writes for numbers that JSON has not."""
    if isinstance(value, dict):
        if value.keys() == {"__float__"} and value["__float__"] in INFINITE:
            return INFINITE[value["__float__"]]
        return {key: _decoded(part) for key, part in value.items()}
    return [_decoded(part) for part in value] if isinstance(value, list) else value
