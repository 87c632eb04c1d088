"""Comparison of two models by their data flow: equivalence, corresponding modules and weights, the first difference.

Both models are traced in eval mode on the same inputs, without computing. Each trace becomes a function of inputs and
weights (flow_reader.py); equal digests mean equal functions up to rounding, on inputs of these shapes. Modules
correspond if they have the same place in the data flow, or compute the same function of their own inputs.

The comparison is sound, not complete: models found equivalent are; equivalent models that use operators without a
known normal form may not be found. A model whose control flow depends on data is never called equivalent.

    >>> import torch, modulekg_widgets as mk
    >>> a, b = torch.nn.Linear(4, 2), torch.nn.Sequential(torch.nn.Linear(4, 2))
    >>> mk.KnowledgeGraph().equivalent(a, b, torch.ones(3, 4)).same
    True
"""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from hashlib import blake2b
from typing import Any

import pandas as pd
import torch
from torch import nn

from modulekg_widgets.engine.errors import ModuleKGError, TraceError, UnknownNameError, closest_match_hint, printable
from modulekg_widgets.engine.identity.hierarchy import hierarchy
from modulekg_widgets.engine.identity.walk import nominal_class
from modulekg_widgets.engine.knowledge.equivalence.data_movement import DataMovement
from modulekg_widgets.engine.knowledge.equivalence.flow_reader import FlowReader, call_flow, model_flow
from modulekg_widgets.engine.knowledge.equivalence.value_numbering import MOVED, STATE, UNKNOWN, FlowFunction, FlowValue
from modulekg_widgets.engine.knowledge.facts.contents import Contents, display_names
from modulekg_widgets.engine.knowledge.facts.records import hexdigests, qualified_name
from modulekg_widgets.engine.knowledge.facts.tables import data_frame
from modulekg_widgets.engine.knowledge.facts.traced import CallArguments
from modulekg_widgets.engine.knowledge.zoo.meta_weights import meta_weights
from modulekg_widgets.engine.torch_runtime.pytree import with_tensors
from modulekg_widgets.engine.torch_runtime.rng import preserved_rng
from modulekg_widgets.engine.tracing.dataflow import Dataflow, ModuleNode
from modulekg_widgets.engine.tracing.trace import trace_dataflow

# -------------------- The first difference of two functions, as a sentence


def first_divergence(a: FlowFunction, b: FlowFunction, names: tuple[str, str]) -> str:
    """Describes the first difference of the functions; empty if there is none."""
    if a.digest == b.digest:
        return ""
    one, other = _first_without_match(a, b), _first_without_match(b, a)
    for name, first in zip(names, (one, other), strict=True):
        unknown = None if first is None else next(filter(_is_unknown, (first, *first.inputs)), None)
        if unknown is not None:
            return f"it cannot be told, as in {printable(name)} {_reason(unknown)}"
    if one is None and other is None:
        same = [value.label for value in a.outputs] == [value.label for value in b.outputs]
        return _sharing_difference(a, b, names) if same else "they give other values of the same data flow"
    if one is None or other is None:
        name, more = (names[0], one) if other is None else (names[1], other)
        assert more is not None
        return f"{printable(name)} has {_location(more)} besides"
    if (one.name, one.shape) == (other.name, other.shape) and len(one.inputs) == len(other.inputs):
        return (
            f"{_location(one)} in {printable(names[0])} has {_difference(one, other)} of {_location(other)} in "
            f"{printable(names[1])}"
        )
    return f"{printable(names[0])} has {_described(one)} where {printable(names[1])} has {_described(other)}"


def _is_unknown(value: FlowValue) -> bool:
    return value.name == UNKNOWN


def _reason(value: FlowValue) -> str:
    return value.settings["reason"] + ("" if value.operator is None else f" ({_location(value)})")


def _first_without_match(function: FlowFunction, other: FlowFunction) -> FlowValue | None:
    """Returns the first operator, in order of execution, that the other function does not have."""
    known = {value.label for value in other.live_values}
    new = [value for value in function.live_values if value.operator is not None and value.label not in known]
    return min(new, key=lambda value: value.operator.index if value.operator else 0, default=None)


def _location(value: FlowValue) -> str:
    operator = value.operator
    if operator is None:
        return value.name
    return f"{_name(value)} in {printable(operator.module) or '(root)'!r}"


