"""Residual blocks that lie in each other, and what of a model goes with which."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from modulekg_widgets.engine.residuals.blocks import ResidualBlock, is_inside
from modulekg_widgets.engine.residuals.removal import without_inner
from modulekg_widgets.engine.tracing.dataflow import Dataflow

NO_BLOCK = -1


class NestedBlocks:
    """Blocks by their numbers, each with the innermost one that it lies in."""

    def __init__(self, blocks: Sequence[ResidualBlock]) -> None:
        self.blocks = tuple(blocks)
        self.numbers = {block.path: number for number, block in enumerate(self.blocks)}
        self.within = tuple(map(self._around, self.blocks))

    def __len__(self) -> int:
        return len(self.blocks)

    def gone(self, removed: Iterable[int]) -> frozenset[int]:
        """The blocks that are removed, and those that lie in one of these."""
        every = frozenset(removed)
        return frozenset(number for number in range(len(self)) if not every.isdisjoint(self._outwards(number)))

    def outermost(self, removed: Iterable[int]) -> list[int]:
        """The removed blocks without those that lie in another one of them."""
        paths = without_inner(self.blocks[number].path for number in removed)
        return sorted(self.numbers[path] for path in paths)

    def holding(self, names: Iterable[str]) -> int:
        """The innermost block that all tensors of these names go with; `NO_BLOCK` where one of them stays."""
        common: list[int] | None = None
        for name in names:
            own = self._holding(name)
            common = own if common is None else [number for number in common if number in own]
        return common[0] if common else NO_BLOCK

    def of_operators(self, graph: Dataflow) -> list[int]:
        """For each operator of a pass the innermost block that it goes with, or `NO_BLOCK`."""
        found = [NO_BLOCK] * len(graph.operators)
        for number in sorted(range(len(self)), key=lambda number: len(list(self._outwards(number)))):
            for path in self.blocks[number].modules:
                for operator in graph.modules[path].operators if path in graph.modules else ():
                    found[operator.index] = number
        return found

    def _around(self, block: ResidualBlock) -> int:
        around = [other.path for other in self.blocks if is_inside(block.path, other.path)]
        return self.numbers[max(around, key=len)] if around else NO_BLOCK

    def _outwards(self, number: int) -> Iterator[int]:
        """A block and those that it lies in, inner ones first."""
        while number != NO_BLOCK:
            yield number
            number = self.within[number]

    def _holding(self, name: str) -> list[int]:
        """The blocks that a tensor goes with, inner ones first."""
        own = [number for number, block in enumerate(self.blocks) if _goes_with(name, block)]
        return sorted(own, key=lambda number: -len(list(self._outwards(number))))


def _goes_with(name: str, block: ResidualBlock) -> bool:
    is_within = any(is_inside(name, each) for each in block.modules)
    return is_within and not any(name in node.names for node in block.shared_weights)
