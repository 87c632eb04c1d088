"""Comparison of models by name, and the relation `sameAs` of structures that compute the same function."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any

import pandas as pd
import torch
from torch import nn

from modulekg_widgets.engine.errors import ModuleKGError, TraceError, UnknownNameError, closest_match_hint, printable
from modulekg_widgets.engine.identity.hierarchy import hierarchy
from modulekg_widgets.engine.knowledge.equivalence.comparison import (
    Equivalence,
    FunctionKey,
    called_modules,
    compare_graphs,
    data_dependence,
    module_function,
    nominal_class_name,
)
from modulekg_widgets.engine.knowledge.equivalence.data_movement import DataMovement
from modulekg_widgets.engine.knowledge.facts.contents import Contents, display_names
from modulekg_widgets.engine.knowledge.facts.records import hexdigests
from modulekg_widgets.engine.knowledge.facts.tables import data_frame
from modulekg_widgets.engine.knowledge.facts.traced import CallArguments
from modulekg_widgets.engine.knowledge.zoo.meta_weights import meta_weights
from modulekg_widgets.engine.torch_runtime.pytree import with_tensors
from modulekg_widgets.engine.torch_runtime.rng import preserved_rng
from modulekg_widgets.engine.tracing.dataflow import Dataflow
from modulekg_widgets.engine.tracing.trace import trace_dataflow

Builder = Callable[..., nn.Module]
COLUMNS = ["function", "node", "class", "models"]
DIGEST_DIGITS = 12  # of the digest that a function is named by


def equivalent(
    a: nn.Module | str,
    b: nn.Module | str,
    args: Any,
    kwargs: Mapping[str, object] | None,
    builders: Mapping[str, Builder],
) -> Equivalence:
    """Compares two modules, or models built by name, on the same inputs.

    Without any, inputs are two examples of what the builder of the first, else of the second says.
    """
    given = None if args is None and kwargs is None else (() if args is None else args, kwargs or {})
    call = given or example_call([each for each in (a, b) if isinstance(each, str)], builders) or ((), {})
    one, other = (trace_model(each, call, builders) for each in (a, b))
    first, second = (each if isinstance(each, str) else type(each).__name__ for each in (a, b))
    names = (first, second) if first != second else (f"{first} (a)", f"{second} (b)")
    return compare_graphs(one, other, names)


def same_as(contents: Contents, builders: Mapping[str, Builder], models: Iterable[str] | None = None) -> pd.DataFrame:
    """Returns the structures of different classes that compute the same function, a row for each.

    Raises `UnknownNameError` for one of `models` that no builder builds; those that do not run stand in `attrs`.
    """
    names = [name for name in contents.models if name in builders] if models is None else list(models)
    classes: dict[str, str] = {}  # of structures, by fingerprint
    holders: dict[str, dict[str, None]] = defaultdict(dict)
    functions: dict[FunctionKey, dict[str, None]] = defaultdict(dict)
    left_out: dict[str, str] = {}
    moves = DataMovement()
    for name in names:
        _builder(name, builders)  # refuses a name that has none
        try:
            graph = trace_model(name, example_call([name], builders) or ((), {}), builders)
        except ModuleKGError as error:
            left_out[name] = str(error)
            continue
        if reason := data_dependence(graph):
            left_out[name] = reason
            continue
        fingerprints = fingerprints_by_path(graph, contents.scheme)
        for node in called_modules(graph):
            fingerprint, function = fingerprints[node.path], module_function(graph, node, moves)
            classes[fingerprint] = nominal_class_name(node)
            holders[fingerprint][name] = None
            if function is not None:
                functions[function][fingerprint] = None
    found = data_frame(_rows(contents, functions, classes, holders), COLUMNS)
    found.attrs["left_out"] = left_out
    return found


def fingerprints_by_path(graph: Dataflow, scheme: str) -> dict[str, str]:
    """Returns the fingerprint of each module of a traced model, by path."""
    modules = hierarchy(graph.model)
    digests = hexdigests(modules, scheme)
    return {path: digests[modules[path].index] for path in graph.modules}


def _rows(
    contents: Contents, functions: Mapping[FunctionKey, Iterable[str]], classes: Mapping[str, str],
    holders: Mapping[str, Iterable[str]],
) -> list[tuple[object, ...]]:  # fmt: skip
    """Returns the rows; a set of structures stands once, though equal on several sizes."""
    known = {**display_names({key: name.rpartition(".")[2] for key, name in classes.items()}), **contents.names}
    sets: dict[tuple[str, ...], str] = {}
    for function, members in functions.items():
        if len({classes[member] for member in members}) > 1:
            sets.setdefault(tuple(sorted(members)), blake2b(repr(function).encode()).hexdigest()[:DIGEST_DIGITS])
    return [
        (name, known[member], classes[member], list(holders[member]))
        for members, name in sets.items() for member in sorted(members, key=lambda each: (classes[each], known[each]))
    ]  # fmt: skip


# -------------------------------------------------------------------- models


def example_call(names: Iterable[str], builders: Mapping[str, Builder]) -> CallArguments | None:
    """Returns the example inputs of the first builder that has some, with a batch of two.

    A function that mixes the examples of a batch would pass for another one on a batch of one.
    """
    for name in names:
        example = getattr(_builder(name, builders), "example", None)
        call = None if example is None else example(_build_model(name, builders))
        if call is not None:
            return with_tensors(call, _double_batch)
    return None


def _double_batch(tensor: torch.Tensor) -> torch.Tensor:
    return torch.cat([tensor, tensor]) if tensor.dim() > 1 and len(tensor) == 1 else tensor


def trace_model(model: nn.Module | str, call: CallArguments, builders: Mapping[str, Builder]) -> Dataflow:
    """Traces a module, or what a builder builds, with weights on the meta device if that suffices."""
    args, kwargs = call
    if not isinstance(model, str):
        return trace_dataflow(model, args, kwargs, training=False)
    graph = trace_dataflow(_build_model(model, builders), args, kwargs, training=False)
    if _lacks_table_data(graph) and not getattr(_builder(model, builders), "only_without_memory", False):
        return trace_dataflow(_build_model(model, builders, on_meta=False), args, kwargs, training=False)
    return graph


def _lacks_table_data(graph: Dataflow) -> bool:
    """True if forward reads a constant tensor without data."""
    tables = (node for node in graph.values if node.is_buffer_like and node.consumers)
    return any(node.tensor is None or node.tensor.is_meta for node in tables)


def _build_model(name: str, builders: Mapping[str, Builder], on_meta: bool = True) -> nn.Module:
    builder = _builder(name, builders)
    try:
        with preserved_rng():
            if not on_meta:
                return builder()
            with meta_weights():
                return builder()
    except Exception as error:  # a builder is the caller's code and may raise anything
        kind = type(error).__name__
        raise TraceError(f"the builder of {printable(name)!r} raised {kind}: {printable(str(error))}") from error


def _builder(name: str, builders: Mapping[str, Builder]) -> Builder:
    if name not in builders:
        raise UnknownNameError(
            f"nothing builds {printable(name)!r} in this session: pass the module itself, or add the model by "
            f"mk.index_models; {closest_match_hint(name, builders)}"
        )
    return builders[name]
