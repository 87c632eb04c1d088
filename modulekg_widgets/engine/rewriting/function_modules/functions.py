"""What a function is called, however it was reached: `F.relu`, `x.relu_()`, `x + y`, an operator of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from modulekg_widgets.engine.errors import RewritingError, shown
from modulekg_widgets.engine.torch_runtime.private import CUSTOM_NAME, PACKET_NAME

Function = Callable[..., Any]

# further names of the same function, as torch documents them
_ALIASES = {
    "absolute": "abs", "clip": "clamp", "concat": "cat", "concatenate": "cat", "divide": "div", "eq_": "eq",
    "greater": "gt", "greater_equal": "ge", "imatmul": "matmul", "less": "lt", "less_equal": "le", "multiply": "mul",
    "negative": "neg", "not_equal": "ne", "row_stack": "vstack", "rsub": "sub", "subtract": "sub",
    "swapaxes": "transpose", "swapdims": "transpose", "true_divide": "div", "truediv": "div",
    "upsample": "interpolate", "upsample_bilinear": "interpolate", "upsample_nearest": "interpolate",
}  # fmt: skip
_ROOTS = ("torch", "torchvision", "_operator", "math")


def function_name(function: Any) -> str:
    """The name that all ways to call a function share, as `relu`, `add` or `getitem`; without the namespace."""
    operator = getattr(function, CUSTOM_NAME, None) or getattr(function, PACKET_NAME, None)  # custom operators
    name = str(operator or getattr(function, "__name__", ""))
    name = name.rpartition("::")[2].partition(".")[0]
    if name.startswith("__") and name.endswith("__"):
        name = _without_side(name.strip("_"))
    elif getattr(function, "__module__", None) == "_operator":
        name = _without_side(name)
    else:
        name = name.rstrip("_").removesuffix("_with_indices") or name
    return _ALIASES.get(name, name)


def _without_side(name: str) -> str:
    """`add` for `radd` and `iadd`: the method of an operator that stands right, or that writes in place."""
    plain = name[1:]
    return plain if name[:1] in ("r", "i") and plain in _BINARY else name


_BINARY = {
    "add", "sub", "mul", "div", "matmul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift",
}  # fmt: skip


def checked_function(function: Any) -> str:
    """The name of a function of torch or of an operator of one's own; raises `RewritingError` for any other object."""
    home = getattr(function, "__module__", None) or ""
    of_tensor = getattr(function, "__objclass__", None) or type(getattr(function, "__self__", None))
    known = home.partition(".")[0] in _ROOTS or (issubclass(torch.Tensor, of_tensor) and of_tensor is not object)
    custom = getattr(function, CUSTOM_NAME, None) or getattr(function, PACKET_NAME, None)
    if callable(function) and (known or custom) and function_name(function):
        return function_name(function)
    what = getattr(function, "__qualname__", None) or repr(function)
    raise RewritingError(
        f"{shown(str(what))} is neither a module class nor a function of torch: look for classes as nn.Conv2d, for "
        "functions as F.relu or torch.add, or for an operator made by torch.library.custom_op"
    )
