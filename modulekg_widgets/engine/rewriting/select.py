"""Names in a model: what stands at one, what is put there, and the names of all modules of a class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from modulekg_widgets.engine.errors import NotAModuleError, RewritingError, UnknownPathError, nearest, shown
from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.keywords import called_as
from modulekg_widgets.engine.rewriting.function_modules.function_module import test_of
from modulekg_widgets.engine.rewriting.function_modules.sites import when_active
from modulekg_widgets.engine.torch_runtime.private import BUFFERS, MODULES, PARAMETERS
from modulekg_widgets.engine.torch_runtime.state import is_script, module_state, registry, unwrapped


@called_as("mk.rewrite.get")
def get(model: nn.Module, name: str) -> Any:
    """What stands at a dotted name: a module, parameter, buffer or attribute; `""` and `"self"` are the model itself.

    `"self.layer1.0"` is the same as `"layer1.0"`. Raises `NotAModuleError` and `UnknownPathError`.
    """
    root = _root(model)
    path = plain_name(root, name)
    if not path:
        return root
    place = _place(root, path)
    if place.table is not None:
        return place.table[place.key]
    try:
        return getattr(place.owner, place.key)
    except AttributeError as error:
        raise UnknownPathError(f"{shown(path)!r} has no value: {shown(str(error), 300)}") from error


@called_as("mk.rewrite.set")
def set(model: nn.Module, name: str, value: Any) -> None:
    """Put `value` at a dotted name that exists, in place and in the same position; `get` tells how names read.

    A module's slot takes a module or None, a parameter's an `nn.Parameter` or None, a buffer's a tensor or None. One
    slot is set: where a module stands in several, the others keep it (`replace` changes all of them).
    Raises `NotAModuleError`, `UnknownPathError` and `RewritingError`.
    """
    root = _root(model)
    path = plain_name(root, name)
    if not path:
        raise RewritingError("the model itself cannot be set in place: assign it to your variable instead")
    place = _place(root, path)
    if is_script(place.owner):
        raise RewritingError(
            f"{shown(path)!r} lies in TorchScript, which cannot be rewritten: rewrite before scripting"
        )
    kind = _VALUES.get(place.kind)
    if kind is not None and value is not None and not isinstance(value, kind):
        got, wanted = shown(type(value).__name__), _ARTICLES[place.kind]
        raise RewritingError(f"{shown(path)!r} is a {place.kind}, got a {got}: pass {wanted} or None")
    if place.kind == "module" and value is not None and any(m is place.owner for m in walk(value).modules):
        raise RewritingError(f"the new {shown(path)!r} holds the module that it would stand in: take that out first")
    if place.kind != "attribute":
        assert place.table is not None
        place.table[place.key] = value
        return
    try:
        setattr(place.owner, place.key, value)  # registers a module that takes the place of None
    except AttributeError as error:
        raise RewritingError(f"{shown(path)!r} cannot be set: {shown(str(error), 300)}") from error


@called_as("mk.rewrite.find")
def find(model: nn.Module, cls: Any, include_super_class: bool = True) -> list[str]:
    """The names of the modules of a class, or of the function modules of a function, in the order of `modules()`.

    Subclasses match too, and what is inside a match is not searched; with `include_super_class=False` only the exact
    class matches, anywhere. `cls` may be a tuple of several. A shared module is listed once, `""` is the model itself.
    Functions, as `F.relu`, are found while `function_modules` is active. Raises `NotAModuleError`, `RewritingError`.
    """
    matches = test_of(cls, include_super_class)
    places = walk(model)
    found: list[str] = []
    seen: dict[int, None] = {}
    waiting = [(0, "")]
    while waiting:
        index, path = waiting.pop()
        if index in seen:
            continue
        seen[index] = None
        matched = matches(places.modules[index])
        if matched:
            found.append(path)
        if matched and include_super_class:
            continue
        # a shared module may stand in a match and outside of it, so the walk's own order will not do
        for name, child in reversed(places.slots(index)):
            if child is not None and child not in seen:
                waiting.append((child, f"{path}.{name}" if path else name))
    return found


def plain_name(root: nn.Module, name: str) -> str:
    """A name without the `self.` that some tools write before it; raises `UnknownPathError` for no text."""
    if not isinstance(name, str):
        raise UnknownPathError(f"names are text such as 'layer1.0', got a {shown(type(name).__name__)}")
    if "self" not in module_state(root)[MODULES]:
        if name == "self":
            return ""
        return name.removeprefix("self.")
    return name


# --------------------------------------------------------------------- places

_VALUES: dict[str, type] = {"module": nn.Module, "parameter": nn.Parameter, "buffer": torch.Tensor}
_ARTICLES = {"module": "a module", "parameter": "an nn.Parameter", "buffer": "a tensor"}


class _Place(NamedTuple):
    owner: nn.Module
    key: str
    kind: str
    table: dict[str, Any] | None  # that holds it; None for what the class computes


def _root(model: Any) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise NotAModuleError(f"got a {shown(type(model).__name__)}: pass an instance of torch.nn.Module")
    return unwrapped(model)


def _place(root: nn.Module, path: str) -> _Place:
    for owner, key in _cuts(root, path):
        state = module_state(owner)
        for kind, table in _tables(state):
            if key in table:
                return _Place(owner, key, kind, table)
        if hasattr(type(owner), key):
            return _Place(owner, key, "attribute", None)
    known = walk(root)
    raise UnknownPathError(f"there is no {shown(path)!r}: {nearest(path, known.near(path))}{when_active(path)}")


def _tables(state: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "module", state[MODULES]
    yield "parameter", registry(state, PARAMETERS)
    yield "buffer", registry(state, BUFFERS)
    yield "attribute", state


def _cuts(root: nn.Module, path: str) -> Iterator[tuple[nn.Module, str]]:
    """Every way to read a path as a module and a name in it; names may hold dots, the longest is tried first."""
    waiting = [(root, path)]
    tried: dict[tuple[int, int], None] = {}
    while waiting:
        module, rest = waiting.pop()
        if (id(module), len(rest)) in tried:
            continue
        tried[id(module), len(rest)] = None
        yield module, rest
        slots = module_state(module)[MODULES]
        dotted = any("." in slot for slot in slots)
        cut = rest.find(".")
        while cut >= 0:
            child = slots.get(rest[:cut])
            if child is not None:
                waiting.append((unwrapped(child), rest[cut + 1 :]))
            cut = rest.find(".", cut + 1) if dotted else -1
