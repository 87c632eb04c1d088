"""Every operator that torch tags as pointwise has a rule, and is what the tag says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from axes.rules.checks import check_permutation, check_terms
from axes.rules.harness import Example, ints, mask, positive
from axes.rules.inferred import Inferred
from modulekg_widgets.engine.axes.inference.inference import find_rule
from modulekg_widgets.engine.axes.terms.call import rules
from modulekg_widgets.engine.operators.signature import plain_name

# tagged, and yet with a rule of their own: one figure for Python, and the larger of two beside the reduction
OWN_RULE = {"aten::eq", "aten::equal", "aten::max", "aten::min"}
# arguments with a default that the operator does not accept, or that is no example
ASKED_FOR = {"min", "rounding_mode"}


def overloads() -> Iterator[Any]:
    """The overloads of ATen that return tensors, without those that write into a given result."""
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::") and not any(argument.is_out for argument in schema.arguments):
            packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::"), None)
            overload = schema.overload_name or "default"
            if packet is not None and overload in packet.overloads():
                yield getattr(packet, overload)


POINTWISE = [overload for overload in overloads() if torch.Tag.pointwise in overload.tags]
NAMES = {overload._schema.name for overload in POINTWISE}
FUNCTIONAL = [
    overload for overload in POINTWISE
    if not overload._schema.is_mutable and overload._schema.name != "aten::equal"
    and any(isinstance(argument.type, torch.TensorType) for argument in overload._schema.arguments)
]  # fmt: skip


KINDS: list[tuple[Callable[..., torch.Tensor], float]] = [
    (positive, 0.5),
    (lambda *shape: ints(7, *shape), 1),
    (mask, 1),
]


def test_torch_still_tags() -> None:
    assert len(NAMES) > 200


def test_every_pointwise_operator_has_the_elementwise_rule() -> None:
    other = {str(overload) for overload in POINTWISE if find_rule(overload) is not rules["aten::clone"]}
    assert {name for name in other if f"aten::{name.split('.')[1]}" not in OWN_RULE} == set()


def test_so_has_what_writes_in_place() -> None:
    """Torch tags `aten::gelu` and not `aten::gelu_`."""
    missing = [
        str(overload) for overload in overloads()
        if f"aten::{plain_name(overload._schema.name)}" in NAMES and find_rule(overload) is None
    ]  # fmt: skip
    assert missing == []


def _called(overload: Any, tensor: Callable[..., torch.Tensor], number: float) -> Example:
    """A call with tensors of (3, 5), `number` for each number, and nothing for what has a default."""
    args, kwargs, count = [], {}, 0
    for argument in overload._schema.arguments:
        if argument.has_default_value() and argument.name not in ASKED_FOR:
            continue
        kind = str(argument.type)
        value = tensor(3, 5) if "Tensor" in kind else number if "number" in kind or kind == "float" else 1
        count += "Tensor" in kind
        if argument.kwarg_only:
            kwargs[argument.name] = "floor" if "str" in kind else value
        else:
            args.append(value)
    results = ["a b"] * len(overload._schema.returns)
    return Example(overload, f"{', '.join(['a b'] * count)} -> {', '.join(results)}", tuple(args), kwargs)


def _runs(of: Example) -> bool:
    try:
        of.result(of.inputs)
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("overload", FUNCTIONAL, ids=map(str, FUNCTIONAL))
def test_values_follow_a_permutation(overload: Any) -> None:
    of = next(of for kind, number in KINDS if _runs(of := _called(overload, kind, number)))
    found = Inferred(of)
    check_terms(found)
    check_permutation(found)
