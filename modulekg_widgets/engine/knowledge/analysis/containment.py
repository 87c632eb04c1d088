"""Containment graph of structures, on which types, centrality and communities are computed."""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx

from modulekg_widgets.engine.knowledge.facts.contents import Contents
from modulekg_widgets.engine.knowledge.facts.records import StructureNode


@dataclass(frozen=True, slots=True)
class Containment:
    """`counts[i, j]` slots of structure `keys[i]` hold `keys[j]`; the keys are sorted, so that answers never depend
    on the order in which models were added."""

    keys: list[str]
    counts: dict[tuple[int, int], int]

    def digraph(self) -> nx.DiGraph:
        """A node per position in `keys`, an edge from container to content with its `count`."""
        graph = nx.DiGraph()
        graph.add_nodes_from(range(len(self.keys)))
        graph.add_weighted_edges_from(((i, j, count) for (i, j), count in self.counts.items()), weight="count")
        return graph


def containment(contents: Contents) -> Containment:
    keys = sorted(contents.modules)
    position: dict[str | None, int] = {key: index for index, key in enumerate(keys)}
    counts: dict[tuple[int, int], int] = {}
    for container, key in enumerate(keys):
        for _, child in contents.modules[key].slots:
            content = position.get(child)
            if content is not None:
                pair = container, content
                counts[pair] = counts.get(pair, 0) + 1
    return Containment(keys, counts)


def children(contents: Contents, node: StructureNode) -> list[str]:
    """The structures in the slots of `node`, in order; empty slots have none."""
    modules = contents.modules
    return [child for _, child in node.slots if child is not None and child in modules]
