"""Deprecated public names: a decorator that warns, with the version of removal and the replacement."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
DEPRECATED: list[Deprecation] = []  # all of them; a test fails as soon as a version is reached in which one was to go


class ModuleKGDeprecationWarning(FutureWarning):
    """A name that a coming version removes; shown to users by default, as every FutureWarning."""


@dataclass(frozen=True, slots=True)
class Deprecation:
    """A deprecated name, the versions of its deprecation and removal, and its replacement."""

    name: str
    since: str
    removed_in: str
    instead: str

    def __str__(self) -> str:
        return (
            f"{self.name} is deprecated since version {self.since} and will be removed in version {self.removed_in}: "
            f"write {self.instead}"
        )


def deprecated(name: str, *, since: str, removed_in: str, instead: str) -> Callable[[Decorated], Decorated]:
    """Mark a public function or method, named as users write it: each call warns, and its docstring says so.

    Examples
    --------
    >>> @deprecated("mk.old", since="0.2.0", removed_in="0.4.0", instead="mk.new")
    ... def old(): return 1
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as seen:
    ...     warnings.simplefilter("always")
    ...     _ = old()
    >>> print(seen[0].message)
    mk.old is deprecated since version 0.2.0 and will be removed in version 0.4.0: write mk.new
    >>> _ = DEPRECATED.pop()
    """
    note = Deprecation(name, since, removed_in, instead)
    DEPRECATED.append(note)

    def mark(function: Decorated) -> Decorated:
        @functools.wraps(function)
        def warned(*args: Any, **kwargs: Any) -> Any:
            warnings.warn(str(note), ModuleKGDeprecationWarning, stacklevel=2)
            return function(*args, **kwargs)

        sentence, *rest = (inspect.getdoc(function) or "").split("\n", 1)
        warned.__doc__ = "\n".join([sentence, "", f".. deprecated:: {since}", f"   {note}.", *rest])
        return warned  # type: ignore[return-value]

    return mark
