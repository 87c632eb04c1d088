"""All or nothing: a list of writes, each of which can be taken back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import setitem
from typing import Any, TypeVar

from torch import nn

from modulekg_widgets.engine.errors import ModelInUseError, shown
from modulekg_widgets.engine.torch_runtime.threads import user_of, worker_on

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Write:
    """One thing that changes; `put` sets it as a whole, so it may run twice, and after a run that broke off."""

    put: Callable[[Any], object]
    before: Any
    after: Any


def entry(container: Any, key: Any, after: Any) -> Write:
    """An item of a dictionary or list that becomes `after`; it has one now."""
    return Write(partial(setitem, container, key), container[key], after)


def attribute(owner: Any, name: str, after: Any) -> Write:
    """An attribute that becomes `after`; it has a value now."""
    return Write(partial(setattr, owner, name), getattr(owner, name), after)


def contents(container: Any, after: Any) -> Write:
    """A dictionary or list that will hold exactly what `after` holds."""
    return Write(partial(_refill, container), container.copy(), after)


def _refill(container: Any, after: Any) -> None:
    container.clear()
    (container.update if isinstance(container, dict) else container.extend)(after)


def commit(writes: Sequence[Write], result: T, modules: Sequence[nn.Module] = ()) -> T:
    """Do all the writes and give `result`; where anything fails, an interrupt included, all are taken back.

    Raises `ModelInUseError` where another thread runs or trains one of `modules`, before and also meanwhile.
    Nothing may follow the call of this function, and the call is a plain one, after which Python looks for no signals:
    the last thing that can fail is inside its `try`.
    """
    refuse_in_use(modules)
    try:
        for write in writes:
            write.put(write.after)
        _refuse(modules, user_of(modules))
        return result
    except BaseException:
        _take_back(writes)
        raise


def refuse_in_use(modules: Sequence[nn.Module]) -> None:
    """Raise `ModelInUseError` where another thread runs or trains one of `modules`."""
    _refuse(modules, worker_on(modules))


def _refuse(modules: Sequence[nn.Module], user: str | None) -> None:
    if user is not None:
        name = shown(type(modules[0]).__name__)
        raise ModelInUseError(
            f"{name} cannot be changed now: {user}. Wait for that thread, or stop it; all is as it was"
        )


def _take_back(writes: Sequence[Write]) -> None:
    """Write what was before, also where a write fails; interrupts wait, for a half-restored model is unusable."""
    whole = False
    while not whole:
        try:
            for write in writes:
                with suppress(Exception):
                    write.put(write.before)
            whole = True
        except KeyboardInterrupt:
            continue
