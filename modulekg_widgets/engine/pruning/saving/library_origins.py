"""Builders of the models of transformers, timm and diffusers, from what the library keeps in them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, Protocol

from torch import nn

from modulekg_widgets.engine.errors import MissingPackageError, ModelFolderError, printable
from modulekg_widgets.engine.identity.walk import nominal_class, walk
from modulekg_widgets.engine.json_types import JsonObject, JsonValue
from modulekg_widgets.engine.pruning.cut.notes import KEY
from modulekg_widgets.engine.pruning.saving.class_origin import checked_arguments, class_origins, read_class_origin
from modulekg_widgets.engine.pruning.saving.model_folder import (
    CONFIG_FILE,
    GENERATION_FILE,
    Manifest,
    exists,
    read_json,
)
from modulekg_widgets.engine.pruning.saving.origin import (
    Origin,
    SavedCut,
    TrustedClasses,
    attributes_before_cuts,
    deep_copied,
    import_path,
)
from modulekg_widgets.engine.torch_runtime.modules import module_state

# -------------------- Builder of timm models from the name of their architecture


TIMM = "timm"
RECORDED_ARGUMENTS = ("num_classes", "in_chans", "global_pool", "img_size")  # arguments that many models keep
REFUSED_ARGUMENTS = ("pretrained", "checkpoint", "cache", "model_name", "scriptable", "kwargs")  # lead to other files


@dataclass(frozen=True)
class TimmOrigin:
    """An architecture of timm with arguments of `timm.create_model`."""

    architecture: str
    arguments: Mapping[str, JsonValue]

    def document(self) -> dict[str, object]:
        return {"library": TIMM, "architecture": self.architecture, "arguments": dict(self.arguments)}

    def build(self) -> nn.Module:
        return import_module(TIMM).create_model(self.architecture, pretrained=False, **deep_copied(self.arguments))


def timm_origins(model: nn.Module, cuts: Sequence[SavedCut], arguments: object) -> Iterator[TimmOrigin]:
    """The possible builders of a timm model; none for any other."""
    library = sys.modules.get(TIMM)
    state = module_state(model)
    config = state.get("pretrained_cfg", state.get("default_cfg"))
    name = config.get("architecture") if isinstance(config, dict) else getattr(config, "architecture", None)
    own = type(model).__module__.partition(".")[0] == TIMM
    if library is None or not own or not isinstance(name, str) or not library.is_model(name):
        return
    if arguments is not None:
        yield TimmOrigin(name, checked_timm_arguments(checked_arguments(arguments)))
        return
    yield TimmOrigin(name, {})
    before = attributes_before_cuts(cuts)
    kept = {key: before.get(key, state.get(key)) for key in RECORDED_ARGUMENTS}
    recorded = {key: value for key, value in kept.items() if isinstance(value, int | str)}
    yield TimmOrigin(name, {key: value for key, value in recorded.items() if key == "num_classes"})
    yield TimmOrigin(name, recorded)


def read_timm_origin(manifest: Mapping[str, object]) -> TimmOrigin:
    """The builder in a manifest; raises `ModelFolderError` for unknown architectures."""
    try:
        library = import_module(TIMM)
    except ImportError as error:
        raise MissingPackageError("the folder holds a model of timm: pip install timm") from error
    name, arguments = manifest.get("architecture"), manifest.get("arguments")
    if not isinstance(name, str) or not name.isidentifier() or not library.is_model(name):
        raise ModelFolderError(f"{printable(repr(name))} is not an architecture of timm {library.__version__}")
    return TimmOrigin(name, checked_timm_arguments(checked_arguments(arguments)))


def checked_timm_arguments(arguments: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """The arguments; raises `ModelFolderError` for those that open or download files."""
    wrong = next((name for name in arguments if name.startswith(REFUSED_ARGUMENTS)), None)
    if wrong is not None:
        raise ModelFolderError(f"the argument {printable(wrong)!r} leads timm to other files: leave it out")
    return arguments


# ----------------------------------------


TRANSFORMERS = "transformers"
NON_FINITE_NUMBERS = {"Infinity": float("inf"), "-Infinity": -float("inf"), "NaN": float("nan")}
# keys that would make the library run code, open other files or ask the network; also of configurations in it
REFUSED_KEYS = {"auto_map", "custom_pipelines", "transformers_weights", "configuration_files", "quantization_config",
           "_name_or_path_to_code", "trust_remote_code"}  # fmt: skip
KERNEL_KEYS = {"attn_implementation", "_attn_implementation", "experts_implementation", "_experts_implementation",
           "_attn_implementation_internal", "_experts_implementation_internal"}  # fmt: skip
LIBRARY_KERNELS = {
    "eager",
    "sdpa",
    "flash_attention_2",
    "flash_attention_3",
    "flex_attention",
    "grouped_mm",
    "batched_mm",
}
PRETRAINED_KEYS = {"use_pretrained_backbone"}
# names by which the library lets timm, or itself, build a part, and what it hands on to timm
BACKBONE_KEYS = {"architecture", "backbone"}
TIMM_ARGUMENT_KEYS = {"model_args", "backbone_kwargs", "backbone_args", "timm_kwargs"}
PLAIN_NAME = re.compile(r"[\w.\-]+\Z")  # a name, and no path or address
ADDRESS = re.compile(r"\s*(hf[-_]hub|local-dir|file|https?|s3|ftp):", re.IGNORECASE)  # wherever it stands
MAX_LAYERS, MAX_LABELS, MAX_DEPTH = 10_000, 100_000, 3
_LAYERS = re.compile(r"layer|depth|block")
_LABELS = re.compile(r"(num|n)_(labels|classes)$")  # of which the library makes lists of names


class Configuration(Protocol):
    """A configuration of transformers."""

    def to_json_string(self, use_diff: bool) -> str: ...


@dataclass(frozen=True)
class TransformersOrigin:
    """A model class of transformers with the document of a configuration."""

    cls: type
    config: Mapping[str, JsonValue]
    kernels: Mapping[str, JsonValue]  # the implementations of attention and experts, which no configuration file has
    generation: Mapping[str, JsonValue] | None = None  # the document of what `generate` goes by

    def document(self) -> dict[str, object]:
        return {"library": TRANSFORMERS, "class": _name_of(self.cls), "kernels": dict(self.kernels)}

    def with_config(self, config: Mapping[str, JsonValue]) -> TransformersOrigin:
        return TransformersOrigin(self.cls, config, self.kernels, self.generation)

    @cached_property
    def computed(self) -> frozenset[str]:
        """The lists that the configuration class computes by itself, as names of stages."""
        lists = {key: value for key, value in self.config.items() if isinstance(value, list)}
        try:
            made = config_document(self._configuration({k: v for k, v in self.config.items() if k not in lists}))
        except Exception:  # noqa: BLE001 - of the library, whatever it needs
            return frozenset()
        return frozenset(key for key, value in lists.items() if made.get(key) == value)

    def _configuration(self, document: Mapping[str, JsonValue]) -> Configuration:
        return self.cls.config_class.from_dict(_decoded(deep_copied(document)))  # type: ignore[attr-defined]

    def build(self) -> nn.Module:
        config = self._configuration(self.config)
        for name, value in self.kernels.items():
            setattr(config, name, value)
        model = self.cls(config)
        if self.generation is not None and getattr(model, "generation_config", None) is not None:
            model.generation_config = type(model.generation_config).from_dict(deep_copied(self.generation))
        return model


def transformers_origin(model: nn.Module, cuts: Sequence[SavedCut]) -> TransformersOrigin | None:
    """The builder of a transformers model before `cuts`; None for any other."""
    library = sys.modules.get(TRANSFORMERS)
    cls = nominal_class(model)
    if library is None or not isinstance(model, library.PreTrainedModel):
        return None
    pretrained: Any = model  # of a class of the library, which need not be installed
    document = config_document(pretrained.config)
    for keys, before in _config_before(model, pretrained.config, cuts).items():
        part = document
        for key in keys[:-1]:
            inner = part[key]
            assert isinstance(inner, dict)
            part = inner
        part[keys[-1]] = before
    for key in ("_name_or_path", "transformers_version", KEY, *KERNEL_KEYS):
        document.pop(key, None)
    document["architectures"] = [cls.__name__]
    parameter = next((each for each in model.parameters() if each.is_floating_point()), None)
    if parameter is not None:
        document["dtype"] = str(parameter.dtype).removeprefix("torch.")
    kernels = {
        name: getattr(pretrained.config, name, None) for name in ("_attn_implementation", "_experts_implementation")
    }
    generation = getattr(model, "generation_config", None) if pretrained.can_generate() else None
    return TransformersOrigin(
        cls, _checked(document), {name: value for name, value in kernels.items() if value in LIBRARY_KERNELS},
        None if generation is None else json.loads(generation.to_json_string(use_diff=True)),
    )  # fmt: skip


def config_document(config: Configuration) -> JsonObject:
    """A configuration as JSON, with default values."""
    return json.loads(config.to_json_string(use_diff=False))


def _config_before(
    model: nn.Module, config: Configuration, cuts: Sequence[SavedCut]
) -> dict[tuple[str, ...], JsonValue]:
    """The old values of configuration keys that cuts changed, by path."""
    walked = walk(model)
    states = {path: walked.states[index] for path, index in walked.all_paths()}
    inside = dict(_configurations_in(config))
    values = {}
    for path, before in attributes_before_cuts(cuts).items():
        holder, _, key = path.rpartition(".")
        module, _, attribute = holder.rpartition(".")
        keys = inside.get(id(states.get(module, {}).get(attribute)))
        if keys is not None:
            values[(*keys, key)] = list(before) if isinstance(before, tuple) else before
    return values


def _configurations_in(config: Configuration, keys: tuple[str, ...] = ()) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The identities of a configuration and of nested ones, with their key paths."""
    yield id(config), keys
    for key, value in vars(config).items():
        if callable(getattr(type(value), "to_json_string", None)) and len(keys) < MAX_DEPTH:
            yield from _configurations_in(value, (*keys, key))


