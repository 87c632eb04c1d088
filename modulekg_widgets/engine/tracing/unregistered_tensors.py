"""Tensors in plain attributes and containers of modules, neither parameters nor buffers.

Position tables are often stored so; `state_dict` does not contain them. Lists, tuples, dictionaries and plain objects
are searched. Tensors with gradients, and caches that the code may recompute, are excluded.
"""

from __future__ import annotations

import copy
import functools
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import torch
from torch import nn

from modulekg_widgets.engine.identity.walk import Walk
from modulekg_widgets.engine.torch_runtime.isolation.attribute_writes import AttributeWrites, find_attribute_writes
from modulekg_widgets.engine.torch_runtime.isolation.callables import reachable_tensors
from modulekg_widgets.engine.torch_runtime.isolation.instances import (
    IMMUTABLE_TYPES,
    SCALARS,
    attributes,
    is_external,
    is_plain_object,
)
from modulekg_widgets.engine.torch_runtime.isolation.shadow import has_strided_memory
from modulekg_widgets.engine.torch_runtime.modules import STANDARD, Attributes, registered_tensors
from modulekg_widgets.engine.torch_runtime.private import CALL_HOOKS, PARAMETERS, address_of

PARAMETER, BUFFER = "parameter", "buffer"
ATTRIBUTE = "attribute"  # a tensor of the model that is neither parameter nor buffer
MAX_DEPTH = 4  # containers in each other
_MAPPINGS = (dict, OrderedDict, defaultdict)
_KEYS = SCALARS | {bytes}
_CALLABLES = (FunctionType, MethodType, functools.partial)


class ModelTensor(NamedTuple):
    """A tensor under one of its names."""

    name: str
    kind: str
    tensor: torch.Tensor
    state: Attributes  # of the module that holds it
    attribute: str
    way: tuple[object, ...] = ()  # of a plain tensor: the containers between the attribute and it
    names: tuple[str, ...] = ()  # of a plain tensor: the attributes on the way, first that of the module


def named_registered_tensors(walk: Walk, places: Sequence[tuple[str, int]]) -> Iterator[ModelTensor]:
    """The parameters and buffers under each of their names, in the order of the places."""
    for place, index in places:
        state = walk.states[index]
        for name, tensor in registered_tensors(state).items():
            kind = PARAMETER if name in state[PARAMETERS] else BUFFER
            yield ModelTensor(f"{place}.{name}" if place else name, kind, tensor, state, name)


class _ContainedTensor(NamedTuple):
    """A tensor in a container."""

    suffix: str  # as `['cos'][0]`
    tensor: torch.Tensor
    way: tuple[object, ...]  # the containers that lead to it
    names: tuple[str, ...]  # of the attributes of plain objects among them


def named_unregistered_tensors(walk: Walk) -> Iterator[ModelTensor]:
    """The plain tensors of all modules under each of their names, as `pos` and `rope.tables['cos']`."""
    places = walk.all_paths()
    registered = [held.tensor for held in named_registered_tensors(walk, places)]
    others = set(map(id, registered))
    functions = (value for state in walk.states for value in state.values() if isinstance(value, _CALLABLES))
    others.update(id(tensor) for function in functions for tensor in reachable_tensors(function))
    search = _TensorSearch(others, {_storage(tensor) for tensor in registered} - {0})
    for place, index in places:
        state = walk.states[index]
        for attribute, found in search.of_module(state):
            name = f"{place}.{attribute}{found.suffix}" if place else f"{attribute}{found.suffix}"
            yield ModelTensor(name, ATTRIBUTE, found.tensor, state, attribute, found.way, (attribute, *found.names))


def unregistered_tensor(state: Attributes, name: str) -> torch.Tensor | None:
    """The tensor of this name that a module holds by now."""
    every = _TensorSearch().of_module(state)
    return next((found.tensor for attribute, found in every if attribute + found.suffix == name), None)