def _name(value: FlowValue) -> str:
    moved = value.name == MOVED and value.operator is not None
    return value.operator.name if moved and value.operator else value.name


def _described(value: FlowValue) -> str:
    given = ", ".join(_shapes(value.inputs)) or "nothing"
    return f"{_location(value)} (of {given}, to {list(value.shape)}{_settings_text(value)})"


def _settings_text(value: FlowValue) -> str:
    found = [f"{name} {text}" for name, text in value.settings.items() if name not in ("overload", "places")]
    return "".join(f", {each}" for each in found if not each.endswith((" value", " None")))


def _shapes(values: Iterable[FlowValue]) -> list[str]:
    return [f"{'a weight of ' if value.name == STATE else ''}{list(value.shape)}" for value in values]


def _difference(one: FlowValue, other: FlowValue) -> str:
    """Describes the difference of two calls of one operator."""
    if one.name == MOVED:
        return "other elements moved than those"
    names = [name for name in {**one.settings, **other.settings}
             if one.settings.get(name) != other.settings.get(name)]  # fmt: skip
    if names:
        return " and ".join(f"{name} {one.settings.get(name)} against the {other.settings.get(name)}" for name in names)
    mine, theirs = _shapes(one.inputs), _shapes(other.inputs)
    if mine != theirs:
        return f"inputs of {', '.join(mine)} against the {', '.join(theirs)}"
    return "other inputs, or in another order, than those"


def _sharing_difference(a: FlowFunction, b: FlowFunction, names: tuple[str, str]) -> str:
    """Describes the difference in shared weights, where the operators are the same."""
    counts = [f"{len(function.state)} in {printable(name)}" for name, function in zip(names, (a, b), strict=True)]
    return f"the operators are the same, but they share weights otherwise: these are {' and '.join(counts)}"


# -------------------- Comparison of two models


FunctionKey = tuple[object, ...]


@dataclass(frozen=True)
class Equivalence:
    """Result of the comparison of two models as functions of inputs and weights, in eval mode.

    Iterating over it gives the pairs of paths of the modules that compute the same, those of `modules`.

    Attributes
    ----------
    same : bool
        Whether they do, as wholes, up to rounding.
    modules : pandas.DataFrame
        The modules that do: `a` and `b` (paths), `class_a` and `class_b`. Where the models are the same these stand at
        the same place of the data flow; else they compute the same of their own inputs, in the same order.
    parameters : pandas.DataFrame
        Where the models are the same: the weights and statistics that take each other's place, `a`, `b` and `shape`.
    differs : str
        Where the models part, in words; empty where they are the same.
    """

    same: bool
    modules: pd.DataFrame
    parameters: pd.DataFrame
    differs: str
    names: tuple[str, str] = field(default=("a", "b"))

    def __bool__(self) -> bool:
        return self.same

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return zip(self.modules["a"], self.modules["b"], strict=True)

    def __len__(self) -> int:
        return len(self.modules)

    def __repr__(self) -> str:
        a, b = map(printable, self.names)
        others = int((self.modules["class_a"] != self.modules["class_b"]).sum())
        pairs = f"{len(self.modules)} pairs of modules that are, {others} of them of different classes"
        if self.same:
            return f"<{a} and {b} are the same function; {pairs}>"
        return f"<{a} and {b} are not found to be the same function: {self.differs}; {pairs}>"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self)[1:-1])}</p>{self.modules.to_html(index=False, escape=True)}"


def compare_models(
    a: nn.Module,
    b: nn.Module,
    args: object = (),
    kwargs: Mapping[str, object] | None = None,
    names: tuple[str, str] = ("a", "b"),
) -> Equivalence:
    """Traces both models in eval mode on the same inputs and compares them; raises `TraceError`."""
    one, other = (trace_dataflow(model, args, kwargs, training=False) for model in (a, b))
    return compare_graphs(one, other, names)


