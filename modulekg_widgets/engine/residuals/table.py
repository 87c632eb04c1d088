"""The residual blocks of a traced model that can go, tried."""

from __future__ import annotations

import re
import weakref
from collections.abc import Hashable
from typing import TYPE_CHECKING

from modulekg_widgets.engine.residuals.blocks import ResidualBlock, candidates, flops_of, parameters_of
from modulekg_widgets.engine.residuals.trial import removals, tried
from modulekg_widgets.engine.tracing.dataflow import Dataflow

if TYPE_CHECKING:
    import pandas as pd

_known: weakref.WeakKeyDictionary[Dataflow, list[ResidualBlock]] = weakref.WeakKeyDictionary()


def residual_blocks(graph: Dataflow) -> list[ResidualBlock]:
    """The blocks without which the model runs, in the order of the pass; one of each kind is tried."""
    if graph not in _known:
        kinds: dict[Hashable, bool] = {}
        found = []
        for block in candidates(graph):
            kind = _kind(graph, block)
            if kind not in kinds:
                kinds[kind] = any(tried(graph, [block], removal) is not None for removal in removals(graph, [block]))
            if kinds[kind]:
                found.append(block)
        _known[graph] = found
    return _known[graph]


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
        (block.path, sum(node.numel() for node in parameters_of(graph, block.modules)), flops_of(graph, block))
        for block in residual_blocks(graph)
    ]
    return pd.DataFrame(rows, columns=pd.Index(["path", "params", "flops"]))
