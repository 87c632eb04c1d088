"""Hash of the original ModuleKG (scheme "seed"), reproduced exactly so that its published results can be checked.

node hash = md5 over the JSON of the class and every truthy primitive attribute, plus the sum of the children's hashes,
each shifted left by its position. It merges what our own scheme keeps apart (bias, shapes, W(V(X)) and V(W(X))) and
splits training from evaluation.
"""

from __future__ import annotations

import json
from hashlib import md5
from itertools import zip_longest
from typing import Any

import torch

from modulekg_widgets.engine.errors import FingerprintError, printable
from modulekg_widgets.engine.identity.classes import class_names
from modulekg_widgets.engine.identity.walk import Walk
from modulekg_widgets.engine.torch_runtime.private import PADDING_TWICE

MAX_TEXT_LENGTH = 10_000_000  # characters of one attribute
_PRIMITIVES = (bool, int, float, str, tuple, list)


def seed_hashes(walk: Walk) -> list[int]:
    """The seed's hash of every module of the walk; raises `FingerprintError` for a cycle."""
    hashes: list[int | None] = [None] * len(walk.modules)
    for index in walk.bottom_up:
        hashes[index] = _module_hash(walk, index) + _children_hash(walk, index, hashes)
    return [value for value in hashes if value is not None]


def _children_hash(walk: Walk, index: int, hashes: list[int | None]) -> int:
    values: list[int] = []
    seen: set[int] = set()
    for name, child in walk.slots(index):
        if child is None or child in seen:  # `children()` yields each object once
            continue
        seen.add(child)
        value = hashes[child]
        if value is None:
            path = ".".join(filter(None, (walk.path(index), name)))
            raise FingerprintError(
                f"the seed scheme has no hash for a cycle: {printable(path)!r} leads back to its owner"
            )
        values.append(value)
    width = 1
    while len(values) > 1:  # halves at a time, since a plain sum is quadratic in the number of children
        values = [low + (high << width) for low, high in zip_longest(values[::2], values[1::2], fillvalue=0)]
        width *= 2
    return values[0] if values else 0


def _module_hash(walk: Walk, index: int) -> int:
    dotted = ".".join(class_names(type(walk.modules[index])))
    attributes = {"class": dotted, "type": dotted}
    for name, value in walk.states[index].items():
        if name == PADDING_TWICE and type(value) in (list, tuple):
            value = tuple(value)
        elif name.startswith("_"):
            continue
        if type(value) in _PRIMITIVES and value:
            attributes[name] = _as_text(value, walk, index, name)
    return int(md5(json.dumps(attributes).encode(), usedforsecurity=False).hexdigest(), 16)


def _as_text(value: object, walk: Walk, index: int, name: str) -> str:
    # a container prints its elements, so those must be plain too; an int of 5,000 digits has no decimal text
    try:
        if _is_plain(value):
            return str(value)
    except (ValueError, RecursionError):
        pass
    path = ".".join(filter(None, (walk.path(index), name)))
    raise FingerprintError(f"the seed scheme cannot write {printable(path)!r} as text: use scheme='structure'")


def _is_plain(value: Any) -> bool:
    # counted as it is printed, so that containers that share their elements end here
    waiting: list[Any] = [value]
    length = 0
    while waiting and length < MAX_TEXT_LENGTH:
        part = waiting.pop()
        length += len(part) + 1 if type(part) in (tuple, list, str) else 1
        if type(part) in (tuple, list):
            waiting += part
        elif not (part is None or type(part) in _PRIMITIVES or type(part) is torch.Tensor):
            return False
    return not waiting