class _TensorSearch:
    """A search for tensors in containers; each container is visited once."""

    def __init__(self, others: set[int] | None = None, memories: set[int] | None = None) -> None:
        self._others = others or set()  # tensors that are registered, or that a function reaches past the attribute
        self._memories = memories or set()  # of parameters and buffers: a view of one has to stay a view
        self._known: dict[tuple[int, int], list[_ContainedTensor]] = {}

    def of_module(self, state: Attributes) -> Iterator[tuple[str, _ContainedTensor]]:
        """Yields the tensors found in the attributes of a module, with the attribute."""
        for attribute, value in state.items():
            if attribute not in STANDARD and type(value) not in SCALARS:
                yield from ((attribute, found) for found in self.inside(value))

    def inside(self, value: object, depth: int = 0) -> list[_ContainedTensor]:
        if isinstance(value, torch.Tensor):
            return [_ContainedTensor("", value, (), ())] if self._is_candidate(value) else []
        if depth == MAX_DEPTH or not is_container(value):
            return []
        key = (id(value), depth)
        if key not in self._known:
            self._known[key] = []  # while it is looked into: it may contain itself
            self._known[key] = [
                _ContainedTensor(step + found.suffix, found.tensor, (value, *found.way), (*names, *found.names))
                for step, part, names in _parts(value)
                for found in self.inside(part, depth + 1)
            ]
        return self._known[key]

    def _is_candidate(self, tensor: torch.Tensor) -> bool:
        """True if a tensor is a plain constant table: no gradient, own memory, not registered."""
        plain = type(tensor) is torch.Tensor and not tensor.requires_grad and id(tensor) not in self._others
        return plain and has_strided_memory(tensor) and tensor.numel() > 1 and _storage(tensor) not in self._memories


def _storage(tensor: torch.Tensor) -> int:
    """Returns an identifier of a tensor's memory, with or without data; 0 where it has none."""
    own = has_strided_memory(tensor) and not nn.parameter.is_lazy(tensor)
    return address_of(tensor.untyped_storage()) if own else 0


def is_container(value: object) -> bool:
    """True for lists, tuples, dicts, and objects that consist of attributes alone."""
    cls = type(value)
    if cls in _MAPPINGS or cls in (list, tuple) or _is_named_tuple(cls):
        return True
    other = (
        isinstance(value, (*IMMUTABLE_TYPES, nn.Module, torch.Tensor)) or hasattr(cls, "__del__") or is_external(cls)
    )
    return not other and is_plain_object(cls) and attributes(value) is not None


def _is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_make") and hasattr(cls, "_fields")


def _parts(value: object) -> Iterator[tuple[str, object, tuple[str, ...]]]:
    """Yields the entries of a container: suffix of the name, entry, and attribute names."""
    if isinstance(value, dict):
        for key, part in list(value.items()):
            if type(key) in _KEYS or (type(key) is tuple and all(type(each) in _KEYS for each in key)):
                yield f"[{key!r}]", part, ()
    elif isinstance(value, list | tuple):
        yield from ((f"[{at}]", part, ()) for at, part in enumerate(value) if type(part) not in SCALARS)
    else:
        yield from ((f".{name}", part, (name,)) for name, part in list((attributes(value) or {}).items()))


class UnregisteredTensors:
    """The unregistered tensors of a model by identity, searched on first use.

    `original`: the model of which `walk` is a copy, where a copy has as its own what the model finds in its classes.
    """

    def __init__(self, walk: Walk, original: Walk | None = None) -> None:
        self._walk = walk
        self._original = original
        self._by_identity: dict[int, list[ModelTensor]] | None = None

    def of(self, tensor: torch.Tensor) -> list[ModelTensor]:
        """All places of a tensor; none where it is no plain tensor."""
        if type(tensor) is not torch.Tensor or tensor.requires_grad or tensor.numel() < 2:
            return []
        if self._by_identity is None:
            self._by_identity = {}
            names = (
                None if self._original is None else {held.name for held in named_unregistered_tensors(self._original)}
            )
            for held in named_unregistered_tensors(self._walk):
                if names is None or held.name in names:
                    self._by_identity.setdefault(id(held.tensor), []).append(held)
        return self._by_identity.get(id(tensor), [])

    @functools.cached_property
    def attribute_writes(self) -> AttributeWrites:
        """The attributes that the code of the model may assign during forward."""
        states = self._walk.states
        objects = [value for state in states for value in state.values() if is_container(value)]
        held = (each for every in (self._by_identity or {}).values() for held in every for each in held.way)
        classes = [type(each) for each in (*self._walk.modules, *held)]
        hooks = [hook for state in states for name in CALL_HOOKS for hook in (state.get(name) or {}).values()]
        own = [value for state in states for value in state.values() if isinstance(value, _CALLABLES)]
        return find_attribute_writes(classes, [*own, *hooks], map(type, (*objects, *hooks)))

    def may_be_reassigned(self, places: Iterable[ModelTensor]) -> bool:
        """True if the code may assign one of the names: the tensor is then a cache."""
        return any(self.attribute_writes.may_write(held.names, bool(held.way)) for held in places)

    def moved(self) -> set[str]:
        """Returns the names of tensors that the model no longer holds."""
        before = {held.name: held.tensor for every in (self._by_identity or {}).values() for held in every}
        now = {held.name: held.tensor for held in named_unregistered_tensors(self._walk)} if before else {}
        return {name for name, tensor in before.items() if now.get(name) is not tensor}


