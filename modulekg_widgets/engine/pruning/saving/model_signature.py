"""Model signatures: names, shapes and ties of tensors, classes, and attributes that code reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias

import torch
from torch import nn

from modulekg_widgets.engine.errors import ModelFolderError, printable
from modulekg_widgets.engine.identity.walk import Walk, is_structural, nominal_class, walk
from modulekg_widgets.engine.torch_runtime.isolation.attribute_writes import (
    attributes_read,
    methods_of,
    reachable_functions,
)
from modulekg_widgets.engine.torch_runtime.isolation.instances import SCALARS
from modulekg_widgets.engine.torch_runtime.private import MODULES, VOLATILE_BUFFERS
from modulekg_widgets.engine.tracing.unregistered_tensors import (
    ATTRIBUTE,
    BUFFER,
    ModelTensor,
    named_registered_tensors,
    named_unregistered_tensors,
)

FactKey: TypeAlias = "tuple[str | int, ...]"  # kind, path, and name or dimension
Facts = dict[FactKey, object]  # what is compared
CONFIG = "config"  # where models of transformers keep what they were built from
SELF = "self"
SIZE_FACTS = ("size", "attribute", "length")  # the kinds of facts that a size can be
_MISSING = object()


@dataclass(frozen=True)
class ModelSignature:
    """The tensors and facts of a model, for comparison with another one."""

    model: nn.Module
    walked: Walk
    tensors: tuple[ModelTensor, ...]  # parameters, buffers and plain tensors, under each of their names

    @classmethod
    def of(cls, model: nn.Module) -> ModelSignature:
        walked = walk(model)
        registered = list(named_registered_tensors(walked, walked.all_paths()))
        return cls(model, walked, (*registered, *named_unregistered_tensors(walked)))

    @cached_property
    def first_names(self) -> dict[str, str]:
        """The first name of each tensor by all of its names."""
        firsts: dict[int, str] = {}
        return {held.name: firsts.setdefault(id(held.tensor), held.name) for held in self.tensors}

    @cached_property
    def by_name(self) -> dict[str, ModelTensor]:
        return {held.name: held for held in self.tensors}

    @cached_property
    def unsaved(self) -> frozenset[str]:
        """The names of the tensors outside of the state_dict."""
        return frozenset(held.name for held in self.tensors if is_unsaved(held))

    @property
    def _classes(self) -> frozenset[type]:
        return frozenset(map(type, self.walked.modules))

    @cached_property
    def facts(self) -> Facts:
        """All facts that must be equal for two models to compute the same with equal tensors."""
        facts: Facts = {}
        for held in self.tensors:
            if self.first_names[held.name] != held.name:
                facts["tied", held.name] = self.first_names[held.name]
                continue
            facts["dimensions", held.name] = held.tensor.dim()
            facts.update({("size", held.name, at): size for at, size in enumerate(held.tensor.shape)})
        read = _attributes_by_class(self._classes)
        for path, index in self.walked.all_paths():
            cls = nominal_class(self.walked.modules[index])
            facts["class", path] = f"{cls.__module__}.{cls.__qualname__}"
            if issubclass(cls, nn.ModuleList):
                facts["length", path] = len(self.walked.states[index][MODULES])
            names = read[type(self.walked.modules[index])]
            for name, value in self.walked.states[index].items():
                if is_structural(name) and name in names and _is_plain(value):
                    facts["attribute", path, name] = _comparable(value)
        return facts

    @cached_property
    def config_read(self) -> Mapping[str, object]:
        """The configuration values that the code reads at run time, by key."""
        config = getattr(self.model, CONFIG, None)
        keys = _keys_read(self._classes)
        return {key: _comparable(value) for key in keys if _is_plain(value := getattr(config, key, None))}


@lru_cache(maxsize=64)
def _attributes_by_class(classes: frozenset[type]) -> dict[type, frozenset[str]]:
    """The attributes that code reads while the model runs, by module class."""
    functions = list(reachable_functions(classes))
    entered = {function.__code__ for function in functions}
    anywhere = attributes_read(functions, but=SELF)
    return {
        cls: anywhere | attributes_read(
            (each for each in methods_of(cls, nn.Module) if is_of_torch(cls) or each.__code__ in entered), of=SELF
        )
        for cls in classes
    }  # fmt: skip


@lru_cache(maxsize=64)
def _keys_read(classes: frozenset[type]) -> frozenset[str]:
    """The configuration keys that code reads while the model runs."""
    return attributes_read(reachable_functions(classes), of=CONFIG)


def is_of_torch(cls: type) -> bool:
    """True if a class is one of torch."""
    return cls.__module__.partition(".")[0] == "torch"


def is_unsaved(held: ModelTensor) -> bool:
    """True if a tensor is not in the state_dict."""
    return held.kind == ATTRIBUTE or (held.kind == BUFFER and held.attribute in held.state[VOLATILE_BUFFERS])


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(part) for part in value)
    if type(value) is dict:
        return all(type(key) is str and _is_plain(part) for key, part in value.items())
    return type(value) in SCALARS


def _comparable(value: object) -> object:
    """Lists as tuples, as JSON has no tuples."""
    if isinstance(value, list | tuple):
        return tuple(_comparable(part) for part in value)
    return {key: _comparable(part) for key, part in value.items()} if type(value) is dict else value


def differing_facts(one: Facts, other: Facts) -> list[FactKey]:
    """The facts that differ or that only one model has."""
    return [
        key for key in dict.fromkeys((*one, *other))
        if not _equal(one.get(key, _MISSING), other.get(key, _MISSING))
    ]  # fmt: skip


def _equal(one: object, other: object) -> bool:
    return one is other or (type(one) is type(other) and one == other) or (one != one and other != other)


def can_be_set(key: FactKey, one: Facts, other: Facts) -> bool:
    """True if a fact is an attribute with a number, text or flag in both models."""
    return key[0] == "attribute" and all(type(facts.get(key, ())) in SCALARS for facts in (one, other))


def is_set_by_forward(key: FactKey, rebuilt: Facts) -> bool:
    """True if an attribute exists only since the model ran."""
    return key[0] == "attribute" and key not in rebuilt


def attribute_path(key: FactKey) -> str:
    """The path of an attribute."""
    return ".".join(str(part) for part in key[1:] if part)


def set_attributes(signature: ModelSignature, attributes: Mapping[str, object]) -> None:
    """Set attributes of a model; raises `ModelFolderError` for others."""
    keys = {attribute_path(key): key for key in signature.facts if key[0] == "attribute"}
    states = {path: signature.walked.states[index] for path, index in signature.walked.all_paths()}
    for name, value in attributes.items():
        key = keys.get(name)
        if key is None or not can_be_set(key, signature.facts, {key: value}):
            raise ModelFolderError(
                f"the folder sets {printable(name)}, which is not a number, text or flag of the model"
            )
        _, path, attribute = map(str, key)
        states[path][attribute] = value


def describe_fact(key: FactKey, one: Facts, other: Facts) -> str:
    """A difference as text."""
    kind, *where = key
    name = printable(".".join(str(part) for part in where if part != ""), 120) or "the model"
    here, there = (printable(repr(facts[key]), 60) if key in facts else "none" for facts in (one, other))
    what = {"size": "size", "dimensions": "number of dimensions", "tied": "tie", "class": "class"}.get(
        str(kind), "value"
    )
    return f"the {what} of {name} is {here}, and built anew {there}"


def same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True if two tensors are equal bit by bit, in the dtype of `one`."""
    if one.is_meta or other.is_meta or one.shape != other.shape:
        return False
    alike = other.to(device=one.device, dtype=one.dtype)
    return torch.equal(one.nan_to_num(), alike.nan_to_num()) if one.is_floating_point() else torch.equal(one, alike)
