"""The layers that a recipe may rebuild, and their copies with the same settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from modulekg_widgets.engine.adapters import CONVOLUTIONS, TRANSPOSED_CONVOLUTIONS
from modulekg_widgets.engine.errors import RewritingError, UnknownPathError, a_type, closest_match_hint, printable
from modulekg_widgets.engine.identity.walk import Walk, walk
from modulekg_widgets.engine.rewriting.function_modules.recording import inactive_hint
from modulekg_widgets.engine.rewriting.select import plain_name
from modulekg_widgets.engine.torch_runtime.hooks import has_hooks
from modulekg_widgets.engine.torch_runtime.modules import Attributes, module_state
from modulekg_widgets.engine.torch_runtime.private import BUFFERS, COMPILED_CALL, METHODS_OF_LAYERS, MODULES, PARAMETERS
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode, ModuleCall, ModuleNode

LAYERS = (*CONVOLUTIONS, *TRANSPOSED_CONVOLUTIONS, nn.Linear)
_METHODS = ("forward", *METHODS_OF_LAYERS, "__call__")


def torch_class(module: nn.Module, classes: Sequence[type[nn.Module]]) -> type[nn.Module] | None:
    """The nearest of `classes` that the module is an instance of."""
    return next((cls for cls in type(module).__mro__ if cls in classes), None)


def runs_as(module: nn.Module, cls: type[nn.Module]) -> bool:
    """True if the module runs the forward code of torch's own class `cls`."""
    own = any(getattr(type(module), name, None) is not getattr(cls, name, None) for name in _METHODS)
    return not own and "forward" not in module_state(module)


class ReplaceableLayers:
    """The modules of a model with what speaks against rebuilding each of them; runs no code of the model."""

    def __init__(self, model: nn.Module) -> None:
        self.walk = walk(model)
        self._indices = {id(module): index for index, module in enumerate(self.walk.modules)}
        self._holders = _holders(self.walk)
        self._in_plain_attributes = {id(module) for state in self.walk.states for module in _modules_in(state)}

    def __iter__(self) -> Iterator[tuple[str, nn.Module]]:
        """The modules with their dotted names, each once."""
        return ((self.walk.path(index), module) for index, module in enumerate(self.walk.modules))

    def rejection_reason(self, module: nn.Module, classes: Sequence[type[nn.Module]] = LAYERS) -> str:
        """Returns the reason why the module cannot be rebuilt as one of `classes`; else an empty text."""
        cls = torch_class(module, classes)
        if cls is None:
            return f"it is {a_type(module)}"
        if is_parametrized(module):
            return "it is parametrised: call torch.nn.utils.parametrize.remove_parametrizations first"
        if not runs_as(module, cls):
            return f"{printable(type(module).__name__)} overrides forward"
        if self.is_in_plain_attribute(module):
            return "a plain attribute holds it, too, which would still call the old one"
        return self._tensor_rejection_reason(module) or ("it has hooks" if has_hooks(module) else "")

    def parent(self, module: nn.Module) -> nn.Module | None:
        """The module in which a module has its place, None for the model itself."""
        above = self.walk.parents[self._indices[id(module)]]
        return None if above < 0 else self.walk.modules[above]

    def is_in_plain_attribute(self, module: nn.Module) -> bool:
        """True if a plain attribute holds the module, alone or in a list, tuple or dict."""
        return id(module) in self._in_plain_attributes

    def _tensor_rejection_reason(self, module: nn.Module) -> str:
        own = module_state(module)[PARAMETERS]
        for name in ("weight", "bias"):
            tensor = own.get(name)
            if name not in own or (tensor is None and name == "weight"):
                return f"its {name} is not a parameter, but computed (by a pruning mask, a weight norm) or missing"
            if tensor is None:
                continue
            if type(tensor) is not nn.Parameter or type(tensor.data) is not torch.Tensor:
                return f"its {name} is {a_type(tensor)}"
            if not tensor.dtype.is_floating_point:
                return f"its {name} is {str(tensor.dtype).removeprefix('torch.')}"
            if len(self._holders[id(tensor)]) > 1:
                return f"its {name} is tied to {printable(self._other_place(tensor, module, name))}"
        return ""

    def _other_place(self, tensor: torch.Tensor, module: nn.Module, name: str) -> str:
        for index in self._holders[id(tensor)]:
            state = self.walk.states[index]
            for kind in (PARAMETERS, BUFFERS):
                for other, value in state[kind].items():
                    if value is tensor and (self.walk.modules[index] is not module or other != name):
                        return ".".join(filter(None, (self.walk.path(index), other)))
        return name


def _holders(walk: Walk) -> dict[int, list[int]]:
    """For each parameter and buffer, the modules that hold it, one entry for each of its names there."""
    found: dict[int, list[int]] = {}
    for index, state in enumerate(walk.states):
        for kind in (PARAMETERS, BUFFERS):
            for tensor in (state.get(kind) or {}).values():
                if tensor is not None:
                    found.setdefault(id(tensor), []).append(index)
    return found


_REGISTERED = frozenset({PARAMETERS, BUFFERS, MODULES})


