"""What a forward pass writes to classes, and past them where no copy of a module has it for itself, put back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import is_
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.torch_runtime.past_self import CONTAINERS, class_code, is_users
from modulekg_widgets.engine.torch_runtime.private import disable_current_modes
from modulekg_widgets.engine.torch_runtime.restore import KeptBytes
from modulekg_widgets.engine.torch_runtime.threads import OthersWork


@contextmanager
def classes_kept(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Put back attributes of the users' classes, and what containers and tensors behind their code hold.

    Unless other threads compute: they may have written it, as training does that runs the same code.
    """
    classes = {base for cls in set(map(type, modules)) for base in cls.__mro__ if is_users(base.__module__)}
    kept = [(cls, _attributes(cls)) for cls in classes]
    behind = class_code(map(type, modules)).behind_classes() if kept else []
    behind += [value for _, own in kept for value in own.values()]
    held = [(value, _contents(value)) for value in behind if type(value) in CONTAINERS]
    with disable_current_modes():
        tensors = KeptBytes(value for value in behind if isinstance(value, torch.Tensor))
    others = OthersWork() if kept else None
    try:
        yield
    finally:
        changed = [(cls, own) for cls, own in kept if not _same(_attributes(cls), own)]
        filled = [(value, before) for value, before in held if not _same(_contents(value), before)]
        with disable_current_modes():
            if (changed or filled or tensors.have_changed()) and not others:
                tensors.put_back()
                for cls, own in changed:
                    _put_back(cls, own)
                for value, before in filled:
                    value.clear()
                    (value.update if isinstance(value, dict | set) else value.extend)(before)


def _attributes(cls: type) -> dict[str, Any]:
    return {name: value for name, value in vars(cls).copy().items() if not name.startswith("__")}


def _contents(value: Any) -> Any:
    return value.copy() if isinstance(value, dict) else list(value.copy())


def _same(now: Any, before: Any) -> bool:
    if len(now) != len(before) or not all(map(is_, now, before)):
        return False
    return not isinstance(before, dict) or all(map(is_, now.values(), before.values()))


def _put_back(cls: type, own: dict[str, Any]) -> None:
    now = _attributes(cls)
    for name in now.keys() - own.keys():
        type.__delattr__(cls, name)
    for name, value in own.items():
        if now.get(name, cls) is not value:
            type.__setattr__(cls, name, value)
