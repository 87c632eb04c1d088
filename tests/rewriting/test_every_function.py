"""Every function that torch's own tests know becomes a module, and gives what it gave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves

import modulekg_widgets as mk
from modulekg_widgets.engine.rewriting.functions import function_name

# they ask, and give no tensor
QUESTIONS = {"allclose", "broadcast_shapes", "equal", "item"}
# attributes of a tensor, as x.T
ATTRIBUTES = {"H", "T", "mH", "mT"}
# what they give is what lies in memory
UNDEFINED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
# written in Python over several functions, which become modules one by one
SEVERAL = (
    "masked.",
    "signal.windows.",
    "linalg.pinv",
    "max_pool2d_with_indices_backward",
    "pca_lowrank",
    "svd_lowrank",
)


class Does(nn.Module):
    """Calls one function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def samples() -> Iterator[Any]:
    for number, info in enumerate(op_db):
        if torch.float32 in info.dtypes and not info.name.startswith("jiterator"):
            yield pytest.param(info, id=f"{info.name}-{number}")


@pytest.mark.parametrize("info", samples())
def test_a_function(info: Any) -> None:
    torch.manual_seed(0)
    sample = next(iter(info.sample_inputs("cpu", torch.float32)))
    model, args = Does(info.op), (sample.input, *sample.args)
    expected = results(model, args, sample.kwargs)
    with mk.rewrite.function_modules(model, args, sample.kwargs) as functions:
        found = results(model, args, sample.kwargs)
        assert (len(functions) == 0) == (info.name in QUESTIONS | ATTRIBUTES)
        if functions and not info.name.startswith(SEVERAL):
            assert len(functions.names) == 1 + (
                info.name.rstrip("_") + "_" == info.name
            )  # a copy is what it writes into
        if getattr(info.op, "__name__", "") != "<lambda>" and len(functions) == 1 and not info.name.startswith(SEVERAL):
            assert mk.rewrite.find(model, info.op) == functions.names, function_name(info.op)
    if info.name not in UNDEFINED:
        assert [type(value) for value in found] == [type(value) for value in expected]
        for now, before in zip(found, expected, strict=True):
            torch.testing.assert_close(now, before, rtol=0, atol=0, equal_nan=True)


def results(model: nn.Module, args: Any, kwargs: Any) -> list[Any]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return [value for value in tree_leaves(model(*args, **kwargs)) if value is not None]


def test_the_table_is_whole() -> None:
    names = {info.name for info in op_db}
    assert names >= QUESTIONS | ATTRIBUTES | UNDEFINED
    assert len(names) > 500