def _modules_in(state: Attributes) -> Iterator[nn.Module]:
    """The modules that plain attributes hold, directly or in a list, tuple or dict."""
    for name, value in state.items():
        if isinstance(value, nn.Module):
            yield value
        elif isinstance(value, dict | list | tuple) and name not in _REGISTERED and value:
            parts: Iterable[object] = value.values() if isinstance(value, dict) else value
            yield from (part for part in parts if isinstance(part, nn.Module))


def clone_module(module: nn.Module, cls: type[nn.Module] | None = None) -> Any:
    """Returns a shallow copy of a module with the same tensors, as its own class or as `cls`."""
    cls = cls or type(module)
    new = cls.__new__(cls)
    state = module_state(module)
    module_state(new).update({k: v.copy() if isinstance(v, dict | set) else v for k, v in state.items()})
    module_state(new).pop(COMPILED_CALL, None)  # what `module.compile()` leaves calls the old one
    return new


def modules_by_name(model: nn.Module, names: Iterable[str] | str, layers: ReplaceableLayers) -> dict[str, nn.Module]:
    """The modules of these names; raises `UnknownPathError` for a name that none has."""
    if not isinstance(names, Iterable):
        raise RewritingError(f"names is {a_type(names)}: pass a name, a list of names or None")
    found: dict[str, nn.Module] = {}
    for name in [names] if isinstance(names, str) else names:
        path = plain_name(layers.walk.modules[0], name)
        index = layers.walk.find(path)
        if index is None:
            near = closest_match_hint(path, layers.walk.similar_paths(path))
            raise UnknownPathError(
                f"{printable(type(model).__name__)} has no module {printable(name)!r}: {near}{inactive_hint(path)}"
            )
        found[layers.walk.path(index)] = layers.walk.modules[index]  # a shared module under its first name
    return found


def accumulation_dtype(tensor: torch.Tensor) -> torch.dtype:
    """The dtype in which arithmetic on a tensor is done before it is rounded once."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64


def identity_like(module: nn.Module) -> nn.Identity:
    """Returns an `nn.Identity` in the mode of `module`."""
    new = nn.Identity()
    module_state(new)["training"] = module.training  # setting it as an attribute takes longer than folding a norm
    return new


# -------------------- Queries on a traced pass about consecutive modules: consumers, other readers, hooks


class ModuleFlow:
    """A traced forward pass with queries about consecutive modules."""

    def __init__(self, graph: Dataflow) -> None:
        self.graph = graph
        # by object: a shared module has one node under several paths
        self.modules = list({id(node): node for node in graph.modules.values()}.values())
        self._escaped = {node for node, _ in graph.escaped}
        self._watched: dict[DataNode, str] = {}
        self._readers: dict[DataNode, list[ModuleNode]] = {}
        for module in self.modules:
            for node in module.inputs:
                self._readers.setdefault(node, []).append(module)
            if has_hooks(module.module):
                for node in (*module.inputs, *module.outputs):
                    self._watched.setdefault(node, module.path)

    def repeated_call_reason(self, module: ModuleNode) -> str:
        """Returns the reason why a module is not called once with one tensor; else an empty text."""
        if len(module.calls) != 1:
            return f"{printable(module.path)} is called {len(module.calls)} times"
        call = module.calls[0]
        if len(call.inputs) != 1 or len(call.outputs) != 1:
            return f"{printable(module.path)} takes {len(call.inputs)} tensors and gives {len(call.outputs)}"
        return ""

    def external_read_reason(self, module: ModuleNode) -> str:
        """Returns the reason if a parameter or buffer is read outside the module's calls; else an empty text."""
        for name, node in module.params.items():
            if not all(_inside(operator.index, module.calls) for operator in node.consumers):
                return f"its {name} is read outside it"
        return ""

    def not_sequential_reason(self, layer: ModuleNode, reader: ModuleNode) -> str:
        """Returns the reason why `reader` is not the only consumer of `layer`; else an empty text."""
        why = self.repeated_call_reason(layer) or self.repeated_call_reason(reader)
        return why or self.other_reader_reason(layer.outputs[0], reader)

    def readers(self, module: ModuleNode) -> list[ModuleNode]:
        """Returns the modules that take a module's output."""
        return [node for value in module.outputs for node in self._readers.get(value, ())]

    def other_reader_reason(self, value: DataNode, reader: ModuleNode) -> str:
        """Returns another reader of a value beside the module `reader`, as text; else an empty text."""
        if why := self.observer_reason(value):
            return why
        others = [operator for operator in value.consumers if not _inside(operator.index, reader.calls)]
        return f"its output is read by {others[0].where}, too" if others else ""

    def observer_reason(self, value: DataNode) -> str:
        """Returns an observer of a value beside operators, as text: an output, a hook; else an empty text."""
        if value.is_output:
            return "the model gives its output, too"
        if value in self._escaped:
            return "its output leaves torch, too"
        if value in self._watched:
            return f"a hook of {printable(self._watched[value]) or 'the model'} sees its output"
        return ""


def _inside(index: int, calls: list[ModuleCall]) -> bool:
    return any(call.start <= index < (call.end or 0) for call in calls)
