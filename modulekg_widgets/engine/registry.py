"""One small registry, used wherever users may add their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from modulekg_widgets.engine.errors import DuplicateNameError, NotAFunctionError, UnknownNameError, nearest, shown

Entry = TypeVar("Entry", bound=Callable[..., object])
SESSION = "__main__"  # the module of what is typed into a notebook


def is_new_version(old: str | None, new: str | None) -> bool:
    """Whether what module `new` registers replaces what module `old` did: a notebook's cell may run again."""
    return old == new == SESSION


def check_function(entry: object, what: str) -> None:
    """Raise `NotAFunctionError` for what cannot be called."""
    if not callable(entry):
        raise NotAFunctionError(
            f"{what} is a {shown(type(entry).__name__)}: put the decorator over a function or class"
        )


class Registry(Generic[Entry]):
    """Functions by name; a name is registered once, the same function or what a notebook typed as often as it runs.

    An unknown name is an error that names the nearest.
    """

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._entries: dict[str, Entry] = {}

    def register(self, *names: str) -> Callable[[Entry], Entry]:
        """A decorator that registers a function under all of `names` or none.

        Raises `DuplicateNameError` for a taken one.
        """

        def decorate(entry: Entry) -> Entry:
            self.add(dict.fromkeys(names, entry))
            return entry

        return decorate

    def add(self, entries: Mapping[str, Entry]) -> None:
        """Register all of `entries` or none; raises `DuplicateNameError` for a taken name, `NotAFunctionError`."""
        for name, entry in entries.items():
            check_function(entry, f"the {self._subject} {shown(name)!r}")
            old = self._entries.get(name)
            if old is not None and old is not entry and not is_new_version(_home(old), _home(entry)):
                raise DuplicateNameError(
                    f"the {self._subject} {shown(name)!r} is registered already: choose another name"
                )
        self._entries.update(entries)

    def replace(self, entry: Entry, names: Iterable[str]) -> None:
        """Register `entry` under `names`, taken or not: for who has made sure that it may."""
        self._entries.update(dict.fromkeys(names, entry))

    def __getitem__(self, name: str) -> Entry:
        try:
            return self._entries[name]
        except (KeyError, TypeError):
            hint = nearest(str(name), self._entries)
            raise UnknownNameError(f"there is no {self._subject} {shown(str(name))!r}: {hint}") from None

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _home(entry: Callable[..., object]) -> str | None:
    return getattr(entry, "__module__", None)
