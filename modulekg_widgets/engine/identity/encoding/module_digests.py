"""Digest of a module without its children: class, attributes, and names and shapes of its tensors.

A million modules pass through here, so they are read many at a time, by functions that loop in C; a module whose own
structure was met before costs no more than its key. Read one at a time, the million of test_a_million_modules
(tests/benchmarks/test_identity_speed.py) needs 10 bare walks, and may need 2.5.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter, itemgetter
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.identity.classes import class_mro, instance_state, is_text, slot_members
from modulekg_widgets.engine.identity.encoding.packing import digest, fast_key, fast_keys, length_prefixed, text
from modulekg_widgets.engine.identity.encoding.python_values import Encoder, is_cached_hash
from modulekg_widgets.engine.identity.encoding.torch_values import encode_script, tensor_encoding
from modulekg_widgets.engine.identity.tensors import PLAIN_TENSORS, direct_tensors, is_uninitialised
from modulekg_widgets.engine.identity.walk import NON_STRUCTURAL_ATTRIBUTES, is_structural, nominal_class
from modulekg_widgets.engine.torch_runtime.modules import Attributes, is_script
from modulekg_widgets.engine.torch_runtime.private import BUFFERS, PARAMETERS

SCHEME = b"modulekg structure 1"
BATCH_SIZE = 512  # modules read at a time: enough to hide the calls, few enough to stay in the cache

_REGISTRIES = (PARAMETERS, BUFFERS)
_PLAIN, _DICTS = frozenset(PLAIN_TENSORS), {dict, OrderedDict}
_first, _second = itemgetter(0), itemgetter(1)
_shape, _dtype = attrgetter("shape"), attrgetter("dtype")

State = Attributes
Key = tuple[Any, ...]
Columns = list[list[Any]]  # keys, a list for each of their parts


class _Labels(dict[str, bytes]):
    """Cache of length-prefixed names."""

    def __missing__(self, name: str) -> bytes:
        label = self[name] = length_prefixed(text(name))
        return label


class _Layout:
    """Reader of the instances of one class that have the same attributes, parameters and buffers."""

    __slots__ = ("buffers", "has_attributes", "has_slots", "known", "names", "parameters", "read", "readable", "values")

    def __init__(self, cls: type, state: State) -> None:
        self.names = tuple(sorted(name for name in state if is_structural(name)))
        self.has_slots = any(slot_members(base) for base in class_mro(cls))
        names = _tensor_names(state)
        self.readable = not self.has_slots and None not in names
        self.parameters, self.buffers = (held or () for held in names)
        self.has_attributes = list(state).__eq__
        self.read: Callable[[State], Key] = itemgetter(*_REGISTRIES, *self.names)
        self.values: Callable[[Key], Key] = itemgetter(slice(2, None))
        self.known: dict[Key, bytes] = {}  # digests by key

    def columns(self, states: list[State]) -> Columns | None:
        """Returns the keys of these modules; None if this layout cannot read them.

        A key is equal only for modules of the same own structure; one that starts with None does not tell all of it.
        """
        if not self.readable or not all(map(self.has_attributes, map(list, states))):
            return None
        if not self.parameters and not self.buffers:
            # the registries are part of the key, and one that holds a tensor has none
            keys = _fast_keys(self.read, states)
            other = None in keys and any(_tensor_names(state) != [(), ()] for state in states)
            return None if other else [keys]
        rows = list(map(self.read, states))
        columns: Columns = [_fast_keys(self.values, rows)]
        parameters, buffers = list(map(_first, rows)), list(map(_second, rows))
        del rows  # what is alive is kept small: the garbage collector need not come
        if not set(map(type, parameters + buffers)) <= _DICTS:
            return None
        if set(map(len, parameters)) != {len(self.parameters)} or set(map(len, buffers)) != {len(self.buffers)}:
            return None
        try:
            for name in self.parameters:
                _add_tensors(columns, list(map(itemgetter(name), parameters)))
            for name in self.buffers:
                _add_tensors(columns, list(map(itemgetter(name), buffers)))
        except KeyError:  # as many, but of other names
            return None
        return columns


def _fast_keys(read: Callable[[Any], Key], sources: list[Any]) -> list[bytes | None]:
    keys: list[Any] | None = fast_keys(map(read, sources))
    return keys if keys is not None else list(map(fast_key, map(read, sources)))


def _tensor_names(state: State) -> list[tuple[str, ...] | None]:
    """The names of the parameters and of the buffers; None where they do not stand in a dict, as in TorchScript."""
    registries: list[Any] = [state.get(registry) for registry in _REGISTRIES]
    return [tuple(held) if type(held) in _DICTS else None for held in registries]


def _add_tensors(columns: Columns, tensors: list[Any]) -> None:
    """Add the shapes and kinds of one parameter or buffer of all the modules."""
    if set(map(type, tensors)) <= _PLAIN:
        try:
            columns += [list(map(_shape, tensors)), list(map(_dtype, tensors))]
            return
        except RuntimeError:  # a nested tensor has no shape
            pass
    columns.append([(t.shape, t.dtype) if _is_plain(t) else None for t in tensors])
    for place, tensor in enumerate(tensors):
        if tensor is not None and not _is_plain(tensor):
            columns[0][place] = None


def _is_plain(tensor: Any) -> bool:
    return type(tensor) in _PLAIN and not tensor.is_nested


class ModuleDigester:
    """Digests of modules without their children, and irregularities by the index of the module."""

    def __init__(self) -> None:
        self.opaque: dict[int, list[str]] = {}  # attributes that could not be seen into
        self.uninitialised: list[tuple[int, str]] = []  # parameters and buffers without a shape yet
        self.badly_named: list[int] = []  # modules with a parameter or buffer that is not named by a text
        self._encoder = Encoder()
        self._labels = _Labels()
        self._layouts: dict[Key, _Layout] = {}
        self._recent: dict[type, _Layout] = {}  # most instances of a class have the same layout

    @property
    def has_remarks(self) -> bool:
        """True if something was met whose report needs a path."""
        return bool(self.opaque or self.uninitialised or self.badly_named)

    def digests(self, modules: Sequence[nn.Module], states: Sequence[State], first: int) -> list[bytes]:
        """The digests of modules given with their `__dict__`; `first` is the index of the first of them."""
        digests = [b""] * len(modules)
        places: dict[type, list[int]] = defaultdict(list)
        for place, cls in enumerate(map(type, modules)):
            places[cls].append(place)
        for cls, where in places.items():
            for layout, alike, columns in self._read(cls, states, where):
                found = list(map(layout.known.get, zip(*columns, strict=True)))
                if None in found:
                    for number, key in enumerate(zip(*columns, strict=True)):
                        place = alike[number]
                        found[number] = layout.known.get(key) or self._digest(
                            modules[place], states[place], layout, key, first + place
                        )
                for place, own in zip(alike, found, strict=True):
                    digests[place] = own  # type: ignore[assignment]
        return digests

    def _read(
        self, cls: type, states: Sequence[State], places: list[int]
    ) -> Iterable[tuple[_Layout, list[int], Columns]]:
        """Groups the modules of one class by layout, with their keys."""
        layout = self._recent.get(cls)
        columns = layout and layout.columns([states[place] for place in places])
        if layout and columns:
            return [(layout, places, columns)]
        groups: dict[Key, list[int]] = defaultdict(list)
        for place in places:
            state = states[place]
            groups[(cls, tuple(state), *_tensor_names(state))].append(place)
        return [self._read_group(key, [states[place] for place in group], group) for key, group in groups.items()]

    def _read_group(self, key: Key, states: list[State], places: list[int]) -> tuple[_Layout, list[int], Columns]:
        layout = self._layouts.get(key)
        if layout is None:
            layout = self._layouts[key] = _Layout(key[0], states[0])
        self._recent[key[0]] = layout
        return layout, places, layout.columns(states) or [[None] * len(states)]

    # -------------------------------------------------------------- one module

    def _digest(self, module: nn.Module, state: State, layout: _Layout, key: Key, index: int) -> bytes:
        """Returns the digest of class, attributes and tensors, cached if the key determines it."""
        encoder = self._encoder
        buffers_met = encoder.buffer_count
        parts = [SCHEME, length_prefixed(encoder.class_reference(nominal_class(module)))]
        if is_script(module):
            parts.append(length_prefixed(encode_script(encoder, state)))
            encoder.opaque.append("")
        else:
            parts += self._attributes(module, state, layout)
        own = digest(*parts, *self._tensors(state, index))
        if encoder.opaque:
            self.opaque[index] = list(dict.fromkeys(encoder.opaque))
            encoder.opaque = []
        elif key[0] is not None and encoder.buffer_count == buffers_met:
            layout.known[key] = own
        return own

    def _attributes(self, module: nn.Module, state: State, layout: _Layout) -> list[bytes]:
        encoder = self._encoder
        if layout.has_slots:
            attributes = {
                name: value for name, value in instance_state(module).items() if name not in NON_STRUCTURAL_ATTRIBUTES
            }
            return [length_prefixed(part) for part in encoder.encode_attributes(attributes, "", module)]
        names = [name for name in layout.names if not is_cached_hash(name, state[name], state, module)]
        return [self._labels[name] + length_prefixed(encoder.encode_attribute(state[name], name)) for name in names]

    def _tensors(self, state: State, index: int) -> list[bytes]:
        tensors = list(direct_tensors(state))
        if not all(is_text(own.name) for own in tensors):
            self.badly_named.append(index)
            return []
        for own in tensors:
            if type(own.tensor) not in PLAIN_TENSORS and own.tensor is not None and is_uninitialised(own.tensor):
                self.uninitialised.append((index, own.name))
        return [
            self._labels[own.role] + self._labels[own.name] + length_prefixed(_encode_tensor(own.tensor))
            for own in sorted(tensors, key=itemgetter(1, 0))
        ]


def _encode_tensor(tensor: torch.Tensor | None) -> bytes:
    return b"N" if tensor is None else tensor_encoding(tensor)
