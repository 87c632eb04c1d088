"""Builder of plain torch models from their class and arguments, and of containers from their layers."""

from __future__ import annotations

import inspect
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from types import FunctionType
from typing import Any

from torch import nn

from modulekg_widgets.engine.errors import ModelFolderError, closest_match_hint, printable
from modulekg_widgets.engine.identity.walk import nominal_class
from modulekg_widgets.engine.pruning.cut.edits import SizeValue
from modulekg_widgets.engine.pruning.saving.origin import (
    SavedCut,
    TrustedClasses,
    attributes_before_cuts,
    deep_copied,
    import_path,
)
from modulekg_widgets.engine.torch_runtime.modules import module_state
from modulekg_widgets.engine.torch_runtime.private import MODULES, PARAMETERS

LIBRARY = "torch"
CONTAINERS: dict[str, Callable[[Any], nn.Module]] = {
    import_path(nn.Sequential): nn.Sequential,
    import_path(nn.ModuleList): lambda children: nn.ModuleList(children.values()),
    import_path(nn.ModuleDict): nn.ModuleDict,
}
TORCH_LAYERS = "torch.nn.modules."  # where the classes are that need nobody's consent
POSITIONAL = "positional"  # the arguments that were given without names
MAX_DEPTH = 100  # containers in each other
Node = Mapping[str, Any]


@dataclass(frozen=True)
class ClassOrigin:
    """A class with its arguments, or a container of such."""

    root: Node
    classes: Mapping[str, Any]  # what each path in it names

    def document(self) -> dict[str, Any]:
        return {"library": LIBRARY, "root": self.root}

    def build(self) -> nn.Module:
        model = self._build_node(self.root)
        if not isinstance(model, nn.Module):
            raise ModelFolderError(
                f"{printable(self.root['class'])} gave a {printable(type(model).__name__)}, no module"
            )
        return model

    def _build_node(self, node: Node) -> Any:
        if "children" in node:
            children = OrderedDict((name, self._build_node(child)) for name, child in node["children"].items())
            return CONTAINERS[node["class"]](children)
        arguments = deep_copied(node["arguments"])
        return self.classes[node["class"]](*arguments.pop(POSITIONAL, ()), **arguments)


# ------------------------------------------------------------------ saving


def class_origins(model: nn.Module, cuts: Sequence[SavedCut], arguments: Any, builder: Any) -> Iterator[ClassOrigin]:
    """The possible builders of a model, the likeliest first; raises `ModelFolderError` if there is none."""
    if arguments is not None or builder is not None:
        made_by = nominal_class(model) if builder is None else builder
        if not callable(made_by):
            raise ModelFolderError(
                f"builder= is a {printable(type(made_by).__name__)}: pass the function that builds it"
            )
        yield ClassOrigin(
            {"class": _importable(made_by), "arguments": checked_arguments(arguments)}, {import_path(made_by): made_by}
        )
        return
    before = attributes_before_cuts(cuts)
    refusal: ModelFolderError | None = None
    known = False
    for guess in (_recorded_arguments, _no_arguments):
        classes: dict[str, Any] = {}
        try:
            node = _class_node(model, "", before, classes, guess)
        except ModelFolderError as error:
            refusal = refusal or error
            continue
        yield ClassOrigin(node, classes)
        known = True
    if refusal is not None and not known:
        raise refusal


def _class_node(
    module: nn.Module, path: str, before: Mapping[str, SizeValue], classes: dict[str, Any], guess: Callable[..., Any]
) -> dict[str, Any]:
    """The description of a module's construction."""
    cls = nominal_class(module)
    name = _importable(cls)
    if name in CONTAINERS:
        children = {
            key: _class_node(child, f"{path}.{key}" if path else key, before, classes, guess)
            for key, child in module_state(module)[MODULES].items() if child is not None
        }  # fmt: skip
        return {"class": name, "children": children}
    classes[name] = cls
    guess = _recorded_arguments if cls.__module__.startswith(TORCH_LAYERS) else guess
    return {"class": name, "arguments": guess(module, cls, path, before)}


def _recorded_arguments(module: nn.Module, cls: type, path: str, before: Mapping[str, SizeValue]) -> dict[str, Any]:
    """The arguments that a module stores in attributes of the same name."""
    state = module_state(module)
    found = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or name in ("device", "dtype"):
            continue
        place = f"{path}.{name}" if path else name
        value = before.get(place, state.get(name, inspect.Parameter.empty))
        if name in state[PARAMETERS]:
            value = state[PARAMETERS][name] is not None  # as `bias`
        if value is not inspect.Parameter.empty and _is_json(value):
            found[name] = value
        elif parameter.default is inspect.Parameter.empty:
            raise _unknown_argument_error(cls, name)
    return found


