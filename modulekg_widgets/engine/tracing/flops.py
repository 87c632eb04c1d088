"""The cost of a forward pass in floating-point operations, a multiply-add counted as 2."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from modulekg_widgets.engine.errors import TraceError, shown
from modulekg_widgets.engine.operators.formulas import (
    FREE,
    PER_INPUT,
    PER_OUTPUT,
    Arguments,
    formulas,
    multiply_adds,
    nodes_in,
)
from modulekg_widgets.engine.operators.signature import signature_of
from modulekg_widgets.engine.operators.user_operators import user_operators
from modulekg_widgets.engine.torch_runtime.private import overload_name_of, packet_of, schema_of
from modulekg_widgets.engine.torch_runtime.structure import with_leaves
from modulekg_widgets.engine.tracing.dataflow import DataNode, OperatorNode, Unknown

log = logging.getLogger("modulekg_widgets")
REMEDY = "tell its cost with mk.axis_rule({name!r}, flops=lambda *args: …), or name a like operator"
Count = Callable[[OperatorNode], "float | None"]


class Flops(int):
    """The cost of some operators, a number; those in `unknown` have no formula and are not in it.

    `macs` counts pairs of a multiplication and an addition, in the operators that are made of these. `by_module` goes
    by dotted path, each module with all that is below; the root is "".
    """

    macs: int
    by_operator: dict[str, int]
    by_module: dict[str, int]
    unknown: list[Unknown]

    @property
    def total(self) -> int:
        """The plain number."""
        return int(self)

    def __repr__(self) -> str:
        return f"<Flops {_readable(self)}FLOPs, {len(self.unknown)} operators unknown>"

    def __str__(self) -> str:
        lines = [f"{_readable(self)}FLOPs, {_readable(self.macs)}MACs"]
        largest = sorted(self.by_operator.items(), key=lambda item: -item[1])[:8]
        lines += [f"  {name:<40} {_readable(flops)}" for name, flops in largest if flops]
        lines += [f"  {entry.operator} in {shown(entry.module) or '(root)'} is unknown" for entry in self.unknown[:8]]
        return "\n".join(lines)


def count_flops(operators: Iterable[OperatorNode]) -> Flops:
    """The sums over the operators."""
    total = macs = 0
    by_operator: dict[str, int] = defaultdict(int)
    by_module: dict[str, int] = defaultdict(int)
    unknown = []
    for operator in operators:
        found, pairs = _cost(operator)
        if found is None:
            unknown.append(operator.record(REMEDY.format(name=operator.name)))
            continue
        total += found
        macs += found // 2 if pairs else 0
        by_operator[operator.name] += found
        by_module[operator.module] += found
    sums = Flops(total)
    sums.macs, sums.by_operator, sums.by_module, sums.unknown = (
        macs, dict(by_operator), _with_containers(by_module), unknown,
    )  # fmt: skip
    return sums


def _with_containers(own: dict[str, int]) -> dict[str, int]:
    sums: dict[str, int] = defaultdict(int)
    for path, flops in own.items():
        while path:
            sums[path] += flops
            path = path.rpartition(".")[0]
        sums[""] += flops
    return dict(sorted(sums.items()))


def _readable(count: int) -> str:
    """The number with a decimal prefix, ready for a unit: `1.82 G`."""
    for power, prefix in ((5, "P"), (4, "T"), (3, "G"), (2, "M"), (1, "k")):
        if count >= 1000**power:
            return f"{count / 1000**power:.2f} {prefix}"
    return f"{int(count)} "


def operator_flops(operator: OperatorNode) -> int | None:
    """The cost of one call, None when no formula is known."""
    return _cost(operator)[0]


def _cost(operator: OperatorNode) -> tuple[int | None, bool]:
    """The cost of a call, and whether it is made of multiply-adds."""
    overload = operator.overload
    user = user_operators.get(operator.name)
    if user is not None and user.flops is not None:
        return _told_by_user(user.flops, operator), False
    if user is not None and user.like is not None:
        overload = _overload_of(user.like)
    count, pairs = _way_to_count(overload)
    try:
        found = count(operator)
    except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError):
        log.debug("the formula of %s failed", operator.where, exc_info=True)
        found = None
    return (None if found is None else round(found)), pairs


def _told_by_user(flops: Callable[..., int], operator: OperatorNode) -> int:
    try:
        return int(flops(*operator.args, **operator.kwargs))
    except Exception as error:
        raise TraceError(
            f"the flops function of {operator.where} raised {type(error).__name__}: {shown(str(error), 300)}; it gets "
            "the operator's arguments, with nodes that have a shape in the tensors' places, and returns a number"
        ) from error


@cache
def _way_to_count(overload: Any) -> tuple[Count, bool]:
    """How to count the calls of an overload, and whether they are made of multiply-adds."""
    name, twin = _functional(overload)
    tags = {*overload.tags, *twin.tags}
    if name in FREE or _moves_nothing(overload, tags):
        return _nothing, False
    if name in PER_OUTPUT:
        return lambda operator: PER_OUTPUT[name] * _result(operator).numel(), False
    if name in PER_INPUT:
        return lambda operator: PER_INPUT[name] * operator.inputs[0].numel(), False
    if name in formulas:
        return lambda operator: formulas[name](Arguments(operator, name, schema_of(overload))), name in multiply_adds
    if packet_of(twin) in flop_registry:
        return _by_torch(flop_registry[packet_of(twin)]), True
    if torch.Tag.pointwise in tags:
        return lambda operator: _result(operator).numel(), False
    if torch.Tag.reduction in tags:
        return lambda operator: operator.inputs[0].numel(), False
    return _unknown, False


def _functional(overload: Any) -> tuple[str, Any]:
    """For `relu_` the name and the overload of `relu`, which has the formula, and tags that the former lacks."""
    full = schema_of(overload).name
    if not full.endswith("_") or full.endswith("__"):
        return full, overload
    namespace, _, name = full[:-1].partition("::")
    packet = getattr(getattr(torch.ops, namespace), name, None)
    return full[:-1], getattr(packet, overload_name_of(overload), overload)


def _overload_of(name: str) -> Any:
    namespace, _, operator = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), operator)
    overloads = [getattr(packet, overload) for overload in packet.overloads()]
    return next((o for o in overloads if {torch.Tag.pointwise, torch.Tag.reduction} & {*o.tags}), overloads[0])


def _moves_nothing(overload: Any, tags: set[torch.Tag]) -> bool:
    """Views, their copies, and what makes a tensor of no tensor."""
    signature = signature_of(overload)
    view = signature.views is not None and signature.is_pure
    makes = overload.namespace == "aten" and "Tensor" not in str(schema_of(overload)).partition("->")[0]
    return view or makes or torch.Tag.inplace_view in tags or torch.Tag.view_copy in tags


def _nothing(operator: OperatorNode) -> float:
    return 0


def _unknown(operator: OperatorNode) -> None:
    return None


def _result(operator: OperatorNode) -> DataNode:
    results = nodes_in(operator.result)
    return results[0] if results else operator.inputs[0]


def _by_torch(formula: Callable[..., int]) -> Count:
    def count(operator: OperatorNode) -> int:
        args, kwargs, result = with_leaves(
            (list(operator.args), operator.kwargs, operator.result), DataNode, _without_data
        )
        return formula(*args, **kwargs, out_val=result)

    return count


def _without_data(node: DataNode) -> torch.Tensor:
    return torch.empty(node.shape, dtype=node.dtype, device="meta")
