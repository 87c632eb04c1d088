"""The removable residual blocks of a traced model, verified."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from modulekg_widgets.engine.errors import TraceError, printable
from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.residuals.blocks import (
    ResidualBlock,
    block_flops,
    block_parameters,
    candidate_blocks,
    candidate_layers,
    is_inside,
)
from modulekg_widgets.engine.residuals.module_removal import ModuleRemoval, outermost_paths
from modulekg_widgets.engine.residuals.removal_trial import (
    is_removed_from_container,
    possible_removals,
    running_blocks,
    try_removal,
)
from modulekg_widgets.engine.tracing.dataflow import Dataflow

if TYPE_CHECKING:
    import pandas as pd


BLOCKS, LAYERS = "blocks", "layers"  # under which a graph keeps what was found


def residual_blocks(graph: Dataflow) -> list[ResidualBlock]:
    """The blocks that can be removed, in forward order; one of each kind is verified."""
    if BLOCKS not in graph.residuals:
        graph.residuals[BLOCKS] = _removable(graph, candidate_blocks(graph))
    return graph.residuals[BLOCKS]


def residual_layers(graph: Dataflow) -> list[ResidualBlock]:
    """The blocks that leave their containers, with their normalizations if needed; else all blocks.

    Where none does, all blocks.
    """
    if LAYERS not in graph.residuals:
        inside = [block for block in candidate_layers(graph) if is_removed_from_container(graph, block)]
        graph.residuals[LAYERS] = _removable(graph, inside) or residual_blocks(graph)
    return graph.residuals[LAYERS]


def _removable(graph: Dataflow, blocks: Sequence[ResidualBlock]) -> list[ResidualBlock]:
    _check_modules_unchanged(graph)
    of_kind: dict[Hashable, list[ResidualBlock]] = {}
    for block in blocks:
        of_kind.setdefault(_block_kind(graph, block), []).append(block)
    ways: dict[Hashable, tuple[ResidualBlock, ModuleRemoval]] = {}
    for kind, (first, *_) in of_kind.items():
        for removal in possible_removals(graph, [first]):
            if try_removal(graph, [first], removal) is not None:
                ways[kind] = first, removal
                break
    running = set(map(id, _running(graph, list(ways.values()))))
    able = [block for kind, (first, _) in ways.items() if id(first) in running for block in of_kind[kind]]
    places = {id(block): at for at, block in enumerate(blocks)}
    found = sorted(able, key=lambda block: places[id(block)])
    whole = {block.branches for block in found if not block.is_branch}
    return [block for block in found if not block.is_branch or block.branches not in whole]


def _running(graph: Dataflow, ways: Sequence[tuple[ResidualBlock, ModuleRemoval]]) -> Iterator[ResidualBlock]:
    """The blocks without which the model runs in each mode; nested ones are tried apart."""
    outer = set(outermost_paths([block.path for block, _ in ways]))
    inner = [way for way in ways if way[0].path not in outer]
    yield from running_blocks(graph, [way for way in ways if way[0].path in outer])
    if inner:
        yield from _running(graph, inner)


def _check_modules_unchanged(graph: Dataflow) -> None:
    walked = walk(graph.model)
    places = dict(walked.all_paths())
    for path, node in graph.modules.items():
        if path not in places or walked.modules[places[path]] is not node.module:
            raise TraceError(f"{printable(path)} is not the module that it was: trace the model again as it is now")


def _block_kind(graph: Dataflow, block: ResidualBlock) -> Hashable:
    """The key of equal blocks: operators, shapes and position in the container."""
    numberless = re.sub(r"\d+", "*", block.path)
    assert block.call.end is not None
    operators = graph.operators[block.call.start : block.call.end]
    shapes = tuple(node.shape for node in block.call.inputs)
    return numberless, block.is_branch, tuple(str(operator.overload) for operator in operators), shapes


def block_table(graph: Dataflow) -> pd.DataFrame:
    """A table with one row for each removable block."""
    import pandas as pd

    rows = [
        (block.path, sum(node.numel() for node in block_parameters(graph, block)), block_flops(graph, block))
        for block in residual_blocks(graph)
    ]
    return pd.DataFrame(rows, columns=pd.Index(["path", "params", "flops"]))


# -------------------- Nesting of residual blocks, and the block that each tensor and operator belongs to


NO_BLOCK = -1


class NestedBlocks:
    """Blocks by number, each with its innermost enclosing block."""

    def __init__(self, blocks: Sequence[ResidualBlock]) -> None:
        self.blocks = tuple(blocks)
        self.numbers = {block.path: number for number, block in enumerate(self.blocks)}
        self.parents = tuple(map(self._parent_of, self.blocks))

    def __len__(self) -> int:
        return len(self.blocks)

    def with_nested(self, removed: Iterable[int]) -> frozenset[int]:
        """The removed blocks and those nested in them."""
        every = frozenset(removed)
        return frozenset(number for number in range(len(self)) if not every.isdisjoint(self._ancestors(number)))

    def outermost(self, removed: Iterable[int]) -> list[int]:
        """The removed blocks that are not nested in another removed one."""
        paths = outermost_paths(self.blocks[number].path for number in removed)
        return sorted(self.numbers[path] for path in paths)

    def block_of_tensors(self, names: Iterable[str]) -> int:
        """The innermost block that all these tensors belong to, or `NO_BLOCK`."""
        common: list[int] | None = None
        for name in names:
            own = self._blocks_of_tensor(name)
            common = own if common is None else [number for number in common if number in own]
        return common[0] if common else NO_BLOCK

    def blocks_of_operators(self, graph: Dataflow) -> list[int]:
        """For each operator the innermost block that it belongs to, or `NO_BLOCK`."""
        found = [NO_BLOCK] * len(graph.operators)
        for number in sorted(range(len(self)), key=lambda number: len(list(self._ancestors(number)))):
            for path in self.blocks[number].modules:
                for operator in graph.modules[path].operators if path in graph.modules else ():
                    found[operator.index] = number
        return found

    def _parent_of(self, block: ResidualBlock) -> int:
        around = [other.path for other in self.blocks if is_inside(block.path, other.path)]
        return self.numbers[max(around, key=len)] if around else NO_BLOCK

    def _ancestors(self, number: int) -> Iterator[int]:
        """A block and its enclosing blocks, the innermost first."""
        while number != NO_BLOCK:
            yield number
            number = self.parents[number]

    def _blocks_of_tensor(self, name: str) -> list[int]:
        """The blocks that a tensor belongs to, the innermost first."""
        own = [number for number, block in enumerate(self.blocks) if _belongs_to(name, block)]
        return sorted(own, key=lambda number: -len(list(self._ancestors(number))))


def _belongs_to(name: str, block: ResidualBlock) -> bool:
    is_within = any(is_inside(name, each) for each in block.modules)
    return is_within and not any(name in node.names for node in block.shared_weights)
