"""Makes modules of all functions that torch's own tests know; prints what went wrong for each, as JSON.

A program of its own: to import torch's table freezes flags of its backends and patches its classes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves

import modulekg_widgets as mk

# they ask, and give no tensor
QUESTIONS = {"allclose", "broadcast_shapes", "equal", "item"}
# attributes of a tensor, as x.T
ATTRIBUTES = {"H", "T", "mH", "mT"}
# what they give is what lies in memory
UNDEFINED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
# written in Python over several functions, which become modules one by one
SEVERAL = ("masked.", "signal.windows.", "linalg.pinv", "max_pool2d_with_indices_backward", "pca_low", "svd_low")


class Does(nn.Module):
    """Calls one function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def problems(info: Any) -> Iterator[str]:
    """What is wrong with the module of one function."""
    torch.manual_seed(0)
    sample = next(iter(info.sample_inputs("cpu", torch.float32)))
    model, args = Does(info.op), (sample.input, *sample.args)
    expected = results(model, args, sample.kwargs)
    with mk.rewrite.function_modules(model, args, sample.kwargs) as functions:
        found = results(model, args, sample.kwargs)
        if (len(functions) == 0) != (info.name in QUESTIONS | ATTRIBUTES):
            yield f"{len(functions)} modules"
        if functions and not info.name.startswith(SEVERAL):
            writes = info.name.endswith("_") and not info.name.endswith("__")  # into a copy, which is made first
            if len(functions) != 1 + writes:
                yield f"modules {functions.names}"
            named = getattr(info.op, "__name__", "") != "<lambda>"
            if named and not writes and mk.rewrite.find(model, info.op) != functions.names:
                yield f"finds {mk.rewrite.find(model, info.op)} of {functions.names}"
    if info.name not in UNDEFINED:
        if [type(value) for value in found] != [type(value) for value in expected]:
            yield f"gives {found}"
        for now, before in zip(found, expected, strict=True):
            torch.testing.assert_close(now, before, rtol=0, atol=0, equal_nan=True)
    if mk.rewrite.is_active(model) or list(model.children()):
        yield "stays active"


def results(model: nn.Module, args: Any, kwargs: Any) -> list[Any]:
    """What a model returns, drawn from one seed."""
    torch.manual_seed(1)
    return [value for value in tree_leaves(model(*args, **kwargs)) if value is not None]


def described(info: Any) -> list[str]:
    """The problems of a function, and an error as one of them."""
    try:
        return list(problems(info))
    except Exception as error:  # noqa: BLE001 - each function shall have its turn
        return [f"{type(error).__name__}: {error}"]


if __name__ == "__main__":
    every = [info for info in op_db if torch.float32 in info.dtypes and not info.name.startswith("jiterator")]
    print(json.dumps({f"{info.name} {number}": described(info) for number, info in enumerate(every)}))
