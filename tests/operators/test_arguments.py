"""One reader of arguments: by position, keyword or default, and by the names of the operator that one is like."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import UnknownNameError
from modulekg_widgets.engine.operators.arguments import Arguments, OperatorCall, number_arguments, schema_reading
from modulekg_widgets.engine.operators.traits import traits_of
from modulekg_widgets.engine.operators.user_operators import UserOperator, user_operators

aten = torch.ops.aten


@torch.library.custom_op("mkgreads::norm", mutates_args=())
def _norm(w: Tensor, x: Tensor, sizes: list[int], *, eps: float = 0.5) -> Tensor:
    return torch.nn.functional.layer_norm(x, sizes, w, eps=eps)


@torch.library.custom_op("mkgreads::pool", mutates_args=())
def _pool(x: Tensor, size: int, stride: int = 2) -> Tensor:
    return torch.nn.functional.avg_pool2d(x, size, stride)


NORM, POOL = torch.ops.mkgreads.norm.default, torch.ops.mkgreads.pool.default
NAMES = {"input": "x", "normalized_shape": "sizes", "weight": "w"}


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_operators, "entries", user_operators.entries)


@pytest.mark.parametrize(
    ("args", "kwargs"), [(("x", [2], [0]), {}), (("x", [2]), {"padding": [0]}), (("x",), {"kernel_size": [2]})]
)
def test_position_keyword_and_default_read_alike(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    call = Arguments(aten.avg_pool2d.default, args, kwargs)
    assert (call["self"], call["kernel_size"]) == ("x", [2])
    assert call["ceil_mode"] is False
    assert call["divisor_override"] is None
    assert call.has("stride")
    assert not call.has("groups")
    assert call.get("groups", 7) == 7
    with pytest.raises(UnknownNameError, match="has no argument 'groups'"):
        call["groups"]


def test_the_names_are_those_of_the_operator_that_one_is_like() -> None:
    mk.axis_rule("mkgreads::norm", like="aten::layer_norm", args=NAMES)
    call = Arguments(NORM, ("w", "x", [4]), {"eps": 2.0})
    assert [call[name] for name in ("input", "normalized_shape", "weight", "eps")] == ["x", [4], "w", 2.0]
    assert call["bias"] is None
    assert call["cudnn_enable"] is True
    assert not call.has("sizes")
    assert call.native_arguments() == (["x", [4], "w", None, 2.0, True], {})
    assert call.with_values({"normalized_shape": [3], "eps": 1.0}) == (("w", "x", [3]), {"eps": 1.0})
    assert call.may_change("weight")
    assert not call.may_change("bias")
    assert Arguments(NORM, ("w", "x", [4]), {})["eps"] == 0.5  # its own default


def test_what_has_the_same_place_needs_no_entry() -> None:
    mk.axis_rule("mkgreads::pool", like="aten::avg_pool2d")
    call = Arguments(POOL, ("x", 3), {})
    assert (call["self"], call["kernel_size"], call["stride"], call["padding"]) == ("x", [3], [2], [0, 0])
    assert call.with_values({"kernel_size": [5]}) == (("x", 5), {})


def test_a_change_of_mind_holds_at_once() -> None:
    assert schema_reading(POOL).is_native
    user_operators.replace(UserOperator(like="aten::avg_pool2d"), ["mkgreads::pool"])
    assert not schema_reading(POOL).is_native
    assert schema_reading(POOL).overload is aten.avg_pool2d.default
    user_operators.replace(UserOperator(like="aten::relu"), ["mkgreads::pool"])
    assert schema_reading(POOL).overload is aten.relu.default
    assert traits_of(POOL).pointwise
    user_operators.entries = {key: user_operators.entries[key] for key in user_operators if key != "mkgreads::pool"}
    assert schema_reading(POOL).is_native
    assert not traits_of(POOL).pointwise


def test_the_overload_that_fits_is_taken() -> None:
    @torch.library.custom_op("mkgreads::largest", mutates_args=())
    def largest(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        found = x.max(dim)
        return found.values, found.indices

    mk.axis_rule("mkgreads::largest", like="aten::max")
    assert schema_reading(torch.ops.mkgreads.largest.default).overload is aten.max.dim


def test_numbers_to_compute_with_are_told_from_sizes() -> None:
    @torch.library.custom_op("mkgreads::scaled", mutates_args=())
    def scaled(by: int, x: Tensor) -> Tensor:
        return x * by

    overload = torch.ops.mkgreads.scaled.default
    assert number_arguments(overload) == {"x"}
    mk.axis_rule("mkgreads::scaled", like="aten::mul", args={"self": "x", "other": "by"})
    assert schema_reading(overload).overload in (aten.mul.Scalar, aten.mul.Tensor)
    assert number_arguments(overload) == {"by", "x"}


class Recorded:
    overload = aten.relu.default
    args, kwargs, inputs, result, where = (), {}, [], None, ""


def test_a_call_knows_its_plain_name() -> None:
    assert OperatorCall(Recorded()).name == "relu"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("like", "args", "message"),
    [
        ("aten::layer_norm", {"wieght": "w"}, "aten::layer_norm has no argument 'wieght': did you mean 'weight'"),
        ("aten::layer_norm", {"weight": "ww"}, "mkgreads::norm has no argument 'ww'"),
        ("aten::layer_norm", {"weight": "w", "bias": "w"}, "'w' stands for several arguments"),
        ("aten::layer_norm", {"weight": "w", "normalized_shape": "sizes", "bias": "x"}, "is the 'input'"),
        ("aten::layer_norm", {"weight": 3}, "theirs → yours"),
        (None, {"weight": "w"}, "name that operator with like="),
        ("aten::layer_nrom", {"weight": "w"}, "has no rule"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_registered(like: Any, args: Any, message: str) -> None:
    before = dict(user_operators.entries)
    with pytest.raises(UnknownNameError, match=message):
        mk.axis_rule("mkgreads::norm", like=like, args=args)
    assert user_operators.entries == before
    with pytest.raises(UnknownNameError, match="define it first"):
        mk.axis_rule("mkgreads::nowhere", like="aten::layer_norm", args={"weight": "w"})
    assert user_operators.entries == before