def compare_graphs(a: Dataflow, b: Dataflow, names: tuple[str, str] = ("a", "b")) -> Equivalence:
    """Compares two traces of the same inputs."""
    moves = DataMovement()
    (read_a, whole_a), (read_b, whole_b) = model_flow(a, moves), model_flow(b, moves)
    differs = data_dependence(a) or data_dependence(b) or first_divergence(whole_a, whole_b, names)
    if differs:
        pairs = _align(_module_functions(a, moves), _module_functions(b, moves))
    else:
        pairs = _modules_of_same_span(_modules_by_span(read_a, whole_a), _modules_by_span(read_b, whole_b))
    rows = [(one.path, other.path, nominal_class_name(one), nominal_class_name(other)) for one, other in pairs]
    weights = [] if differs else [
        (one.node.name, other.node.name, one.shape)
        for one, other in zip(whole_a.state, whole_b.state, strict=True) if one.node and other.node
    ]  # fmt: skip
    return Equivalence(
        not differs,
        data_frame(rows, ["a", "b", "class_a", "class_b"]),
        data_frame(weights, ["a", "b", "shape"]),
        differs,
        names,
    )


def data_dependence(graph: Dataflow) -> str:
    """Returns why one forward does not determine others, in words; empty if it does."""
    if not graph.data_dependent:
        return ""
    first = graph.data_dependent[0]
    where = f"{first.operator} in {printable(first.module) or '(root)'!r}"
    return f"{printable(type(graph.model).__name__)} asks for numbers ({where}), and may take another branch on others"


def nominal_class_name(node: ModuleNode) -> str:
    return qualified_name(nominal_class(node.module))


# ------------------------------------------------------------------- modules


def called_modules(graph: Dataflow) -> list[ModuleNode]:
    """Returns the modules that ran, each once, in the order of their first calls, containers first."""
    nodes = {id(node): node for node in graph.modules.values() if node.calls}.values()
    return sorted(nodes, key=lambda node: (node.calls[0].start, -(node.calls[0].end or 0), node.path.count(".")))


def module_function(graph: Dataflow, node: ModuleNode, moves: DataMovement) -> FunctionKey | None:
    """Returns the digests of a module's function over all of its calls; None if there are none or unknown values."""
    functions = [call_flow(graph, call, moves) for call in node.calls]
    if any(function.unknown or not _has_operators(function) for function in functions):
        return None
    return tuple(function.digest for function in functions)


def _has_operators(function: FlowFunction) -> bool:
    return any(value.inputs for value in function.outputs)


def _module_functions(graph: Dataflow, moves: DataMovement) -> list[tuple[ModuleNode, FunctionKey]]:
    found = ((node, module_function(graph, node, moves)) for node in called_modules(graph))
    return [(node, key) for node, key in found if key is not None]


def _align(
    a: Sequence[tuple[ModuleNode, FunctionKey]], b: Sequence[tuple[ModuleNode, FunctionKey]]
) -> Iterator[tuple[ModuleNode, ModuleNode]]:
    """Yields pairs of modules with the same function, in the order of both models."""
    keys = [[key for _, key in side] for side in (a, b)]
    for block in SequenceMatcher(None, *keys, autojunk=False).get_matching_blocks():
        for at in range(block.size):
            yield a[block.a + at][0], b[block.b + at][0]


def _modules_by_span(reader: FlowReader, whole: FlowFunction) -> dict[FunctionKey, list[ModuleNode]]:
    """Returns the modules by the digests of their inputs and outputs in the model, containers first."""
    found: dict[FunctionKey, list[ModuleNode]] = defaultdict(list)
    for node in called_modules(reader.graph):
        spans = [([reader.value_of(each) for each in call.inputs], [reader.value_of(each) for each in call.outputs])
                 for call in node.calls]  # fmt: skip
        if any(_is_identity(*span) for span in spans):
            continue
        found[tuple((whole.digests(given), whole.digests(result)) for given, result in spans)].append(node)
    return found


def _is_identity(inputs: list[FlowValue], results: list[FlowValue]) -> bool:
    return {value.index for value in results} <= {value.index for value in inputs}


def _modules_of_same_span(
    a: Mapping[FunctionKey, list[ModuleNode]], b: Mapping[FunctionKey, list[ModuleNode]]
) -> Iterator[tuple[ModuleNode, ModuleNode]]:
    """Yields pairs of modules with the same span, nested ones in turn, the innermost if one side has fewer."""
    for key, nodes in a.items():
        others = b.get(key, [])
        few = min(len(nodes), len(others))
        yield from zip(nodes[len(nodes) - few :], others[len(others) - few :], strict=True)


# -------------------- Models by name, and the relation `sameAs` of structures that compute the same function

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
