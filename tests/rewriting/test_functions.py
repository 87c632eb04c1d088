"""One name for all ways to call a function."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import modulekg_widgets as mk
from modulekg_widgets.engine.rewriting.function_modules.function_module import checked_function_name, function_name

x = torch.ones(2, 2)


@torch.library.custom_op("mkg_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


SAME: dict[str, list[Any]] = {
    "relu": [F.relu, F.relu_, torch.relu, torch.relu_, torch.Tensor.relu, torch.Tensor.relu_, torch.ops.aten.relu,
             torch.ops.aten.relu_.default, x.relu],
    "add": [torch.add, torch.Tensor.add, torch.Tensor.add_, torch.Tensor.__add__, torch.Tensor.__radd__,
            torch.Tensor.__iadd__, operator.add, operator.iadd, torch.ops.aten.add.Tensor],
    "sub": [torch.sub, torch.subtract, torch.rsub, operator.sub, torch.Tensor.__rsub__],
    "div": [torch.div, torch.true_divide, torch.divide, operator.truediv, torch.Tensor.__rtruediv__],
    "matmul": [torch.matmul, operator.matmul, torch.Tensor.__matmul__, torch.Tensor.__rmatmul__],
    "cat": [torch.cat, torch.concat, torch.concatenate],
    "getitem": [operator.getitem, torch.Tensor.__getitem__],
    "softmax": [F.softmax, torch.softmax, torch.Tensor.softmax],
    "max_pool2d": [F.max_pool2d, torch.max_pool2d, F.max_pool2d_with_indices],
    "transpose": [torch.transpose, torch.swapaxes, torch.Tensor.transpose_],
    "twice": [twice, torch.ops.mkg_tests.twice, torch.ops.mkg_tests.twice.default],
    "invert": [operator.invert, torch.Tensor.__invert__],
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_one_name(name: str) -> None:
    assert {function_name(function) for function in SAME[name]} == {name}
    assert {checked_function_name(function) for function in SAME[name]} == {name}


def test_functions_that_differ_have_different_names() -> None:
    assert len({function_name(f) for f in (F.relu, F.relu6, F.elu, F.selu, F.gelu, torch.rsqrt, torch.sqrt)}) == 7
    assert function_name(torch.fft.fft) != function_name(torch.fft.ifft)
    assert function_name(torch.linalg.norm) != function_name(F.normalize)


def relu(x: torch.Tensor) -> torch.Tensor:
    return x


@pytest.mark.parametrize("what", [relu, len, object(), "relu", lambda x: x])
def test_others_are_refused(what: Any) -> None:
    with pytest.raises(mk.ModuleKGError, match="neither a module class nor a function of torch"):
        checked_function_name(what)
