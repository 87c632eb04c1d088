"""Builders of the model types of transformers, and of given configurations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeAlias

import torch
from torch import nn

from modulekg_widgets.engine.errors import (
    MissingPackageError,
    PredictionError,
    UnknownNameError,
    a_type,
    closest_match_hint,
    printable,
)
from modulekg_widgets.engine.knowledge.facts.traced import CallArguments, image_call

TEXT_LENGTH = 128  # of the text that a model is called with, to count what that costs
MAX_LAYERS = 4  # layers, and experts, of a model whose type alone is asked for: more of them are the same again
_COUNTS = re.compile(r"(num_|n_|^)(\w+_)?(layers?|experts|blocks)$")
MODEL_TYPE_KEY = "model_type"
Configuration: TypeAlias = Any  # an object of the library, or a mapping with a model type


def transformers_builders(
    names: Iterable[str] | None = None, configs: Mapping[str, object] | None = None
) -> dict[str, Callable[..., nn.Module]]:
    """A builder for each type of model in transformers, and for configurations, without pretrained weights.

    A type is built as its configuration is by default, but with no more than four layers and experts.

    Parameters
    ----------
    names : iterable of str, optional
        Types, such as "bert" and "llama"; by default all, or none where `configs` are given.
    configs : mapping, optional
        Configurations by the names of their models: objects of the library, or mappings with a `model_type`.

    Returns
    -------
    dict
        Functions by name; each takes changes of the configuration as keywords, such as `num_labels`.

    Raises
    ------
    MissingPackageError
        Without transformers.
    UnknownNameError
        For a type that this version of transformers has not, and for what is not a configuration.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> tiny = {"model_type": "bert", "hidden_size": 24}
    >>> builders = mk.transformers_builders(configs={"tiny": tiny})  # doctest: +SKIP
    >>> builders["tiny"](num_attention_heads=4).config.hidden_size  # doctest: +SKIP
    24
    """
    known = _types()
    wanted = list(known if names is None and configs is None else names or ())
    found: dict[str, Callable[..., nn.Module]] = {}
    for name in wanted:
        _check_type(name, known)
        found[name] = TransformersBuilder(name)
    for name, config in (configs or {}).items():
        found[str(name)] = TransformersBuilder(str(name), _checked(config, str(name), known))
    return found


@dataclass(frozen=True, slots=True)
class TransformersBuilder:
    """Builds the base model of a type, or of a configuration; takes changes of the configuration as keywords."""

    name: str
    config: Configuration = None

    @property
    def only_without_memory(self) -> bool:
        """True: default configurations of many types have billions of weights."""
        return True

    @property
    def __name__(self) -> str:
        return self.name

    def example(self, model: nn.Module) -> CallArguments | None:
        """Returns tokens or an image for the model's main input; None for other models."""
        config: Configuration = model.config
        main = getattr(model, "main_input_name", "")
        if main == "input_ids":
            words = torch.zeros(1, TEXT_LENGTH, dtype=torch.long, device="meta")
            both = {"decoder_input_ids": words} if getattr(config, "is_encoder_decoder", False) else {}
            return (), {"input_ids": words, **both}
        size = getattr(config, "image_size", None)
        if main == "pixel_values" and size is not None:
            height, width = size if isinstance(size, list | tuple) else (size, size)
            return (), {"pixel_values": image_call(getattr(config, "num_channels", 3), height, width)[0][0]}
        return None

    def __call__(self, num_classes: int | None = None, **changes: object) -> nn.Module:
        if num_classes is not None:
            changes["num_labels"] = num_classes
        config = self._config(changes)
        auto = _library().AutoModel if num_classes is None else _classifier(config)
        return auto.from_config(config)

    def _config(self, changes: Mapping[str, object]) -> Configuration:
        if self.config is None:
            return _small_config(self.name, changes)
        values = dict(self.config if isinstance(self.config, Mapping) else self.config.to_dict())
        return _library().AutoConfig.for_model(values.pop(MODEL_TYPE_KEY), **{**values, **changes})


def _small_config(name: str, changes: Mapping[str, object]) -> Configuration:
    """Returns the default configuration, with few layers if the library accepts it."""
    made = _library().AutoConfig.for_model
    counts = {
        key: MAX_LAYERS for key, value in vars(made(name)).items()
        if _COUNTS.search(key) and type(value) is int and value > MAX_LAYERS
    }  # fmt: skip
    try:
        return made(name, **{**counts, **changes})
    except Exception:  # noqa: BLE001 - the library checks what goes with what, such as lists by layer
        return made(name, **changes)


def _classifier(config: Configuration) -> Any:
    """Returns the auto class with a classification head for a configuration; raises `PredictionError`."""
    from transformers.models.auto import modeling_auto

    for kind in ("Sequence", "Image", "Audio", "Video"):
        if type(config) in getattr(modeling_auto, f"MODEL_FOR_{kind.upper()}_CLASSIFICATION_MAPPING"):
            return getattr(modeling_auto, f"AutoModelFor{kind}Classification")
    raise PredictionError(
        f"transformers has no {printable(type(config).__name__)} for classes: build it without num_classes"
    )


def _library() -> ModuleType:
    try:
        import transformers
    except ImportError as error:
        raise MissingPackageError("these are models of transformers: pip install transformers") from error
    return transformers


def _types() -> list[str]:
    """The types that have a base model."""
    _library()
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return list(MODEL_MAPPING_NAMES)


def _check_type(name: object, known: list[str]) -> None:
    if name not in known:
        raise UnknownNameError(
            f"transformers has no type {printable(str(name))!r}: {closest_match_hint(str(name), known)}"
        )


def _checked(config: object, name: str, known: list[str]) -> Configuration:
    values = config if isinstance(config, Mapping) else vars(config) if hasattr(config, "to_dict") else None
    if values is None:
        raise UnknownNameError(
            f"configs[{printable(name)!r}] is {a_type(config)}: pass a configuration of "
            "transformers, or a "
            f"mapping with a {MODEL_TYPE_KEY!r}"
        )
    _check_type(values[MODEL_TYPE_KEY] if MODEL_TYPE_KEY in values else getattr(config, MODEL_TYPE_KEY, None), known)
    return config