def _no_arguments(module: nn.Module, cls: type, path: str, before: Mapping[str, SizeValue]) -> dict[str, Any]:
    needed = (name for name, each in inspect.signature(cls).parameters.items()
              if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD))  # fmt: skip
    if (name := next(needed, None)) is not None:
        raise _unknown_argument_error(cls, name)
    return {}


def _unknown_argument_error(cls: type, name: str) -> ModelFolderError:
    cls_name = printable(cls.__name__)
    return ModelFolderError(
        f"{cls_name} needs {printable(name)!r} to be built anew, which it does not keep: "
        f"mk.save_model(model, folder, receipt, arguments={{{printable(name)!r}: …}}) says it, or builder= a function"
    )


def _importable(value: Any) -> str:
    """The import path of a class or function; raises `ModelFolderError` if it cannot be imported from there."""
    path = import_path(value)
    if _imported_object(path) is not value:
        raise ModelFolderError(
            f"{printable(path)} cannot be found from another process: define it at the top of a module, or pass "
            "builder= a function there that builds the model"
        )
    return path


def _imported_object(path: str) -> Any:
    """The object at a path in an imported module; None if there is none."""
    module, _, name = path.partition(":")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = None if found is None else vars(found).get(part)
    return found


def checked_arguments(arguments: Any) -> dict[str, Any]:
    """Arguments as JSON values; raises `ModelFolderError` for others."""
    given = {} if arguments is None else arguments
    if isinstance(given, list | tuple):
        given = {POSITIONAL: list(given)}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given) or not _is_json(given):
        raise ModelFolderError(
            "arguments= are a dictionary by name, or a tuple, of numbers, texts, None, lists and dictionaries: JSON "
            "has no others; for a model that needs others pass builder= a function that makes them"
        )
    return dict(given)


def _is_json(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_json(part) for key, part in value.items())
    if isinstance(value, list | tuple):
        return all(_is_json(part) for part in value)
    return value is None or type(value) in (bool, int, str) or (type(value) is float and abs(value) < float("inf"))


# ----------------------------------------------------------------- loading


def read_class_origin(manifest: Mapping[str, Any], trusted: TrustedClasses) -> ClassOrigin:
    """The builder in a manifest; raises `ModelFolderError` for untrusted names."""
    classes: dict[str, Any] = {}
    root = _read_node(manifest.get("root"), trusted, classes, 0)
    return ClassOrigin(root, classes)


def _read_node(node: Any, trusted: TrustedClasses, classes: dict[str, Any], depth: int) -> Node:
    path = node.get("class") if isinstance(node, dict) else None
    if not isinstance(path, str) or depth > MAX_DEPTH:
        raise ModelFolderError("the manifest does not say what builds the model: save it again")
    if path in CONTAINERS and node.keys() == {"class", "children"} and isinstance(node["children"], dict):
        for child in node["children"].values():
            _read_node(child, trusted, classes, depth + 1)
        return node
    arguments = node.get("arguments")
    if node.keys() != {"class", "arguments"} or not isinstance(arguments, dict):
        raise ModelFolderError(f"the manifest has no arguments for {printable(path)}: save the model again")
    if not isinstance(arguments.get(POSITIONAL, []), list):
        raise ModelFolderError(f"the manifest has no list of arguments for {printable(path)}: save the model again")
    classes[path] = _trusted_object(path, trusted)
    return node


def _trusted_object(path: str, trusted: TrustedClasses) -> Any:
    """The class or function at a path: trusted by the caller, of torch, or an imported module class."""
    given = trusted.find(path)
    if given is not None:
        return given
    module, _, name = path.partition(":")
    if module.startswith(TORCH_LAYERS) and module.removeprefix(TORCH_LAYERS).isidentifier():
        with suppress(ImportError):
            import_module(module)
    found = _imported_object(path)
    if isinstance(found, type) and issubclass(found, nn.Module) and import_path(found) == path:
        return found
    if isinstance(found, FunctionType):
        raise ModelFolderError(
            f"the folder names the function {printable(path)}: pass classes=[{printable(name)}] to agree"
        )
    passed = f"; of what was passed {closest_match_hint(path, trusted.names)}" if trusted.names else ""
    raise ModelFolderError(
        f"the folder names {printable(path)}, which is no module class that has been imported: import it first, or "
        "pass "
        f"classes=[…], if you know it; nothing is imported because a folder says so{passed}"
    )
