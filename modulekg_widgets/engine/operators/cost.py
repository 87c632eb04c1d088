"""The FLOPs of one operator call; a multiply-add counts as 2."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple, Protocol

import torch
from torch.utils.flop_counter import flop_registry

from modulekg_widgets.engine.errors import TraceError, printable
from modulekg_widgets.engine.operators.arguments import OperatorCall, schema_reading
from modulekg_widgets.engine.operators.formulas import (
    FREE,
    PER_INPUT,
    PER_OUTPUT,
    counted_by_torch,
    elementwise_parts,
    formulas,
    multiply_adds,
)
from modulekg_widgets.engine.operators.recorded_call import RecordedCall, Value, meta_tensor
from modulekg_widgets.engine.operators.signature import base_name, signature_of
from modulekg_widgets.engine.operators.user_operators import user_operators
from modulekg_widgets.engine.torch_runtime.private import Overload, overload_name_of, packet_of, schema_of
from modulekg_widgets.engine.torch_runtime.pytree import with_leaves

log = logging.getLogger("modulekg_widgets")
Count = Callable[[OperatorCall], "float | None"]


class Elements(Protocol):
    """A tensor or a placeholder for one."""

    def numel(self) -> int: ...


class OperationKind(NamedTuple):
    """The kind of an operator's FLOPs: multiply-adds or not, matrix products or not."""

    pairs: bool = False  # multiplications and additions in pairs
    products: bool = False  # matrix products and convolutions, as torch's FlopCounterMode counts them


PRODUCTS, PAIRS, OTHER = OperationKind(True, True), OperationKind(True, False), OperationKind()


def operator_flops(operator: RecordedCall) -> int | None:
    """The cost of a call, None when no formula is known."""
    return flops_and_kind(operator)[0]


def flops_and_kind(operator: RecordedCall) -> tuple[int | None, OperationKind]:
    """The cost of a call, and what its operations are."""
    user = user_operators.get(schema_of(operator.overload).name) if user_operators else None
    if user is not None and user.flops is not None:
        return _flops_of_user(user.flops, operator), OTHER
    count, kind = _flop_counter(schema_reading(operator.overload).overload)
    if kind.pairs and any(node.is_ragged for node in operator.inputs):
        return None, kind  # the sizes of its rows are not recorded
    if kind.pairs and any(node.stored is not None for node in operator.inputs[-2:]):
        return _with_sparse(operator), kind
    try:
        found = count(OperatorCall(operator))
    except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError):
        log.debug("the formula of %s failed", operator.where, exc_info=True)
        found = None
    return (None if found is None else round(found)), kind


def flops_in_parts(operator: RecordedCall) -> list[tuple[int | None, OperationKind]]:
    """The cost of a call, what is made of multiply-adds and what is not each for itself."""
    found, kind = flops_and_kind(operator)
    beside = elementwise_parts.get(schema_of(schema_reading(operator.overload).overload).name)
    if found is None or beside is None or not kind.pairs:
        return [(found, kind)]
    rest = round(beside(OperatorCall(operator)) or 0)
    return [(found - rest, kind), (rest, OTHER)]


def memory_traffic(overload: Overload, inputs: Iterable[Elements], outputs: Iterable[Elements]) -> int:
    """Returns the number of elements that a call reads and writes; 0 for views and factories."""
    if signature_of(overload).views is not None or schema_of(overload).name == "aten::_unsafe_view":
        return 0
    read = sum(each.numel() for each in inputs)
    return read and read + sum(each.numel() for each in outputs)


def _with_sparse(operator: RecordedCall) -> int | None:
    """A product with a sparse matrix, by the elements that it stores; None where their number is not known."""
    first, second = operator.inputs[-2:]
    if first.stored is not None and second.stored is None and first.stored >= 0:
        return 2 * first.stored * (second.numel() // max(second.shape[0], 1))
    if second.stored is not None and first.stored is None and second.stored >= 0:
        return 2 * second.stored * (first.numel() // max(first.shape[-1], 1))
    return None


def _flops_of_user(flops: Callable[..., int], operator: RecordedCall) -> int:
    try:
        return int(flops(*operator.args, **operator.kwargs))
    except Exception as error:
        raise TraceError(
            f"the flops function of {operator.where} raised {type(error).__name__}: {printable(str(error), 300)}; it "
            "gets "
            "the operator's arguments, with nodes that have a shape in the tensors' places, and returns a number"
        ) from error


@cache
def _flop_counter(overload: Overload) -> tuple[Count, OperationKind]:
    """Returns the function that counts the FLOPs of an overload, and their kind."""
    name, twin = _functional_variant(overload)
    tags = {*overload.tags, *twin.tags}
    if name in FREE or _is_free(overload, tags):
        return _zero, OTHER
    if name in PER_OUTPUT:
        return lambda call: PER_OUTPUT[name] * call.output.numel(), OTHER
    if name in PER_INPUT:
        return lambda call: PER_INPUT[name] * call.inputs[0].numel(), OTHER
    if name in formulas:
        is_product = name in counted_by_torch or packet_of(twin) in flop_registry
        return formulas[name], PRODUCTS if is_product else PAIRS if name in multiply_adds else OTHER
    if packet_of(twin) in flop_registry:
        return _torch_formula(flop_registry[packet_of(twin)]), PRODUCTS
    if torch.Tag.pointwise in tags:
        return lambda call: call.output.numel(), OTHER
    if torch.Tag.reduction in tags:
        return lambda call: call.inputs[0].numel(), OTHER
    return _unknown, OTHER


def _functional_variant(overload: Overload) -> tuple[str, Any]:
    """For `relu_` the name and the overload of `relu`, which has the formula, and tags that the former lacks."""
    full = schema_of(overload).name
    name = base_name(full)
    if name == full:
        return full, overload
    namespace, _, short = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), short, None)
    return name, getattr(packet, overload_name_of(overload), overload)


def _is_free(overload: Overload, tags: set[torch.Tag]) -> bool:
    """Views, their copies, and what makes a tensor of no tensor."""
    signature = signature_of(overload)
    view = signature.views is not None and signature.is_pure
    makes = overload.namespace == "aten" and "Tensor" not in str(schema_of(overload)).partition("->")[0]
    return view or makes or torch.Tag.inplace_view in tags or torch.Tag.view_copy in tags


def _zero(call: OperatorCall) -> float:
    return 0


def _unknown(call: OperatorCall) -> None:
    return None


def _torch_formula(formula: Callable[..., int]) -> Count:
    def count(call: OperatorCall) -> int:
        arguments = (*call.native_arguments(), call.operator.result)
        args, kwargs, result = with_leaves(arguments, Value, meta_tensor)
        return formula(*args, **kwargs, out_val=result)

    return count
