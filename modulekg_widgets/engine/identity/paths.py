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
        self._lookups: dict[int, tuple[dict[str, int], bool]] = {}

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

    @cached_property
    def ends(self) -> list[int]:
        """For each module the index behind the last one that it contains: what is below a module follows it."""
        ends = list(range(1, len(self) + 1))
        for index in range(len(self) - 1, 0, -1):
            ends[self.parents[index]] = max(ends[self.parents[index]], ends[index])
        return ends

    def find(self, path: str) -> int | None:
        """The index of the module at a dotted path; a shared module is found under each of its paths."""
        # names may hold dots themselves, so more than one cut of the path can fit; the longest name is tried first
        waiting: list[tuple[int, str | None]] = [(0, path or None)]
        tried: set[tuple[int, str | None]] = set()
        while waiting:
            index, rest = waiting.pop()
            if rest is None:
                return index
            slots, dotted = self._lookup(index)
            cut = rest.find(".")
            while cut >= 0:
                child = slots.get(rest[:cut])
                if child is not None and (child, rest[cut + 1 :]) not in tried:
                    waiting.append((child, rest[cut + 1 :]))
                    tried.add(waiting[-1])
                cut = rest.find(".", cut + 1) if dotted else -1
            if rest in slots:
                waiting.append((slots[rest], None))
        return None

    def _lookup(self, index: int) -> tuple[dict[str, int], bool]:
        """The modules in the slots of module `index` by name, and whether a name holds a dot."""
        found = self._lookups.get(index)
        if found is None:
            slots = {name: child for name, child in self.slots(index) if child is not None}
            found = self._lookups[index] = slots, any("." in name for name in slots)
        return found

    def near(self, path: str) -> list[str]:
        """Paths of about the same depth, to suggest from; never those of a million modules."""
        depth = path.count(".") + 1
        near = [i for i in range(1, min(len(self), 20_000)) if abs(self.depths[i] - depth) <= 1]
        return [self.path(i) for i in near[:2_000]]

    def is_place(self, parent: int, name: str, index: int) -> bool:
        """Whether this slot is the one that the module has its place in: the first that leads to it."""
        return self.parents[index] == parent and self.names[index] == name

    def links(self) -> Iterator[Link]:
        """The slots whose module has its place elsewhere: shared modules and cycles."""
        for parent, slots in self.irregular.items():
            for name, index in slots:
                if index is None or self.is_place(parent, name, index):
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

    def reachable(self, start: int) -> set[int]:
        """The modules that can be reached from module `start` through any slots, itself included."""
        seen, waiting = {start}, [start]
        while waiting:
            for _, index in self.slots(waiting.pop()):
                if index is not None and index not in seen:
                    seen.add(index)
                    waiting.append(index)
        return seen

    def places(self) -> list[tuple[str, int]]:
        """Every path at which a module stands, with its index; the further ones of shared modules come last."""
        places = [(self.path(index), index) for index in range(len(self))]
        for link in self.links():
            if link.kind == "shared":
                above, path = self.path(link.parent), self.path(link.target)
                alias = f"{above}.{link.name}" if above else link.name
                below = range(link.target, self.ends[link.target])
                places += [(alias + self.path(inner)[len(path) :], inner) for inner in below]
        return places
