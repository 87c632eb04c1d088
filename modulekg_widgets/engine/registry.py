"""Registry of functions and classes by name or by class: the table behind every extension decorator.

For `@mk.metric`, `@mk.axis_rule`, `@mk.adapter`, `@mk.importance`, `@mk.exporter`, `@mk.file_reader` and internal
tables. A key is registered once; only code of `__main__` may register it again, as a notebook cell that is run twice.
Look-up by name raises `UnknownNameError` with the closest names; `of_class` follows the MRO. Registration is all or
nothing: of several keys either all are new or none is added. Not for state that changes at run time.

    exporters: Registry[Exporter] = Registry("exporter")
    @exporters.register("dot", "gv")
    def write_dot(graph): ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from modulekg_widgets.engine.errors import (
    DuplicateNameError,
    NotAFunctionError,
    UnknownNameError,
    a_type,
    closest_match_hint,
    printable,
)

Entry = TypeVar("Entry", bound=Callable[..., object])
Key = str | type
SESSION_MODULE = "__main__"  # the module of what is typed into a notebook


class _Registered(NamedTuple):
    entry: Any
    home: str | None  # the module that registered it


class Registry(Generic[Entry]):
    """Functions by name or by class; a key is registered once, or as often as the cell of a notebook runs.

    An unknown name is an error that names the nearest. `taken` is the message for a key that is taken.
    """

    def __init__(self, subject: str, duplicate_message: str | None = None) -> None:
        self._subject = subject
        self._taken = duplicate_message or f"the {subject} {{!r}} is registered already: choose another name"
        self.entries: Mapping[Key, _Registered] = {}  # another one after each change, for who remembers what it held

    def register(self, *keys: Key) -> Callable[[Entry], Entry]:
        """Returns a decorator that registers a function under all of `keys`, or under none.

        Raises `DuplicateNameError` for a taken one.
        """

        def decorate(entry: Entry) -> Entry:
            self.add(dict.fromkeys(keys, entry))
            return entry

        return decorate

    def add(self, entries: Mapping[Any, Entry], home: str | None = None) -> None:
        """Register all of `entries` or none, for the module `home`, by default that of each entry.

        Raises `DuplicateNameError` for a taken key, `NotAFunctionError`.
        """
        new = {key: _Registered(entry, home or getattr(entry, "__module__", None)) for key, entry in entries.items()}
        for key, each in new.items():
            check_function(each.entry, f"the {self._subject} {printable(_name(key))!r}")
            if key not in self.entries or self.entries[key].entry is not each.entry:
                self.check_free([key], each.home)
        self._write(new)

    def check_free(self, keys: Iterable[Key], home: str | None) -> None:
        """Raise `DuplicateNameError` for keys that code of the module `home` may not register."""
        for key in keys:
            if key in self.entries and not is_new_version(self.entries[key].home, home):
                raise DuplicateNameError(self._taken.format(printable(_name(key))))

    def replace(self, entry: Entry, keys: Iterable[Key]) -> None:
        """Register `entry` under `keys`, replacing what is there; the caller has checked that it may."""
        self._write(dict.fromkeys(keys, _Registered(entry, getattr(entry, "__module__", None))))

    def _write(self, entries: Mapping[Any, _Registered]) -> None:
        self.entries = {**self.entries, **entries}

    def of_class(self, cls: type) -> Entry | None:
        """Returns the entry of the nearest class in the MRO of `cls`; None if there is none."""
        return next((self.entries[base].entry for base in cls.__mro__ if base in self.entries), None)

    def get(self, key: Key) -> Entry | None:
        """Returns the entry of a key; None if there is none."""
        known = self.entries.get(key)
        return None if known is None else known.entry

    def __getitem__(self, key: Key) -> Entry:
        try:
            return self.entries[key].entry
        except (KeyError, TypeError):
            hint = closest_match_hint(str(key), map(_name, self.entries))
            raise UnknownNameError(f"there is no {self._subject} {printable(str(key))!r}: {hint}") from None

    def __contains__(self, key: object) -> bool:
        return isinstance(key, Key) and key in self.entries

    def __iter__(self) -> Iterator[Any]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


def is_new_version(old: str | None, new: str | None) -> bool:
    """True if module `new` may replace an entry of module `old`: both are the session, where cells run again."""
    return old == new == SESSION_MODULE


def check_function(entry: object, what: str) -> None:
    """Raise `NotAFunctionError` for a value that is not callable."""
    if not callable(entry):
        raise NotAFunctionError(f"{what} is {a_type(entry)}: put the decorator over a function or class")


def _name(key: Key) -> str:
    return key.__name__ if isinstance(key, type) else key
