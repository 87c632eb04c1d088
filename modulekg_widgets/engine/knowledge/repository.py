"""The store of a knowledge graph with what was read of it, and the parts that the methods of a graph stand on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import networkx as nx

from modulekg_widgets.engine.errors import TooLargeError, printable
from modulekg_widgets.engine.knowledge.facts.contents import Contents
from modulekg_widgets.engine.knowledge.facts.records import ModelNode, StructureNode
from modulekg_widgets.engine.knowledge.store import reader
from modulekg_widgets.engine.knowledge.store.database import Location, Store
from modulekg_widgets.engine.knowledge.store.rows import updated_contents
from modulekg_widgets.engine.knowledge.store.writer import StoreWriter

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from torch import nn

Derived = TypeVar("Derived")

# -------------------- Hierarchy of a model as a networkx tree, restored from the structures of the graph


MAX_PATHS = 1_000_000  # of one tree; a few modules that share each other have more paths than atoms to write them with


def model_tree(model: ModelNode, modules: Mapping[str, StructureNode]) -> nx.DiGraph:
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
        if len(tree) + len(waiting) + len(slots) > MAX_PATHS:
            name = printable(model.name)
            raise TooLargeError(f"{name!r} has more than {MAX_PATHS:,} paths: its modules share each other")
        for slot, child in reversed(slots):
            waiting.append((path, f"{path}.{slot}" if path else slot, child, within))
    return tree


# ----------------------------------------


class Repository:
    """A store and what was read of it; every answer is of the revision at the time of the call."""

    def __init__(self, location: Location | None, scheme: str | None) -> None:
        self.store = Store(location, scheme)
        self._read: tuple[int, Contents] | None = None  # the contents at a revision of the store
        self._derived: tuple[Contents, dict[Hashable, Any]] | None = None  # what was computed of these contents

    @property
    def scheme(self) -> str:
        return self.store.scheme

    def contents(self) -> Contents:
        """Returns all that the store holds, read again only after somebody wrote."""
        with self.store.read() as connection:
            revision = self.store.revision_in(connection)
            if self._read is None or self._read[0] != revision:
                self._read = revision, reader.read_contents(connection, self.scheme)
            return self._read[1]

    def derived(self, name: Hashable, compute: Callable[[Contents], Derived]) -> Derived:
        """Returns what `compute` makes of the contents, once for as long as they stay the same."""
        contents = self.contents()
        if self._derived is None or self._derived[0] is not contents:
            self._derived = contents, {}
        _, known = self._derived
        if name not in known:
            known[name] = compute(contents)
        return known[name]

    def names_of(self, kind: str) -> list[str]:
        with self.store.read() as connection:
            return reader.names_of(connection, kind)

    @contextmanager
    def adding(self, contents: Contents) -> Iterator[tuple[StoreWriter, Connection]]:
        """Opens a transaction that adds `contents` and nothing else."""
        with self.changing(lambda known: updated_contents(known, contents)) as (writer, connection):
            yield writer, connection

    @contextmanager
    def changing(self, change: Callable[[Contents], Contents | None]) -> Iterator[tuple[StoreWriter, Connection]]:
        """Opens a transaction; `change` maps the cached contents to the new ones, which are not read again then."""
        with self.store.write() as connection:
            before = self.store.revision_in(connection)
            yield StoreWriter(connection, self.scheme), connection
        known = self._read
        if known is not None and known[0] == before:
            new = change(known[1])
            self._read = None if new is None else (before + 1, new)

    def close(self) -> None:
        self.store.close()
        self._read = None


class GraphParts(Protocol):
    """Parts of a graph that its methods use: they are functions of several files, gathered in `KnowledgeGraph`."""

    repository: Repository
    levels: str  # what tells the stages and blocks of models that are added
    builders: dict[str, Callable[[], nn.Module]]  # of models by name, as far as this session knows them

    def contents(self) -> Contents: ...
