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
from typing import TypedDict, TypeGuard

from torch import nn

from modulekg_widgets.engine.errors import ModelFolderError, a_type, closest_match_hint, printable
from modulekg_widgets.engine.identity.walk import nominal_class
from modulekg_widgets.engine.json_types import JsonObject, JsonValue
from modulekg_widgets.engine.pruning.cut.edits import SizeValue
from modulekg_widgets.engine.pruning.saving.origin import (
    Builder,
    SavedCut,
    TrustedClasses,
    attributes_before_cuts,
    deep_copied,
    import_path,
)
from modulekg_widgets.engine.torch_runtime.modules import module_state
from modulekg_widgets.engine.torch_runtime.private import MODULES, PARAMETERS

LIBRARY = "torch"
CONTAINERS: dict[str, Callable[[OrderedDict[str, nn.Module]], nn.Module]] = {
    import_path(nn.Sequential): nn.Sequential,
    import_path(nn.ModuleList): lambda children: nn.ModuleList(children.values()),
    import_path(nn.ModuleDict): nn.ModuleDict,
}
TORCH_LAYERS = "torch.nn.modules."  # where the classes are that need nobody's consent
POSITIONAL = "positional"  # the arguments that were given without names
MAX_DEPTH = 100  # containers in each other

ContainerNode = TypedDict("ContainerNode", {"class": str, "children": "dict[str, Node]"})
LayerNode = TypedDict("LayerNode", {"class": str, "arguments": JsonObject})
Node = ContainerNode | LayerNode  # the JSON of what builds a module
ArgumentGuess = Callable[[nn.Module, type, str, Mapping[str, SizeValue]], JsonObject]


@dataclass(frozen=True)
class ClassOrigin:
    """A class with its arguments, or a container of such."""

    root: Node
    classes: Mapping[str, Builder]  # what each path in it names

    def document(self) -> dict[str, object]:
        return {"library": LIBRARY, "root": self.root}

    def build(self) -> nn.Module:
        return self._build_node(self.root)

    def _build_node(self, node: Node) -> nn.Module:
        if "children" in node:
            children = OrderedDict((name, self._build_node(child)) for name, child in node["children"].items())
            return CONTAINERS[node["class"]](children)
        arguments = deep_copied(node["arguments"])
        positional = arguments.pop(POSITIONAL, [])
        assert isinstance(positional, list)
        module = self.classes[node["class"]](*positional, **arguments)
        if not isinstance(module, nn.Module):
            raise ModelFolderError(f"{printable(node['class'])} gave {a_type(module)}, no module")
        return module


# ------------------------------------------------------------------ saving


def class_origins(
    model: nn.Module, cuts: Sequence[SavedCut], arguments: object, builder: object
) -> Iterator[ClassOrigin]:
    """The possible builders of a model, the likeliest first; raises `ModelFolderError` if there is none."""
    if arguments is not None or builder is not None:
        made_by = nominal_class(model) if builder is None else builder
        if not callable(made_by):
            raise ModelFolderError(f"builder= is {a_type(made_by)}: pass the function that builds it")
        yield ClassOrigin(
            {"class": _importable(made_by), "arguments": checked_arguments(arguments)}, {import_path(made_by): made_by}
        )
        return
    before = attributes_before_cuts(cuts)
    refusal: ModelFolderError | None = None
    known = False
    for guess in (_recorded_arguments, _no_arguments):
        classes: dict[str, Builder] = {}
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
    module: nn.Module, path: str, before: Mapping[str, SizeValue], classes: dict[str, Builder], guess: ArgumentGuess
) -> Node:
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


def _recorded_arguments(module: nn.Module, cls: type, path: str, before: Mapping[str, SizeValue]) -> JsonObject:
    """The arguments that a module stores in attributes of the same name."""
    state = module_state(module)
    arguments: JsonObject = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or name in ("device", "dtype"):
            continue
        place = f"{path}.{name}" if path else name
        value = before.get(place, state.get(name, inspect.Parameter.empty))
        if name in state[PARAMETERS]:
            value = state[PARAMETERS][name] is not None  # as `bias`
        if value is not inspect.Parameter.empty and _is_json(value):
            arguments[name] = value
        elif parameter.default is inspect.Parameter.empty:
            raise _unknown_argument_error(cls, name)
    return arguments


