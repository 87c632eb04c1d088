"""The hierarchy of a model, restored from the structures in the graph."""

from __future__ import annotations

from collections.abc import Mapping

import networkx as nx

from modulekg_widgets.engine.errors import TooLargeError, shown
from modulekg_widgets.engine.knowledge.records import ModelNode, StructureNode

MOST_PATHS = 1_000_000  # of one tree; a few modules that share each other have more paths than atoms to write them with


def tree_of(model: ModelNode, modules: Mapping[str, StructureNode]) -> nx.DiGraph:
    """A node per dotted path with its `fingerprint`, successors in the order of children; a cycle ends where it closes.

    Raises `TooLargeError` beyond a million paths.
    """
    tree = nx.DiGraph(name=model.name)
    tree.add_node("", fingerprint=model.root)
    waiting: list[tuple[str, str, str, frozenset[str]]] = [("", "", model.root, frozenset())]
    while waiting:
        parent, path, fingerprint, above = waiting.pop()
        if path:
            tree.add_node(path, fingerprint=fingerprint)
            tree.add_edge(parent, path)
        if fingerprint in above:
            continue
        within = above | {fingerprint} if model.cyclic else above
        slots = [(slot, child) for slot, child in modules[fingerprint].slots if child is not None]
        if len(tree) + len(waiting) + len(slots) > MOST_PATHS:
            name = shown(model.name)
            raise TooLargeError(f"{name!r} has more than {MOST_PATHS:,} paths: its modules share each other")
        for slot, child in reversed(slots):
            waiting.append((path, f"{path}.{slot}" if path else slot, child, within))
    return tree
