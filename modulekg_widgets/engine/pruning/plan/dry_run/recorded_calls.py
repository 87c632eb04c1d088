"""Comparison of a dry run's operator calls with the recorded ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate

import torch
from torch.overrides import TorchFunctionMode

from modulekg_widgets.engine.axes.terms.algebra import ATOM, SUM, Term, find, flattened_parts
from modulekg_widgets.engine.axes.terms.term_positions import subterms
from modulekg_widgets.engine.operators.arguments import OperatorCall, number_arguments
from modulekg_widgets.engine.operators.traits import traits_named, traits_of
from modulekg_widgets.engine.torch_runtime.private import disable_current_modes, schema_of
from modulekg_widgets.engine.torch_runtime.pytree import leaves
from modulekg_widgets.engine.tracing.dataflow import CONSTANT, DataNode, OperatorNode

# -------------------- The sizes that a failed view or split had requested


class FailedCall(TorchFunctionMode):
    """Records the last torch function call that raised, with the sizes that the code requested."""

    def __init__(self) -> None:
        super().__init__()
        self.name = ""
        self.arguments: tuple[object, ...] = ()

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        try:
            return func(*args, **(kwargs or {}))
        except Exception:
            self.name, self.arguments = getattr(func, "__name__", ""), args
            raise


def sizes_asked_by(
    name: str, sizes: Iterable[object], results: list[DataNode], dim: int
) -> list[tuple[DataNode, list[int | None]]]:
    """The sizes that a view or a split requests, by dimension of each result; None where they are open."""
    given = [size for size in flatten(sizes) if isinstance(size, int)]
    dims, traits = results[0].dim(), traits_named(f"aten::{name}")
    if traits.asks_for_sizes and len(given) == dims:
        return [(results[0], [size if size >= 0 else None for size in given])]
    if name == "unflatten" and len(given) > 1:
        at = given[0] % (dims - len(given) + 2)
        asked: list[int | None] = [None] * dims
        asked[at : at + len(given) - 1] = [size if size >= 0 else None for size in given[1:]]
        return [(results[0], asked[:dims])]
    if traits.splits and len(given) == len(results) > 1:
        return [(node, [size if at == dim % dims else None for at in range(dims)])
                for node, size in zip(results, given, strict=True)]  # fmt: skip
    return []


def flatten(value: Iterable[object]) -> Iterator[object]:
    """The values of nested tuples and lists."""
    for part in value:
        if isinstance(part, tuple | list):
            yield from flatten(part)
        else:
            yield part


# ----------------------------------------


MAX_BLOCKS = 64  # of equal size in one dimension, that code would take one by one
Pairs = set[tuple[int, int]]  # sizes before and after
SizeOf = Callable[[Term], int]  # the planned size of a dimension


def is_same_call_site(before: OperatorNode, now: OperatorNode) -> bool:
    """True if two calls are by the same line of the same module, on the same weights."""
    if (before.module, before.source) != (now.module, now.source):
        return False
    read = ((old, new) for old, new in zip(before.inputs, now.inputs, strict=False) if old.names or new.names)
    return all(old.label == new.label for old, new in read)


def is_same_call(
    before: OperatorNode, now: OperatorNode, dims: Callable[[DataNode], list[Term]], size_of: SizeOf
) -> bool:
    """True if `now` is the recorded call, with integers unchanged or of planned sizes.

    Floating-point numbers are no matter of this; the sizes that a view asks for were compared as its result's.
    """
    if traits_of(before.overload).asks_for_sizes:
        return OperatorCall(before).inputs[0].index == OperatorCall(now).inputs[0].index
    changed: Pairs = set()
    for old, new in _argument_pairs(before, now):
        if isinstance(old, DataNode) and isinstance(new, DataNode):
            if old.index != new.index:
                return False
        elif type(old) is int and type(new) is int and old != new:
            changed.add((old, new))
        elif type(old) is not type(new) or not (isinstance(old, float | torch.ScriptObject) or old == new):
            return False  # objects of TorchScript, as packed weights, are the module's own and have no equality
    terms = (term for node in (*before.inputs, *result_nodes(before)) for term in dims(node))
    return not changed or _are_planned(changed, list(terms), size_of)


def _are_planned(changed: Pairs, terms: list[Term], size_of: SizeOf) -> bool:
    """True if all changes are those of a size, or of the end of a part of a dimension."""
    sizes = {(part.size, size_of(part)) for term in terms for part in subterms(term)}
    return changed <= sizes or changed <= sizes.union(*(_part_ends(find(term), size_of) for term in terms))


def _part_ends(term: Term, size_of: SizeOf) -> Pairs:
    """The ends of the parts of a dimension that a slice may request."""
    parts = [] if term.kind == ATOM else flattened_parts(term)
    before, after = [part.size for part in parts], [size_of(part) for part in parts]
    if term.kind == SUM:
        return set(zip(accumulate(before), accumulate(after), strict=True))
    found: Pairs = set()
    for at in range(1, len(parts)):
        blocks = math.prod(before[:at])
        if blocks <= MAX_BLOCKS and before[:at] == after[:at]:
            inner, now = math.prod(before[at:]), math.prod(after[at:])
            found |= {(block * inner, block * now) for block in range(1, blocks)}
    return found


def result_nodes(operator: OperatorNode) -> list[DataNode]:
    """The result nodes of an operator, in the order of its schema."""
    return [node for _, node in leaves(operator.result, DataNode)]


def _argument_pairs(before: OperatorNode, now: OperatorNode) -> Iterator[tuple[object, object]]:
    """The arguments of two calls in pairs."""
    yield from zip(flatten(arguments_without_sizes(before)), flatten(arguments_without_sizes(now)), strict=False)


def arguments_without_sizes(operator: OperatorNode) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """The arguments and keywords, with integers that are no sizes as floats.

    What makes a tensor of nothing, as `arange`, takes sizes everywhere.
    """
    args, kwargs = operator.args, operator.kwargs
    if not any(type(value) is int for value in (*args, *kwargs.values())) or not operator.inputs:
        return args, tuple(kwargs.values())
    names = [each.name for each in schema_of(operator.overload).arguments]
    numbers = number_arguments(operator.overload)
    return (
        tuple(float(value) if type(value) is int and name in numbers else value
              for name, value in zip(names, args, strict=False)),
        tuple(float(value) if type(value) is int and name in numbers else value for name, value in kwargs.items()),
    )  # fmt: skip


def scalar_pairs(before: OperatorNode, now: OperatorNode) -> Iterator[tuple[float, float]]:
    """The pairs of scalar arguments of two calls that are no sizes or positions."""
    for old, new in _argument_pairs(before, now):
        first, second = scalar_value(old), scalar_value(new)
        if first is not None and second is not None:
            yield first, second


def scalar_value(argument: object) -> float | None:
    """A float argument, or the value of a constant tensor of one element; else None."""
    if isinstance(argument, float):
        return argument
    tensor = argument.tensor if isinstance(argument, DataNode) and argument.kind == CONSTANT else None
    known = tensor is not None and tensor.numel() == 1 and not tensor.is_meta and not tensor.is_complex()
    if not known or type(tensor) is not torch.Tensor:
        return None
    with disable_current_modes():
        return float(tensor)