def _no_arguments(module: nn.Module, cls: type, path: str, before: Mapping[str, SizeValue]) -> JsonObject:
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


def _importable(value: Builder) -> str:
    """The import path of a class or function; raises `ModelFolderError` if it cannot be imported from there."""
    path = import_path(value)
    if _imported_object(path) is not value:
        raise ModelFolderError(
            f"{printable(path)} cannot be found from another process: define it at the top of a module, or pass "
            "builder= a function there that builds the model"
        )
    return path


def _imported_object(path: str) -> object:
    """The object at a path in an imported module; None if there is none."""
    module, _, name = path.partition(":")
    value: object = sys.modules.get(module)
    for part in name.split("."):
        value = None if value is None else vars(value).get(part)
    return value


def checked_arguments(arguments: object) -> JsonObject:
    """Arguments as JSON values; raises `ModelFolderError` for others."""
    values = {} if arguments is None else arguments
    if isinstance(values, list | tuple):
        values = {POSITIONAL: list(values)}
    if not _is_json(values) or not isinstance(values, Mapping):
        raise ModelFolderError(
            "arguments= are a dictionary by name, or a tuple, of numbers, texts, None, lists and dictionaries: JSON "
            "has no others; for a model that needs others pass builder= a function that makes them"
        )
    return dict(values)


def _is_json(value: object) -> TypeGuard[JsonValue]:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_json(part) for key, part in value.items())
    if isinstance(value, list | tuple):
        return all(_is_json(part) for part in value)
    return value is None or type(value) in (bool, int, str) or (type(value) is float and abs(value) < float("inf"))


# ----------------------------------------------------------------- loading


def read_class_origin(manifest: Mapping[str, object], trusted: TrustedClasses) -> ClassOrigin:
    """The builder in a manifest; raises `ModelFolderError` for untrusted names."""
    classes: dict[str, Builder] = {}
    root = _read_node(manifest.get("root"), trusted, classes, 0)
    return ClassOrigin(root, classes)


def _read_node(node: object, trusted: TrustedClasses, classes: dict[str, Builder], depth: int) -> Node:
    path = node.get("class") if isinstance(node, dict) else None
    if not isinstance(node, dict) or not isinstance(path, str) or depth > MAX_DEPTH:
        raise ModelFolderError("the manifest does not say what builds the model: save it again")
    children = node.get("children")
    if path in CONTAINERS and node.keys() == {"class", "children"} and isinstance(children, dict):
        inside = {name: _read_node(child, trusted, classes, depth + 1) for name, child in children.items()}
        return {"class": path, "children": inside}
    arguments = node.get("arguments")
    if node.keys() != {"class", "arguments"} or not isinstance(arguments, dict):
        raise ModelFolderError(f"the manifest has no arguments for {printable(path)}: save the model again")
    if not isinstance(arguments.get(POSITIONAL, []), list):
        raise ModelFolderError(f"the manifest has no list of arguments for {printable(path)}: save the model again")
    classes[path] = _trusted_object(path, trusted)
    return {"class": path, "arguments": arguments}


def _trusted_object(path: str, trusted: TrustedClasses) -> Builder:
    """The class or function at a path: trusted by the caller, of torch, or an imported module class."""
    known = trusted.get(path)
    if known is not None:
        return known
    module, _, name = path.partition(":")
    if module.startswith(TORCH_LAYERS) and module.removeprefix(TORCH_LAYERS).isidentifier():
        with suppress(ImportError):
            import_module(module)
    value = _imported_object(path)
    if isinstance(value, type) and issubclass(value, nn.Module) and import_path(value) == path:
        return value
    if isinstance(value, FunctionType):
        raise ModelFolderError(
            f"the folder names the function {printable(path)}: pass classes=[{printable(name)}] to agree"
        )
    passed = f"; of what was passed {closest_match_hint(path, sorted(trusted))}" if trusted else ""
    raise ModelFolderError(
        f"the folder names {printable(path)}, which is not a module class that has been imported: import it first, or "
        "pass "
        f"classes=[…], if you know it; a folder alone imports nothing{passed}"
    )
