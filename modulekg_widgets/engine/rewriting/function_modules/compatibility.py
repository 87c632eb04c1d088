"""Compatibility checks: a replacement must take the same inputs and return results of the same shapes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import nn

from modulekg_widgets.engine.adapters import example_inputs
from modulekg_widgets.engine.errors import ModuleKGError, RewritingError, printable
from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.rewriting.function_modules.function_module import ArgumentLayout, FunctionModule
from modulekg_widgets.engine.torch_runtime.private import buffers_of
from modulekg_widgets.engine.torch_runtime.pytree import Args, leaves, tensors, with_leaves
from modulekg_widgets.engine.tracing.dataflow import DataNode
from modulekg_widgets.engine.tracing.trace import trace_dataflow

CallInputs = tuple[Args, Mapping[str, object]]
Shapes = Mapping[str, tuple[int, ...]]  # of results, by their names
_MAX_LAYERS = 3  # layers of a module whose inputs are tried on it


def mismatch_reason(old: nn.Module, new: nn.Module) -> str | None:
    """Returns the reason why `new` cannot replace `old`, tried on inputs that `old` takes; else None.

    `nn.Identity` stands for a module that is taken out, so its shape is not asked for.
    """
    if isinstance(old, FunctionModule):
        return _function_mismatch_reason(old, new)
    if type(new) is nn.Identity:
        return None
    reason = None
    for given in _examples(old):
        expected = _result(old, given)
        if isinstance(expected, str):
            continue
        differs = _result_mismatch(expected, _result(new, given), given)
        if differs is None:
            return None
        reason = reason or differs
    return reason


def side_effect_reason(old: nn.Module, new: nn.Module) -> str | None:
    """Returns the reason why a function called for its side effect cannot be replaced; else None."""
    if isinstance(old, FunctionModule) and old.site.is_side_effect and type(new) is not nn.Identity:
        return f"{old.site} is called for what it writes, and no one uses what a module returns there"
    return None


def fit_arguments(
    module: nn.Module, args: Args, kwargs: Mapping[str, object], held: Callable[[object], bool]
) -> CallInputs:
    """Returns the arguments that a replacement takes: all, only tensors, or only tensors that are no weights.

    The first that its forward takes. Raises `RewritingError` when it takes none.
    """
    try:
        signature = inspect.signature(module.forward)
    except (TypeError, ValueError):
        return args, kwargs
    every = [value for value in (*args, *kwargs.values()) if next(_tensors(value), None) is not None]
    free = [value for value in every if not held(value)]
    for given in ((args, kwargs), (tuple(every), {}), (tuple(free), {})):
        try:
            signature.bind(*given[0], **given[1])
        except TypeError:
            continue
        return given
    raise RewritingError(
        f"forward{signature} of {printable(type(module).__name__)} does not take what the function gets, which is "
        f"{len(free)} tensor arguments: put a module in its place that takes them"
    )


def owned_tensor_test(owner: nn.Module) -> Callable[[object], bool]:
    """Returns a test that is True for parameters, and for buffers of the module."""
    buffers = [id(buffer) for buffer in buffers_of(owner).values()]
    return lambda tensor: isinstance(tensor, nn.Parameter) or id(tensor) in buffers


def result_shapes(
    module: nn.Module, args: object, kwargs: Mapping[str, object] | None, training: bool | None = None
) -> Shapes:
    """The shapes of what a module returns, by the names of its results; raises `TraceError` when it does not run."""
    graph = trace_dataflow(module, args, kwargs, training=training)
    return {name or "the result": node.shape for name, node in leaves(graph.result, DataNode)}


def shape_difference(before: Shapes, after: Shapes) -> str | None:
    """Returns the first difference between two sets of shapes as text, or None."""
    for name in {**before, **after}:
        old, new = before.get(name), after.get(name)
        if old != new:
            return f"{name} has the shape {_text(new)}, and before it was {_text(old)}"
    return None


def _text(shape: tuple[int, ...] | None) -> str:
    return "of nothing" if shape is None else str(list(shape))


def _result_mismatch(expected: Shapes, found: Shapes | str, given: CallInputs) -> str | None:
    inputs = ", ".join(str(list(tensor.shape)) for _, tensor in tensors(given))
    if isinstance(found, str):
        return f"on an input {inputs} that the old one takes, it stops: {found}"
    differs = shape_difference(expected, found)
    return differs and f"on an input {inputs}, {differs}"


def _result(module: nn.Module, given: CallInputs) -> Shapes | str:
    """Returns the result shapes of a module, or the error as text."""
    try:
        return result_shapes(module, *given, training=False)
    except ModuleKGError as error:
        return str(error.__cause__ or error)


def _function_mismatch_reason(old: FunctionModule, new: nn.Module) -> str | None:
    site = old.site
    expected = {name or "the result": layout.shape for name, layout in leaves(site.result, ArgumentLayout)}
    try:
        given = fit_arguments(new, site.args, dict(site.kwargs), lambda value: getattr(value, "held", False))
    except RewritingError as error:
        return str(error)
    given = with_leaves(given, ArgumentLayout, ArgumentLayout.empty)
    return _result_mismatch(expected, _result(new, given), given)


def _tensors(value: object) -> Iterator[object]:
    return (found for kind in (torch.Tensor, ArgumentLayout) for found in leaves(value, kind))


# -------------------------------------------------------------------- examples


def _examples(module: nn.Module) -> Iterator[CallInputs]:
    """Inputs to try on a module: those that its first layers state by their sizes."""
    stated = [examples for layer in walk(module).modules if (examples := example_inputs(layer))]
    return ((example, {}) for examples in stated[:_MAX_LAYERS] for example in examples)


def as_sequential(modules: Sequence[nn.Module]) -> nn.Module:
    """Modules one after the other, as one."""
    return nn.Sequential(*modules)
