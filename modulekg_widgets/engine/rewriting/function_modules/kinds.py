"""What is looked for: a class of modules, a function, or one of several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import UnionType
from typing import Any

from torch import nn

from modulekg_widgets.engine.errors import RewritingError, shown
from modulekg_widgets.engine.identity.walk import nominal_class
from modulekg_widgets.engine.rewriting.function_modules.function_module import FunctionModule
from modulekg_widgets.engine.rewriting.function_modules.functions import checked_function, function_name

Test = Callable[[nn.Module], bool]


def test_of(what: Any, include_super_class: bool) -> Test:
    """Whether a module is of a class, with its subclasses or exactly, or calls a function; of a tuple: one of them.

    Raises `RewritingError` for anything else.
    """
    if isinstance(what, UnionType):
        what = what.__args__
    if isinstance(what, tuple | list):
        if not what:
            raise RewritingError("got an empty list: name at least one module class or function to look for")
        tests = [test_of(one, include_super_class) for one in what]
        return lambda module: any(test(module) for test in tests)
    if not isinstance(what, type):
        return _calls(checked_function(what))
    if _can_be_module(what):
        return _of_class(what) if include_super_class else lambda module: nominal_class(module) is what
    raise RewritingError(f"no module is of the class {shown(what.__name__)}: look for a subclass of torch.nn.Module")


def functions_in(pattern: Sequence[Any]) -> bool:
    """Whether a pattern asks for functions."""
    return any(
        functions_in(one) if isinstance(one, tuple | list) else not isinstance(one, type | UnionType) for one in pattern
    )


def _of_class(cls: type) -> Test:
    return lambda module: issubclass(type(module), cls)


def _calls(name: str) -> Test:
    return lambda module: type(module) is FunctionModule and function_name(module.function) == name


def _can_be_module(cls: type) -> bool:
    """Whether a class is one of modules, or stands beside `nn.Module` among the bases of one."""
    return issubclass(cls, nn.Module) or any(_can_be_module(sub) for sub in type.__subclasses__(cls))
