"""Access by dotted name, and the names of all modules of a class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from modulekg_widgets.engine.errors import (
    NotAModuleError,
    RewritingError,
    UnknownPathError,
    a_type,
    closest_match_hint,
    printable,
)
from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.keywords import explain_keywords
from modulekg_widgets.engine.rewriting.function_modules.function_module import module_matcher
from modulekg_widgets.engine.rewriting.function_modules.recording import inactive_hint
from modulekg_widgets.engine.torch_runtime.modules import Attributes, is_script, module_state, registry, unwrapped
from modulekg_widgets.engine.torch_runtime.private import BUFFERS, MODULES, PARAMETERS


@explain_keywords("mk.rewrite.get")
def get(model: nn.Module, name: str) -> Any:
    """Returns the module, parameter, buffer or attribute at a dotted name.

    Parameters
    ----------
    model : nn.Module
        The model.
    name : str
        `"layer1.0"`, or `"self.layer1.0"` for the same; `""` and `"self"` are the model itself.

    Returns
    -------
    object
        What stands there.

    Raises
    ------
    NotAModuleError
        For a model that is none.
    UnknownPathError
        Where nothing stands at the name.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> from torch import nn
    >>> mk.rewrite.get(nn.Sequential(nn.Linear(4, 2)), "0.weight").shape
    torch.Size([2, 4])
    """
    root = _root(model)
    path = plain_name(root, name)
    if not path:
        return root
    place = _locate(root, path)
    if place.table is not None:
        return place.table[place.key]
    try:
        return getattr(place.owner, place.key)
    except AttributeError as error:
        raise UnknownPathError(f"{printable(path)!r} has no value: {printable(str(error), 300)}") from error


@explain_keywords("mk.rewrite.set")
def set(model: nn.Module, name: str, value: object) -> None:
    """Put a value at a dotted name that exists, in place and in the same position.

    A module's place takes a module or None, a parameter's an `nn.Parameter` or None, a buffer's a tensor or None. One
    place is set: where a module stands in several, the others keep it (`replace` changes all of them).

    Parameters
    ----------
    model : nn.Module
        The model.
    name : str
        As `get` reads it.
    value : object
        What to put there.

    Raises
    ------
    NotAModuleError
        For a model that is none.
    UnknownPathError
        Where nothing stands at the name.
    RewritingError
        For a value of another kind, the model itself, TorchScript, and a module that would contain itself.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
    >>> mk.rewrite.set(model, "1", nn.GELU())
    >>> model[1]
    GELU(approximate='none')
    """
    root = _root(model)
    path = plain_name(root, name)
    if not path:
        raise RewritingError("the model itself cannot be set in place: assign it to your variable instead")
    place = _locate(root, path)
    if is_script(place.owner):
        raise RewritingError(
            f"{printable(path)!r} lies in TorchScript, which cannot be rewritten: rewrite before scripting"
        )
    kind = _VALUES.get(place.kind)
    if kind is not None and value is not None and not isinstance(value, kind):
        wanted = _ARTICLES[place.kind]
        raise RewritingError(f"{printable(path)!r} is a {place.kind}, got {a_type(value)}: pass {wanted} or None")
    if place.kind == "module" and isinstance(value, nn.Module) and any(m is place.owner for m in walk(value).modules):
        raise RewritingError(
            f"the new {printable(path)!r} holds the module that it would stand in: take that out first"
        )
    if place.kind != "attribute":
        assert place.table is not None
        place.table[place.key] = value
        return
    try:
        setattr(place.owner, place.key, value)  # registers a module that takes the place of None
    except AttributeError as error:
        raise RewritingError(f"{printable(path)!r} cannot be set: {printable(str(error), 300)}") from error


@explain_keywords("mk.rewrite.find")
def find(model: nn.Module, cls: object, include_super_class: bool = True) -> list[str]:
    """The names of the modules of a class, or of the function modules of a function, in the order of `modules()`.

    What is inside of a match is not searched. A shared module is listed once, `""` is the model itself. Functions are
    found while `function_modules` is active.

    Parameters
    ----------
    model : nn.Module
        The model.
    cls : type, callable, or a tuple of such
        A class of modules, or a function as `F.relu`.
    include_super_class : bool
        Whether subclasses match; if not, the exact class matches, anywhere.

    Returns
    -------
    list of str
        Dotted names.

    Raises
    ------
    NotAModuleError
        For a model that is none.
    RewritingError
        For what is neither a class of modules nor a function of torch.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> from torch import nn
    >>> mk.rewrite.find(nn.Sequential(nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 2)), nn.Linear)
    ['0', '2']
    """
    matches = module_matcher(cls, include_super_class)
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
    """Returns a name without a leading `self.`; raises `UnknownPathError` if it is no text."""
    if not isinstance(name, str):
        raise UnknownPathError(f"names are text such as 'layer1.0', got {a_type(name)}")
    if "self" not in module_state(root)[MODULES]:
        if name == "self":
            return ""
        return name.removeprefix("self.")
    return name


# --------------------------------------------------------------------- places

_VALUES: dict[str, type] = {"module": nn.Module, "parameter": nn.Parameter, "buffer": torch.Tensor}
_ARTICLES = {"module": "a module", "parameter": "an nn.Parameter", "buffer": "a tensor"}


class _NamedValue(NamedTuple):
    owner: nn.Module
    key: str
    kind: str
    table: Attributes | None  # that holds it; None for what the class computes


def _root(model: object) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise NotAModuleError(f"got {a_type(model)}: pass an instance of torch.nn.Module")
    return unwrapped(model)


def _locate(root: nn.Module, path: str) -> _NamedValue:
    for owner, key in _path_splits(root, path):
        state = module_state(owner)
        for kind, table in _tables(state):
            if key in table:
                return _NamedValue(owner, key, kind, table)
        if hasattr(type(owner), key):
            return _NamedValue(owner, key, "attribute", None)
    known = walk(root)
    raise UnknownPathError(
        f"there is no {printable(path)!r}: {closest_match_hint(path, known.similar_paths(path))}{inactive_hint(path)}"
    )


def _tables(state: Attributes) -> Iterator[tuple[str, Attributes]]:
    yield "module", state[MODULES]
    yield "parameter", registry(state, PARAMETERS)
    yield "buffer", registry(state, BUFFERS)
    yield "attribute", state


def _path_splits(root: nn.Module, path: str) -> Iterator[tuple[nn.Module, str]]:
    """Yields all splits of a path into a module and a name in it, the longest name first."""
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