def model_tensors_by_name(walk: Walk, names: Iterable[str]) -> dict[str, ModelTensor]:
    """Parameters and buffers by name, and the plain tensors where `names` has others than these."""
    held = {each.name: each for each in named_registered_tensors(walk, walk.all_paths())}
    if any(name not in held for name in names):
        return {**{each.name: each for each in named_unregistered_tensors(walk)}, **held}
    return held


# --------------------------------------------------------------- replacing


class AttributeSwap(NamedTuple):
    """A new value for an attribute of a module."""

    state: Attributes
    attribute: str
    value: object


def attribute_swaps(
    held: Iterable[ModelTensor], new: Mapping[int, torch.Tensor], copies: Mapping[int, object] | None = None
) -> list[AttributeSwap]:
    """Returns the new values of the attributes that hold these tensors, given replacements by tensor identity."""
    every = list(held)
    attributes = {(id(each.state), each.attribute): each for each in every}.values()
    now = [AttributeSwap(each.state, each.attribute, each.state[each.attribute]) for each in attributes]
    return rebuild_containers(now, every, new, copies)


def rebuild_containers(
    now: Iterable[AttributeSwap],
    held: Iterable[ModelTensor],
    new: Mapping[int, torch.Tensor],
    copies: Mapping[int, object] | None = None,
) -> list[AttributeSwap]:
    """A copy in which tensors are replaced.

    The containers on the way are copied, each once: who else holds them keeps what they hold. `copies` are those that
    exist already, by the identity of the original.
    """
    on_way = {id(container) for each in held if id(each.tensor) in new for container in each.way}
    made = _ContainerRebuilder(new, on_way, dict(copies or {}))
    return [each._replace(value=made.of(each.value)) for each in now]


def set_unregistered_tensors(walk: Walk, values: Mapping[str, torch.Tensor]) -> None:
    """Put tensors in the places of plain ones, by name; names of parameters and buffers are passed over."""
    held = model_tensors_by_name(walk, values)
    plain = [each for name, each in held.items() if each.kind == ATTRIBUTE and name in values]
    for state, attribute, value in attribute_swaps(plain, {id(each.tensor): values[each.name] for each in plain}):
        state[attribute] = value


class _ContainerRebuilder:
    def __init__(self, new: Mapping[int, torch.Tensor], on_way: set[int], copies: dict[int, object]) -> None:
        self._new, self._on_way, self._copies = new, on_way, copies
        self._filled: set[int] = set()

    def of(self, value: object) -> Any:
        if isinstance(value, torch.Tensor):
            return self._new.get(id(value), value)
        if id(value) not in self._on_way:
            return value
        if isinstance(value, tuple):
            return getattr(type(value), "_make", type(value))([self.of(part) for part in value])
        if id(value) not in self._copies:
            self._copies[id(value)] = copy.copy(value)
        made = self._copies[id(value)]
        if id(value) not in self._filled:
            self._filled.add(id(value))
            self._fill(made, value)
        return made

    def _fill(self, made: Any, value: Any) -> None:
        """Fills a copied container with its new tensors."""
        target = made if isinstance(value, list | dict) else vars(made)
        source = dict(enumerate(value)) if isinstance(value, list) else value if target is made else vars(value)
        for key, part in list(source.items()):
            changed = self.of(part)
            if changed is not part:
                target[key] = changed
