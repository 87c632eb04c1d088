"""The module that stands for one function call, and tests for classes and functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.errors import RewritingError, printable
from modulekg_widgets.engine.identity.walk import nominal_class
from modulekg_widgets.engine.torch_runtime.private import CUSTOM_NAME, PACKET_NAME
from modulekg_widgets.engine.torch_runtime.pytree import Args, Function
from modulekg_widgets.engine.tracing.source import Source

# -------------------- Canonical names of functions, as `relu` for `F.relu` and `x.relu_()`, or `add` for `x + y`


# further names of the same function, as torch documents them
_ALIASES = {
    "absolute": "abs", "clip": "clamp", "concat": "cat", "concatenate": "cat", "divide": "div", "eq_": "eq",
    "greater": "gt", "greater_equal": "ge", "imatmul": "matmul", "less": "lt", "less_equal": "le", "multiply": "mul",
    "negative": "neg", "not_equal": "ne", "row_stack": "vstack", "rsub": "sub", "subtract": "sub",
    "swapaxes": "transpose", "swapdims": "transpose", "true_divide": "div", "truediv": "div",
    "upsample": "interpolate", "upsample_bilinear": "interpolate", "upsample_nearest": "interpolate",
}  # fmt: skip
_ROOTS = ("torch", "torchvision", "_operator", "math")


def function_name(function: object) -> str:
    """Returns the common name of a function in all its forms, as `relu`, `add` or `getitem`."""
    operator = getattr(function, CUSTOM_NAME, None) or getattr(function, PACKET_NAME, None)  # custom operators
    name = str(operator or getattr(function, "__name__", ""))
    name = name.rpartition("::")[2].partition(".")[0]
    if name.startswith("__") and name.endswith("__"):
        name = _without_operator_prefix(name.strip("_"))
    elif getattr(function, "__module__", None) == "_operator":
        name = _without_operator_prefix(name)
    else:
        name = name.rstrip("_").removesuffix("_with_indices") or name
    return _ALIASES.get(name, name)


def _without_operator_prefix(name: str) -> str:
    """Removes the prefix of reflected and in-place operators: `add` for `radd` and `iadd`."""
    plain = name[1:]
    return plain if name[:1] in ("r", "i") and plain in _BINARY else name


_BINARY = {
    "add", "sub", "mul", "div", "matmul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift",
}  # fmt: skip


def checked_function_name(function: object) -> str:
    """The name of a function of torch or of an operator of one's own; raises `RewritingError` for any other object."""
    home = getattr(function, "__module__", None) or ""
    of_tensor = getattr(function, "__objclass__", None) or type(getattr(function, "__self__", None))
    known = home.partition(".")[0] in _ROOTS or (issubclass(torch.Tensor, of_tensor) and of_tensor is not object)
    custom = getattr(function, CUSTOM_NAME, None) or getattr(function, PACKET_NAME, None)
    if callable(function) and (known or custom) and function_name(function):
        return function_name(function)
    what = getattr(function, "__qualname__", None) or repr(function)
    raise RewritingError(
        f"{printable(str(what))} is neither a module class nor a function of torch: look for classes as nn.Conv2d, for "
        "functions as F.relu or torch.add, or for an operator made by torch.library.custom_op"
    )


# ----------------------------------------


@dataclass(frozen=True)
class ArgumentLayout:
    """A placeholder for a tensor in a recorded call: shape and dtype."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    held: bool = False  # a parameter or buffer of the module that calls

    def empty(self) -> torch.Tensor:
        """A tensor of this layout that has no data."""
        return torch.empty(self.shape, dtype=self.dtype, device="meta")


@dataclass(frozen=True, eq=False)
class CallSite:
    """The place of a function call in a forward: source line, and how often that line called it before."""

    name: str  # among the function modules of its owner
    function: Function
    source: Source
    index: int
    args: Args  # of the recorded call, with layouts for tensors
    kwargs: Mapping[str, object]
    result: object
    is_side_effect: bool = False  # what it returns is not used, what it writes is

    def __deepcopy__(self, memo: object) -> CallSite:
        return self  # it says where code stands, which copies share

    def __str__(self) -> str:
        again = f", call {self.index + 1}" if self.index else ""
        return f"{function_name(self.function)} at {self.source}{again}"


class FunctionModule(nn.Module):
    """A function that a forward calls, as a module with the same arguments and results.

    Attributes
    ----------
    site : CallSite
        Where the forward calls it, with the layouts of the recorded call.
    function : callable
        The function that is called.
    source : Source
        The line that calls it.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> import torch
    >>> class Double(torch.nn.Module):
    ...     def forward(self, x):
    ...         return torch.relu(x) * 2
    >>> with mk.rewrite.function_modules(Double(), torch.ones(2)) as functions:
    ...     function = functions.modules["function_modules.relu_0"]
    ...     print(function.function.__name__, function(torch.tensor([-1.0, 1.0])))
    relu tensor([0., 1.])
    """

    def __init__(self, site: CallSite) -> None:
        super().__init__()
        self.site = site

    @property
    def function(self) -> Function:
        """The function that is called."""
        return self.site.function

    @property
    def source(self) -> Source:
        """The line that calls it."""
        return self.site.source

    def forward(self, *args: object, **kwargs: object) -> Any:
        return self.site.function(*args, **kwargs)

    def extra_repr(self) -> str:
        return str(self.site)


# ---------------------------------------- what is looked for: a class of modules, a function, or one of several

ModuleTest = Callable[[nn.Module], bool]


def module_matcher(what: object, include_super_class: bool) -> ModuleTest:
    """Returns a test for modules of a class (or of its subclasses), or for function modules of a function.

    Raises `RewritingError` for anything else.
    """
    if isinstance(what, UnionType):
        what = what.__args__
    if isinstance(what, tuple | list):
        if not what:
            raise RewritingError("got an empty list: name at least one module class or function to look for")
        tests = [module_matcher(one, include_super_class) for one in what]
        return lambda module: any(test(module) for test in tests)
    if not isinstance(what, type):
        return _calls(checked_function_name(what))
    if _can_be_module(what):
        return _of_class(what) if include_super_class else lambda module: nominal_class(module) is what
    raise RewritingError(
        f"no module is of the class {printable(what.__name__)}: look for a subclass of torch.nn.Module"
    )


def has_functions(pattern: Sequence[object]) -> bool:
    """True if a pattern contains functions."""
    return any(
        has_functions(one) if isinstance(one, tuple | list) else not isinstance(one, type | UnionType)
        for one in pattern
    )


def _of_class(cls: type) -> ModuleTest:
    return lambda module: issubclass(type(module), cls)


def _calls(name: str) -> ModuleTest:
    return lambda module: type(module) is FunctionModule and function_name(module.function) == name


def _can_be_module(cls: type) -> bool:
    """True if the class is a module class, or a mixin of one."""
    return issubclass(cls, nn.Module) or any(_can_be_module(sub) for sub in type.__subclasses__(cls))
