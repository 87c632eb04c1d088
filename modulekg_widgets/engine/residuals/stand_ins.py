"""Placeholders for removed modules whose container keeps their position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.torch_runtime.modules import registry
from modulekg_widgets.engine.torch_runtime.private import BUFFERS, PARAMETERS
from modulekg_widgets.engine.torch_runtime.pytree import Args, Kwargs

Result = str | None | tuple[Any, ...]  # OUTPUT, None, or ("argument", position, keyword), or ("tuple" or "list", …)
OUTPUT, ARGUMENT, TUPLE, LIST = "output", "argument", "tuple", "list"


@dataclass(frozen=True, slots=True)
class Argument:
    """The argument of a module call, by position or by keyword."""

    position: int | None
    keyword: str | None

    def value_in(self, args: Args, kwargs: Kwargs) -> Any:
        if self.keyword is not None and self.keyword in kwargs:
            return kwargs[self.keyword]
        return args[0 if self.position is None else self.position]


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A placeholder that returns an input, or zeros of its shape, in the structure of the original result."""

    gives_zeros: bool
    argument: Argument
    result: Result = OUTPUT

    def module(self, original: nn.Module) -> nn.Module:
        """The placeholder module, with the plain attributes of the original."""
        made = (Zeros if self.gives_zeros else Unchanged)(self.argument, self.result)
        own = vars(made)
        for name, value in vars(original).items():
            if type(value) in (int, float, bool, str) and name not in own:
                own[name] = value
        for kind in (PARAMETERS, BUFFERS):
            for name in registry(vars(original), kind):  # as a layer without a bias has it: code that looks finds none
                own[kind].setdefault(name, None)
        return made.train(original.training)


class _PlaceholderModule(nn.Module):
    def __init__(self, argument: Argument, result: Result) -> None:
        super().__init__()
        self._argument = argument
        self._result = result

    def _fill_result(self, result: Result, output: torch.Tensor, args: Args, kwargs: Kwargs) -> Any:
        if result is None:
            return None
        if result == OUTPUT:
            return output
        parts: tuple[Any, ...] = result[1:] if isinstance(result, tuple) else ()
        if result[0] == ARGUMENT:
            return Argument(*parts).value_in(args, kwargs)
        return (tuple if result[0] == TUPLE else list)(self._fill_result(part, output, args, kwargs) for part in parts)


class Unchanged(_PlaceholderModule):
    """Placeholder for a removed residual block: it returns its input."""

    def forward(self, *args: object, **kwargs: object) -> Any:
        return self._fill_result(self._result, self._argument.value_in(args, kwargs), args, kwargs)


class Zeros(_PlaceholderModule):
    """Placeholder for a removed residual branch: it returns zeros."""

    def forward(self, *args: object, **kwargs: object) -> Any:
        zeros = torch.zeros_like(self._argument.value_in(args, kwargs))
        return self._fill_result(self._result, zeros, args, kwargs)
