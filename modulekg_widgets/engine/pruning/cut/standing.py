"""Receipts that stand: which were made on top of which, and how they come back whole from a copy or a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import count
from typing import Any
from weakref import WeakSet

import torch
from torch import nn

from modulekg_widgets.engine.errors import CutError
from modulekg_widgets.engine.torch_runtime.state import module_state

OURS = __name__.partition(".")[0] + "."  # the modules whose objects parts are made of
_numbers = count()
_standing: WeakSet[Any] = WeakSet()  # what a user let go of cannot be undone, and is in nobody's way


def enter(receipt: Any) -> int:
    """Note a receipt, and its place in the order in which receipts were made."""
    _standing.add(receipt)
    return next(_numbers)


def refuse_under_others(receipt: Any, way: str) -> None:
    """Raise `CutError` where a later receipt that stands is of the same tensors: it would not fit any more."""
    own = receipt.touched(way)
    later = [each for each in list(_standing) if each.number > receipt.number and not each.is_spent]
    above = [each for each in later if not own.isdisjoint(each.touched(way))]
    if above:
        last = max(above, key=lambda each: each.number)
        raise CutError(
            f"{last!r} was made after {receipt!r}, on the same tensors: undo that first, receipts go back in reverse "
            f"order; or delete that receipt, which gives it up, and call {way}() again"
        )


# ----------------------------------------------------------- copies and files


class Home:
    """Stands for the `__dict__` of a module in what is copied: that of the copied module is another one."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module


def packed(parts: tuple[Any, ...], modules: Iterable[nn.Module]) -> tuple[Any, ...]:
    """The parts of a receipt, ready to be copied together with these modules; what is given stays as it is."""
    return _changed(parts, {id(module_state(module)): Home(module) for module in modules}, {})


def unpacked(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """The parts of a receipt that was copied."""
    return _changed(parts, {}, {})


def _changed(value: Any, homes: Mapping[int, Home], seen: dict[int, tuple[Any, Any]]) -> Any:
    """A copy with homes in the places of dictionaries, or without homes: of what leads to one alone."""
    if isinstance(value, Home):
        return module_state(value.module)
    if id(value) in homes:
        return homes[id(value)]
    if isinstance(value, torch.Tensor | nn.Module | str | bytes | int | float | type):
        return value
    if id(value) not in seen:
        seen[id(value)] = value, value  # kept, so that its identity stays its own
        seen[id(value)] = value, _rebuilt(value, partial(_changed, homes=homes, seen=seen))
    return seen[id(value)][1]


def _rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, tuple | list):
        new = [change(part) for part in value]
        same = all(one is other for one, other in zip(new, value, strict=True))
        return value if same else getattr(type(value), "_make", type(value))(new)
    if isinstance(value, dict):
        changed = {key: change(part) for key, part in value.items()}
        return value if all(changed[key] is part for key, part in value.items()) else changed
    if isinstance(value, partial):
        args, keywords = change(value.args), change(value.keywords)
        return value if args is value.args and keywords is value.keywords else partial(value.func, *args, **keywords)
    if not type(value).__module__.startswith(OURS):
        return value
    held = {name: getattr(value, name) for name in _attributes(value)}
    after = change(held)
    if after is held:
        return value
    made = object.__new__(type(value))
    for name, part in after.items():
        object.__setattr__(made, name, part)
    return made


def _attributes(value: Any) -> list[str]:
    slots = (name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ()))
    own = [name for name in slots if not name.startswith("__") and hasattr(value, name)]
    return own + list(getattr(value, "__dict__", ()))
