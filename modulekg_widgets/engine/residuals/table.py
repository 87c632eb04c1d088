"""The residual blocks of a traced model that can go, tried."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING

from modulekg_widgets.engine.errors import TraceError, shown
from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.residuals.blocks import ResidualBlock, candidates, flops_of, layers, parameters_of
from modulekg_widgets.engine.residuals.removal import ModuleRemoval, without_inner
from modulekg_widgets.engine.residuals.trial import leaves_its_container, removals, those_that_run, tried
from modulekg_widgets.engine.tracing.dataflow import Dataflow

if TYPE_CHECKING:
    import pandas as pd

BLOCKS, LAYERS = "blocks", "layers"  # under which a graph keeps what was found


def residual_blocks(graph: Dataflow) -> list[ResidualBlock]:
    """The blocks without which the model runs, in the order of the pass; one of each kind is tried."""
    if BLOCKS not in graph.residuals:
        graph.residuals[BLOCKS] = _that_can_go(graph, candidates(graph))
    return graph.residuals[BLOCKS]


def residual_layers(graph: Dataflow) -> list[ResidualBlock]:
    """Those that leave their containers, so that a configuration may count them: with their normalisations, if need be.

    Where none does, all blocks.
    """
    if LAYERS not in graph.residuals:
        inside = [block for block in layers(graph) if leaves_its_container(graph, block)]
        graph.residuals[LAYERS] = _that_can_go(graph, inside) or residual_blocks(graph)
    return graph.residuals[LAYERS]


def _that_can_go(graph: Dataflow, blocks: Sequence[ResidualBlock]) -> list[ResidualBlock]:
    _check_unchanged(graph)
    of_kind: dict[Hashable, list[ResidualBlock]] = {}
    for block in blocks:
        of_kind.setdefault(_kind(graph, block), []).append(block)
    ways: dict[Hashable, tuple[ResidualBlock, ModuleRemoval]] = {}
    for kind, (first, *_) in of_kind.items():
        for removal in removals(graph, [first]):
            if tried(graph, [first], removal) is not None:
                ways[kind] = first, removal
                break
    running = set(map(id, _that_run(graph, list(ways.values()))))
    able = [block for kind, (first, _) in ways.items() if id(first) in running for block in of_kind[kind]]
    places = {id(block): at for at, block in enumerate(blocks)}
    found = sorted(able, key=lambda block: places[id(block)])
    whole = {block.branches for block in found if not block.is_branch}
    return [block for block in found if not block.is_branch or block.branches not in whole]


def _that_run(graph: Dataflow, ways: Sequence[tuple[ResidualBlock, ModuleRemoval]]) -> Iterator[ResidualBlock]:
    """The blocks without which the model runs in each mode; those that lie in each other are tried apart."""
    outer = set(without_inner([block.path for block, _ in ways]))
    inner = [way for way in ways if way[0].path not in outer]
    yield from those_that_run(graph, [way for way in ways if way[0].path in outer])
    if inner:
        yield from _that_run(graph, inner)


def _check_unchanged(graph: Dataflow) -> None:
    walked = walk(graph.model)
    places = dict(walked.places())
    for path, node in graph.modules.items():
        if path not in places or walked.modules[places[path]] is not node.module:
            raise TraceError(f"{shown(path)} is not the module that it was: trace the model again as it is now")


def _kind(graph: Dataflow, block: ResidualBlock) -> Hashable:
    """What makes blocks alike: the same operators on the same shapes at the same place of their container."""
    numberless = re.sub(r"\d+", "*", block.path)
    assert block.call.end is not None
    operators = graph.operators[block.call.start : block.call.end]
    shapes = tuple(node.shape for node in block.call.inputs)
    return numberless, block.is_branch, tuple(str(operator.overload) for operator in operators), shapes


def block_table(graph: Dataflow) -> pd.DataFrame:
    """One row for each block that can go."""
    import pandas as pd

    rows = [
        (block.path, sum(node.numel() for node in parameters_of(graph, block)), flops_of(graph, block))
        for block in residual_blocks(graph)
    ]
    return pd.DataFrame(rows, columns=pd.Index(["path", "params", "flops"]))