def read_transformers_origin(
    manifest: Mapping[str, object], config: JsonValue, generation: JsonValue, trusted: TrustedClasses
) -> TransformersOrigin:
    """The builder in a folder; raises `ModelFolderError` for what the library would not build."""
    name = manifest.get("class")
    kernels = manifest.get("kernels", {})
    if not isinstance(name, str) or not isinstance(kernels, dict) or not isinstance(config, dict):
        raise ModelFolderError("the manifest names no class of transformers: save the model again")
    own = trusted.get(name)
    cls = own if isinstance(own, type) else _class_of_library(name, trusted)
    _checked(config)
    names = {"_attn_implementation", "_experts_implementation"}
    if not kernels.keys() <= names or not all(value in LIBRARY_KERNELS for value in kernels.values()):
        raise ModelFolderError("the manifest names kernels that are not the library's own: save the model again")
    if generation is not None and not isinstance(generation, dict):
        raise ModelFolderError("generation_config.json is not an object: save the model again")
    return TransformersOrigin(cls, config, kernels, generation)


def _class_of_library(name: str, trusted: TrustedClasses) -> type:
    try:
        library = import_module(TRANSFORMERS)
    except ImportError as error:
        raise MissingPackageError("the folder holds a model of transformers: pip install transformers") from error
    cls = getattr(library, name, None) if name.isidentifier() and not name.startswith("_") else None
    if not (isinstance(cls, type) and issubclass(cls, library.PreTrainedModel)):
        hint = f", of which {', '.join(sorted(trusted))} were passed" if trusted else ""
        raise ModelFolderError(
            f"{printable(name)} is not a model class of transformers: for one of your own pass "
            f"classes=[{printable(name)}]{hint}"
        )
    return cls


