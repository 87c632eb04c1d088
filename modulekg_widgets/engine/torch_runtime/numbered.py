"""Children of a module that are numbered from 0, as those of a list, or `expert_0`, `expert_1`, … of a dictionary."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class NumberedModules(NamedTuple):
    """Modules at `path`, each under its number behind the same letters."""

    path: str
    prefix: str  # of their names, empty in a list

    def path_of(self, number: int) -> str:
        """The path of one of them."""
        name = f"{self.prefix}{number}"
        return f"{self.path}.{name}" if self.path else name

    def split(self, path: str) -> tuple[int, str] | None:
        """The number of the module that something lies in, and its name in there; None for what lies elsewhere."""
        start = f"{self.path}.{self.prefix}" if self.path else self.prefix
        number, _, rest = path.removeprefix(start).partition(".")
        return (int(number), rest) if path.startswith(start) and number.isdecimal() else None


def numbering(names: Iterable[str]) -> str | None:
    """What names have before their numbers 0, 1, …; None where they are not such names."""
    every = list(names)
    prefix = every[0].removesuffix("0") if every else ""
    return prefix if every == [f"{prefix}{at}" for at in range(len(every))] else None
