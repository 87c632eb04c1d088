"""Modules whose forward is a given function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn


class Lambda(nn.Module):
    """Children and other attributes by name, and a given function of the module and its inputs as forward."""

    def __init__(self, function: Callable[..., Any], **attributes: Any) -> None:
        super().__init__()
        for name, value in attributes.items():
            setattr(self, name, value)
        self.__dict__["function"] = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)
