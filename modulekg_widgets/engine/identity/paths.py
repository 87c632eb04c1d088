"""Where modules stand in a model: slots, dotted paths and where they meet, without the modules themselves."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

Slot = tuple[str, int | None]


class Link(NamedTuple):
    """A slot whose module has its place elsewhere."""

    parent: int
    name: str
    target: int
    kind: str  # "shared", or "cycle" when the target contains the slot


class Paths:
    """The slots of a model as parallel lists, depth first in the order of `modules()`; index 0 is the root."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.parents: list[int] = []
        self.children: dict[int, list[int]] = {}  # of containers: the modules that have their place directly below
        self.irregular: dict[int, list[Slot]] = {}  # all slots of containers that have empty, shared or cyclic ones

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def depths(self) -> list[int]:
        depths: list[int] = []
        for parent in self.parents:
            depths.append(depths[parent] + 1 if parent >= 0 else 0)
        return depths

    def slots(self, index: int) -> list[Slot]:
        """The entries of a module's `_modules`: (name, index of the module), the index None for an empty slot."""
        irregular = self.irregular.get(index)
        return irregular if irregular is not None else [(self.names[c], c) for c in self.children.get(index, ())]

    def path(self, index: int) -> str:
        """The dotted path of module `index`; the root's is empty."""
        segments = []
        while index > 0:
            segments.append(self.names[index])
            index = self.parents[index]
        return ".".join(reversed(segments))

    def find(self, path: str) -> int | None:
        """The index of the module at a dotted path; a shared module is found under each of its paths."""
        index = 0
        rest = path
        while rest:
            # names may hold dots themselves, so the longest slot name that fits wins
            fitting = [
                (n, i) for n, i in self.slots(index) if i is not None and (rest == n or rest.startswith(n + "."))
            ]
            if not fitting:
                return None
            name, found = max(fitting, key=lambda slot: len(slot[0]))
            index, rest = found, rest[len(name) + 1 :]
        return index

    def near(self, path: str) -> list[str]:
        """Paths of about the same depth, to suggest from; never those of a million modules."""
        depth = path.count(".") + 1
        near = [i for i in range(1, min(len(self), 20_000)) if abs(self.depths[i] - depth) <= 1]
        return [self.path(i) for i in near[:2_000]]

    def links(self) -> Iterator[Link]:
        """The slots whose module has its place elsewhere: shared modules and cycles."""
        for parent, slots in self.irregular.items():
            for name, index in slots:
                if index is None or (self.parents[index] == parent and self.names[index] == name):
                    continue
                yield Link(parent, name, index, "cycle" if self.meeting(parent, index) == index else "shared")

    def meeting(self, left: int, right: int) -> int:
        """The deepest module that contains both, or is one of them."""
        while left != right:
            # a module comes before all that it contains, so the later of the two is no ancestor of the other
            if left > right:
                left = self.parents[left]
            else:
                right = self.parents[right]
        return left
