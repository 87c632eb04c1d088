"""The knowledge graph of modules: identical modules of many models are one node, with all their uses.

In memory. Nodes are modules by fingerprint and models by name; edges say what contains what, slot by slot, so that the
tree of every model can be restored. Other node types, the store and the analysis stand beside this file as they land.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import networkx as nx
import pandas as pd
from torch import nn

from modulekg_widgets.engine.errors import TooLargeError, UnknownNameError, UnknownPathError, nearest, shown
from modulekg_widgets.engine.identity.encoding import class_names
from modulekg_widgets.engine.identity.fingerprint import display_name
from modulekg_widgets.engine.identity.hierarchy import LEVELS, Hierarchy, class_name, hierarchy, nominal_class
from modulekg_widgets.engine.identity.hyperparameters import hyperparameters
from modulekg_widgets.engine.identity.seed import seed_fingerprints
from modulekg_widgets.engine.identity.tensors import own_tensors, shape_of

SCHEMES = ("structure", "seed")
MOST_PATHS = 1_000_000  # of one tree; a few modules that share each other have more paths than atoms to write them with


@dataclass(frozen=True, slots=True)
class ModuleNode:
    """One structure, however often it occurs."""

    fingerprint: str
    class_name: str
    qualified_class: str
    hyperparameters: dict[str, Any]
    tensors: dict[str, tuple[int, ...] | None]
    slots: tuple[tuple[str, str | None], ...]  # (name, fingerprint of the child) in order; None for an empty slot


@dataclass(frozen=True, slots=True)
class ModelNode:
    """One model: its root and how often each structure occurs in it, per level."""

    name: str
    root: str
    occurrences: Counter[tuple[str, str]] = field(repr=False)  # (fingerprint, level) -> count
    cyclic: bool = False  # whether a module contains itself


class KnowledgeGraph:
    """Models merged by the structure of their modules; `scheme="seed"` merges as the ModuleKG seed did."""

    def __init__(self, *, scheme: str = "structure") -> None:
        if scheme not in SCHEMES:
            raise UnknownNameError(f"there is no scheme {shown(str(scheme))!r}: {nearest(str(scheme), SCHEMES)}")
        self.scheme = scheme
        self._nodes: dict[str, ModuleNode] = {}
        self._models: dict[str, ModelNode] = {}

    # -------------------------------------------------------------- building

    def add_model(self, model: nn.Module, name: str | None = None) -> str:
        """Add every module of `model`; returns the id of its root's node.

        `name` defaults to the name of the class; a model of the same name is replaced. Raises an error that names the
        path where the model cannot be fingerprinted, and then leaves the graph as it was.
        """
        if name is not None and not isinstance(name, str):
            raise UnknownNameError(f"a model is named by a text, got a {shown(type(name).__name__)}")
        modules = hierarchy(model)
        digests = self._digests(modules)
        nodes = {digest: _node(modules, index, digest, digests) for index, digest in _first_of_each(digests)}
        levels = Counter((digest, modules.level(index)) for index, digest in enumerate(digests))
        name = modules.root.class_name if name is None else name
        replaced = self._models.pop(name, None)
        cyclic = any(link.kind == "cycle" for link in modules.walk.links())
        self._models[name] = ModelNode(name, digests[0], levels, cyclic)
        self._nodes.update(nodes)
        if replaced is not None:
            self._forget_unused()
        return digests[0]

    def remove_model(self, name: str) -> None:
        """Remove a model and the modules that no other model contains."""
        del self._models[self._model(name).name]
        self._forget_unused()

    def _digests(self, modules: Hierarchy) -> list[str]:
        if self.scheme == "seed":
            return [fingerprint.hexdigest for fingerprint in seed_fingerprints(modules.walk)]
        _ = modules.root.fingerprint  # refuses what has no settled structure, by name
        return [digest.hex() for digest in modules.identities.digests]

    def _forget_unused(self) -> None:
        used = {fingerprint for model in self._models.values() for fingerprint, _ in model.occurrences}
        if len(used) < len(self._nodes):
            self._nodes = {key: node for key, node in self._nodes.items() if key in used}

    # -------------------------------------------------------------- counting

    @property
    def models(self) -> list[str]:
        """The names of the models, in the order in which they were added."""
        return list(self._models)

    @property
    def module_count(self) -> int:
        """The number of modules over all models, root and containers included, each module object once."""
        return sum(model.occurrences.total() for model in self._models.values())

    @property
    def unique_count(self) -> int:
        """The number of different structures."""
        return len(self._nodes)

    @property
    def nodes(self) -> list[ModuleNode]:
        return list(self._nodes.values())

    def node(self, fingerprint: str) -> ModuleNode:
        """The node of a fingerprint's hexdigest; raises `UnknownPathError`."""
        try:
            return self._nodes[fingerprint]
        except KeyError:
            raise UnknownPathError(f"no module has the fingerprint {shown(str(fingerprint))!r}") from None

    def names(self) -> dict[str, str]:
        """The display name of every node, `ReLU854`, with as many digits as keep those of a class apart."""
        names: dict[str, str] = {}
        waiting, digits = list(self._nodes), 3
        while waiting:
            candidates = {key: display_name(self._nodes[key].class_name, key, digits) for key in waiting}
            uses = Counter(candidates.values())
            uses.update(names.values())  # Block1234 may also be a class called Block1 with three digits
            names.update({key: name for key, name in candidates.items() if uses[name] == 1 or digits >= 40})
            waiting = [key for key in waiting if key not in names]
            digits += 1
        return names

    def most_used(self, n: int = 10, level: str | None = None) -> pd.DataFrame:
        """The `n` structures with most occurrences, as `name`, `count`, `models`, `class`, `hyperparameters`.

        `level` counts only occurrences as `model`, `stage`, `block` or `op`; `models` is the number of models.
        """
        if level is not None and level not in LEVELS:
            raise UnknownNameError(f"there is no level {shown(str(level))!r}: {nearest(str(level), LEVELS)}")
        uses: Counter[str] = Counter()
        holders: Counter[str] = Counter()
        for model in self._models.values():
            here: Counter[str] = Counter()
            for (fingerprint, at), count in model.occurrences.items():
                if level is None or at == level:
                    here[fingerprint] += count
            uses.update(here)
            holders.update(dict.fromkeys(here, 1))
        names = self.names()
        ranked = sorted(uses, key=lambda key: (-uses[key], -holders[key], names[key]))[:n]
        rows = [
            (names[k], uses[k], holders[k], self._nodes[k].class_name, self._nodes[k].hyperparameters) for k in ranked
        ]
        return pd.DataFrame(rows, columns=["name", "count", "models", "class", "hyperparameters"])

    # -------------------------------------------------------------- graphs

    def tree(self, name: str) -> nx.DiGraph:
        """The hierarchy of a model: a node per dotted path with its `fingerprint`, successors in the order of children.

        A shared module stands under each of its paths; a cycle ends where it closes. Under the seed's scheme, which
        merges modules with other names of children, the names are those of the model that was added last. Raises
        `UnknownPathError` for an unknown model and `TooLargeError` beyond a million paths.
        """
        tree = nx.DiGraph(name=name)
        model = self._model(name)
        root = model.root
        tree.add_node("", fingerprint=root)
        waiting: list[tuple[str, str, str, frozenset[str]]] = [("", "", root, frozenset())]
        while waiting:
            parent, path, fingerprint, above = waiting.pop()
            if path:
                tree.add_node(path, fingerprint=fingerprint)
                tree.add_edge(parent, path)
            if fingerprint in above:
                continue
            within = above | {fingerprint} if model.cyclic else above
            slots = [(slot, child) for slot, child in self._nodes[fingerprint].slots if child is not None]
            if len(tree) + len(waiting) + len(slots) > MOST_PATHS:
                raise TooLargeError(f"{shown(name)!r} has more than {MOST_PATHS:,} paths: its modules share each other")
            for slot, child in reversed(slots):
                waiting.append((path, f"{path}.{slot}" if path else slot, child, within))
        return tree

    def to_networkx(self) -> nx.DiGraph:
        """The graph of structures: a node per fingerprint, an edge from container to content with `count` and `order`.

        Node attributes: `name`, `class`, `hyperparameters`, `count` (occurrences), `models`.
        """
        graph = nx.DiGraph()
        uses: Counter[str] = Counter()
        holders: dict[str, list[str]] = {}
        for model in self._models.values():
            for (fingerprint, _), count in model.occurrences.items():
                uses[fingerprint] += count
            for fingerprint in dict.fromkeys(key for key, _ in model.occurrences):
                holders.setdefault(fingerprint, []).append(model.name)
        names = self.names()
        for key, node in self._nodes.items():
            attributes = {"class": node.class_name, "hyperparameters": node.hyperparameters}
            graph.add_node(key, type="Module", name=names[key], count=uses[key], models=holders[key], **attributes)
        for key, node in self._nodes.items():
            for child, order in _positions(node).items():
                graph.add_edge(key, child, type="contains", count=len(order), order=order)
        return graph

    def export(self, path: str | Path) -> Path:
        """Write the graph of structures in the format of the file's extension: `.dot` or `.edges`; returns the path."""
        from modulekg_widgets.engine.knowledge.exchange import export_graph

        return export_graph(self.to_networkx(), Path(path))

    def _model(self, name: str) -> ModelNode:
        try:
            return self._models[name]
        except (KeyError, TypeError):
            raise UnknownPathError(
                f"there is no model {shown(str(name))!r}: {nearest(str(name), self._models)}"
            ) from None

    def __repr__(self) -> str:
        return f"<KnowledgeGraph: {len(self._models)} models, {self.module_count} modules, {self.unique_count} unique>"


def _first_of_each(digests: list[str]) -> Iterator[tuple[int, str]]:
    seen: set[str] = set()
    for index, digest in enumerate(digests):
        if digest not in seen:
            seen.add(digest)
            yield index, digest


def _node(modules: Hierarchy, index: int, digest: str, digests: list[str]) -> ModuleNode:
    module = modules.walk.modules[index]
    cls = nominal_class(module)
    slots = tuple((name, None if child is None else digests[child]) for name, child in modules.walk.slots(index))
    tensors = {
        own.name: None if own.tensor is None else tuple(shape_of(own.tensor))
        for own in own_tensors(modules.walk.states[index])
    }
    dotted = ".".join(filter(None, class_names(cls)))
    return ModuleNode(digest, class_name(module), dotted, hyperparameters(module), tensors, slots)


def _positions(node: ModuleNode) -> dict[str, tuple[int, ...]]:
    """For each child structure the positions that it takes among the slots."""
    positions: dict[str, list[int]] = {}
    for position, (_, child) in enumerate(node.slots):
        if child is not None:
            positions.setdefault(child, []).append(position)
    return {child: tuple(order) for child, order in positions.items()}
