"""Read access to the store of a knowledge graph: names, counts, single structures and all contents."""

from __future__ import annotations

from collections.abc import Mapping

import networkx as nx

from modulekg_widgets.engine.errors import TooLargeError, UnknownPathError, closest_match_hint, printable
from modulekg_widgets.engine.knowledge.facts.contents import Contents
from modulekg_widgets.engine.knowledge.facts.records import ModelNode, StructureNode
from modulekg_widgets.engine.knowledge.facts.usage import unknown_name_error
from modulekg_widgets.engine.knowledge.store import reader
from modulekg_widgets.engine.knowledge.store.database import Location, Store

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


class StoredGraph:
    """Read access to a store; every answer is of the revision at the time of the call."""

    def __init__(self, store: Location | None, scheme: str | None) -> None:
        self._store = Store(store, scheme)
        self._read: tuple[int, Contents] | None = None  # the contents at a revision of the store

    @property
    def scheme(self) -> str:
        """The scheme by which modules are merged, "structure" or "seed"; fixed when the store was made."""
        return self._store.scheme

    def contents(self) -> Contents:
        """All that the graph holds now, as plain records; read again only after somebody wrote. Not to be changed."""
        with self._store.read() as connection:
            revision = self._store.revision_in(connection)
            if self._read is None or self._read[0] != revision:
                self._read = revision, reader.read_contents(connection, self.scheme)
            return self._read[1]

    # -------------------------------------------------------------- names and counts

    @property
    def models(self) -> list[str]:
        """The names of the models, in the order in which they were added."""
        return self._names_of("Model")

    @property
    def datasets(self) -> list[str]:
        """The names of the data sets, in the order in which they were added."""
        return self._names_of("DataSet")

    @property
    def users(self) -> list[str]:
        """The names of the users, in the order in which they were added."""
        return self._names_of("User")

    def _names_of(self, kind: str) -> list[str]:
        with self._store.read() as connection:
            return reader.names_of(connection, kind)

    @property
    def module_count(self) -> int:
        """The number of modules over all models, root and containers included, each module object once."""
        with self._store.read() as connection:
            return reader.count_modules(connection)

    @property
    def unique_count(self) -> int:
        """The number of different structures."""
        with self._store.read() as connection:
            return reader.count_nodes(connection, "Module")

    # -------------------------------------------------------------- structures

    @property
    def nodes(self) -> list[StructureNode]:
        """The structures, in the order in which they were added."""
        return list(self.contents().modules.values())

    def node(self, fingerprint: str) -> StructureNode:
        """One structure, by its fingerprint or its display name.

        Parameters
        ----------
        fingerprint : str
            The hexdigest, which is looked up in the store, or a display name such as `ReLU854`.

        Returns
        -------
        StructureNode
            The record: class, hyper-parameters, shapes of its own tensors, children, number of parameters and bytes.

        Raises
        ------
        UnknownPathError
            Where there is none, with the names that are near.

        Examples
        --------
        >>> import torch, modulekg_widgets as mk
        >>> kg = mk.KnowledgeGraph()
        >>> digest = kg.add_model(torch.nn.Linear(4, 3))
        >>> kg.node(digest).parameters
        15
        >>> kg.node(kg.names()[digest]).tensors
        {'weight': (3, 4), 'bias': (3,)}
        """
        with self._store.read() as connection:
            found = reader.read_module(connection, fingerprint) if isinstance(fingerprint, str) else None
        if found is not None:
            return found
        named = {name: key for key, name in self.contents().names.items()}
        if not isinstance(fingerprint, str) or fingerprint not in named:
            what = f"no module has the fingerprint or name {printable(str(fingerprint))!r}"
            raise UnknownPathError(f"{what}: {closest_match_hint(str(fingerprint), named)}")
        return self.contents().modules[named[fingerprint]]

    def names(self) -> dict[str, str]:
        """The display name of every node, `ReLU854`, with as many digits as keep those of a class apart."""
        return dict(self.contents().names)

    def tree(self, name: str) -> nx.DiGraph:
        """The hierarchy of a model, restored from the structures.

        A shared module stands under each of its paths; a cycle ends where it closes. Under the seed's scheme, which
        merges modules with other names of children, the names are those of the model that was added last.

        Parameters
        ----------
        name : str
            A model of the graph.

        Returns
        -------
        networkx.DiGraph
            A node per dotted path, the root's is "", with its `fingerprint`; successors in the order of children.

        Raises
        ------
        UnknownPathError
            For an unknown model, with the names that are near.
        TooLargeError
            Beyond a million paths.

        Examples
        --------
        >>> import torch, modulekg_widgets as mk
        >>> kg = mk.KnowledgeGraph()
        >>> digest = kg.add_model(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()), name="small")
        >>> list(kg.tree("small").successors(""))
        ['0', '1']
        """
        with self._store.read() as connection:
            model = reader.read_model(connection, name) if isinstance(name, str) else None
            if model is None:
                raise unknown_name_error("model", name, reader.names_of(connection, "Model"))
            keys = dict.fromkeys([model.root, *(key for key, _ in model.occurrences)])
            modules = reader.read_modules(connection, keys)
            reader.check_complete(name, keys, modules)
        return model_tree(model, modules)

    def close(self) -> None:
        """Give the connections to the store back; the graph stays usable and opens new ones."""
        self._store.close()
        self._read = None