def _name_of(cls: type) -> str:
    library = sys.modules.get(TRANSFORMERS)
    return cls.__name__ if getattr(library, cls.__name__, None) is cls else import_path(cls)


def _checked(document: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """The document; raises `ModelFolderError` if it asks for code, other files or the network."""
    waiting: list[JsonValue] = [document]
    while waiting:
        part = waiting.pop()
        for key, value in part.items() if isinstance(part, Mapping) else ():
            if (key in REFUSED_KEYS or key in PRETRAINED_KEYS) and value:
                raise ModelFolderError(
                    f"the configuration has {printable(key)!r}, which leads to code, quantisation or files that are "
                    "not in "
                    "the folder: take it out, if you know what the model is without it"
                )
            if key in KERNEL_KEYS and value is not None and not _are_library_kernels(value):
                raise ModelFolderError(
                    f"the configuration has {printable(key)} = {printable(repr(value))}, a kernel of others"
                )
            if key in BACKBONE_KEYS and isinstance(value, str) and not PLAIN_NAME.match(value):
                raise ModelFolderError(
                    f"the configuration has {printable(key)} = {printable(repr(value))}, which leads to other files: "
                    "name an "
                    "architecture that the library builds by itself"
                )
            if key in TIMM_ARGUMENT_KEYS and isinstance(value, Mapping):
                checked_timm_arguments(value)
            for most, what in ((MAX_LAYERS, _LAYERS), (MAX_LABELS, _LABELS)):
                if type(value) is int and value > most and what.search(str(key)):
                    raise ModelFolderError(f"the configuration has {printable(key)} = {value:,}: no model has so many")
        if isinstance(part, str) and ADDRESS.match(part):
            raise ModelFolderError(
                f"the configuration has the address {printable(repr(part), 100)}: nothing is fetched"
            )
        waiting += part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else ()
    return document


def _are_library_kernels(value: JsonValue) -> bool:
    values = value.values() if isinstance(value, dict) else [value]
    return all(isinstance(each, str) and each in LIBRARY_KERNELS for each in values)


def _decoded(value: JsonValue) -> JsonValue:
    """The document with the library's notation for infinite numbers decoded."""
    if isinstance(value, dict):
        number = value.get("__float__")
        if len(value) == 1 and isinstance(number, str) and number in NON_FINITE_NUMBERS:
            return NON_FINITE_NUMBERS[number]
        return {key: _decoded(part) for key, part in value.items()}
    return [_decoded(part) for part in value] if isinstance(value, list) else value


# -------------------- Builder of diffusers models from the class and its registered arguments


DIFFUSERS = "diffusers"
REGISTERED_ARGUMENTS = "_internal_dict"  # what the library keeps of the call of a constructor
ADDRESS_ARGUMENTS = (
    "pretrained",
    "_name_or_path",
    "auto_map",
    "quantization_config",
)  # lead to other files, or to code


@dataclass(frozen=True)
class DiffusersOrigin:
    """A model class of diffusers with its constructor arguments."""

    cls: type
    arguments: Mapping[str, JsonValue]

    def document(self) -> dict[str, object]:
        return {"library": DIFFUSERS, "class": self.cls.__name__, "arguments": dict(self.arguments)}

    def build(self) -> nn.Module:
        return self.cls(**deep_copied(self.arguments))


def diffusers_origin(model: nn.Module) -> DiffusersOrigin | None:
    """The builder of a diffusers model; None for any other."""
    library = sys.modules.get(DIFFUSERS)
    cls = nominal_class(model)
    registered = vars(model).get(REGISTERED_ARGUMENTS)
    if library is None or not isinstance(registered, Mapping) or not issubclass(cls, library.ModelMixin):
        return None
    if getattr(library, cls.__name__, None) is not cls:
        return None  # a class of the user's, which its path finds
    arguments = {name: value for name, value in registered.items() if not name.startswith("_")}
    return DiffusersOrigin(cls, _checked_diffusers_arguments(checked_arguments(_as_lists(arguments))))


def read_diffusers_origin(manifest: Mapping[str, object]) -> DiffusersOrigin:
    """The builder in a manifest; raises `ModelFolderError` for other classes."""
    try:
        library = import_module(DIFFUSERS)
    except ImportError as error:
        raise MissingPackageError("the folder holds a model of diffusers: pip install diffusers") from error
    name = manifest.get("class")
    is_public = isinstance(name, str) and name.isidentifier() and not name.startswith("_")
    cls = getattr(library, str(name), None) if is_public else None
    if not (isinstance(cls, type) and issubclass(cls, library.ModelMixin)):
        raise ModelFolderError(f"{printable(repr(name), 60)} is not a model class of diffusers {library.__version__}")
    return DiffusersOrigin(cls, _checked_diffusers_arguments(checked_arguments(manifest.get("arguments"))))


def _checked_diffusers_arguments(arguments: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    wrong = next((name for name, value in arguments.items() if name.startswith(ADDRESS_ARGUMENTS) and value), None)
    if wrong is not None:
        raise ModelFolderError(f"the argument {printable(wrong)!r} leads diffusers to other files: leave it out")
    return arguments


def _as_lists(value: object) -> object:
    """Tuples as lists."""
    if isinstance(value, Mapping):
        return {key: _as_lists(part) for key, part in value.items()}
    return [_as_lists(part) for part in value] if isinstance(value, list | tuple) else value


# -------------------- Detection of a model's library and of its builder


def possible_origins(
    model: nn.Module, cuts: Sequence[SavedCut], arguments: object, builder: object
) -> Iterator[Origin]:
    """The possible builders of a model, the likeliest first; raises `ModelFolderError` if there is none."""
    known = False
    if arguments is None and builder is None and (origin := transformers_origin(model, cuts)) is not None:
        yield origin
        known = True
    if arguments is None and builder is None and (of_diffusers := diffusers_origin(model)) is not None:
        yield of_diffusers
        known = True
    for each in timm_origins(model, cuts, arguments) if builder is None else ():
        yield each
        known = True
    if not known:
        yield from class_origins(model, cuts, arguments, builder)


def read_origin(manifest: Manifest, folder: str, trusted: TrustedClasses) -> Origin:
    """The builder in a folder; raises `ModelFolderError` for untrusted names."""
    document = manifest.origin
    library = document.get("library")
    if library == "transformers":
        generation = read_json(folder, GENERATION_FILE) if exists(folder, GENERATION_FILE) else None
        return read_transformers_origin(document, read_json(folder, CONFIG_FILE), generation, trusted)
    if library == "timm":
        return read_timm_origin(document)
    if library == "diffusers":
        return read_diffusers_origin(document)
    if library == "torch":
        return read_class_origin(document, trusted)
    raise ModelFolderError(
        f"the manifest names the library {printable(repr(library), 60)}, which is none that is known"
    )
