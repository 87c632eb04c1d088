"""The public class `KnowledgeGraph`: models merged by the structure of their modules.

Identical modules of many models are one node with all of its occurrences. The graph lies in a store: in memory, in an
SQLite file, or in PostgreSQL. This file opens, reads, merges and prints it. Its other methods are functions of the
parts that it holds: adding and removing in editing.py, results of others in importers.py, and the questions that it
answers in questions/, a file for each subject.

Every change is one transaction. Answers are computed from `contents()`, which is read again only after a change.

    >>> import modulekg_widgets as mk
    >>> from torch import nn
    >>> kg = mk.KnowledgeGraph()
    >>> digest = kg.add_model(nn.Sequential(nn.ReLU(), nn.ReLU()), name="mine")
    >>> kg.most_used(1, level="op")["count"].tolist()
    [2]
"""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import TypeAlias, TypeVar

import networkx as nx
from torch import nn

from modulekg_widgets.engine.errors import (
    DuplicateNameError,
    StoreError,
    UnknownNameError,
    UnknownPathError,
    closest_match_hint,
    printable,
)
from modulekg_widgets.engine.identity.levels import checked_level_method
from modulekg_widgets.engine.knowledge import editing, importers
from modulekg_widgets.engine.knowledge.exchange import read_contents
from modulekg_widgets.engine.knowledge.facts.contents import Contents, DataSetNode, JobNode, UserNode
from modulekg_widgets.engine.knowledge.facts.property_values import encode
from modulekg_widgets.engine.knowledge.facts.records import ModelNode, StructureNode, checked_scheme
from modulekg_widgets.engine.knowledge.facts.usage import unknown_name_error
from modulekg_widgets.engine.knowledge.questions import analysis, equivalence, exchange, prediction, usage
from modulekg_widgets.engine.knowledge.repository import Repository, model_tree
from modulekg_widgets.engine.knowledge.store import reader
from modulekg_widgets.engine.knowledge.store.database import Location, checked_existing

# -------------------- Merging of two graphs with a policy for nodes of the same name and other contents


NamedNode: TypeAlias = ModelNode | DataSetNode | UserNode | JobNode
Node = TypeVar("Node", bound=NamedNode)
NODE_GROUPS = {"model": "models", "data set": "datasets", "user": "users", "job": "jobs"}


def resolve_conflicts(ours: Contents, theirs: Contents, on_conflict: str) -> Contents:
    """Returns the part of `theirs` to add to `ours`; raises `DuplicateNameError` if conflicts are errors."""
    found = {kind: _conflicts(getattr(ours, place), getattr(theirs, place)) for kind, place in NODE_GROUPS.items()}
    if on_conflict == "error" and any(found.values()):
        kind, names = next((kind, names) for kind, names in found.items() if names)
        more = f" and {sum(map(len, found.values())) - 1} more" if sum(map(len, found.values())) > 1 else ""
        raise DuplicateNameError(
            f"both graphs have a {kind} {printable(names[0])!r}{more} and it is not the same: "
            'pass on_conflict="keep" or "replace"; nothing was added'
        )
    fresh = {
        place: _without_known(
            getattr(theirs, place), getattr(ours, place), found[kind] if on_conflict == "replace" else []
        )
        for kind, place in NODE_GROUPS.items()
    }
    lost = set(found["model"]) if on_conflict == "keep" else set()  # a run of theirs is none of our model of that name
    fresh["jobs"] = {k: replace(job, model=None) if job.model in lost else job for k, job in fresh["jobs"].items()}
    used = {key for model in fresh["models"].values() for key, _ in model.occurrences}
    alone = theirs.modules.keys() - {key for model in theirs.models.values() for key, _ in model.occurrences}
    modules = {key: node for key, node in theirs.modules.items() if key in used or key in alone}
    return replace(theirs, modules=modules, **fresh)


def _conflicts(ours: Mapping[str, NamedNode], theirs: Mapping[str, NamedNode]) -> list[str]:
    return [name for name, node in theirs.items() if name in ours and not _is_same_node(ours[name], node)]


def _is_same_node(one: NamedNode, other: NamedNode) -> bool:
    """True if the nodes are equal, with NaN equal to NaN."""
    return one == other or (not isinstance(one, ModelNode) and encode(asdict(one)) == encode(asdict(other)))


def _without_known(theirs: Mapping[str, Node], ours: Mapping[str, Node], but: list[str]) -> dict[str, Node]:
    """Returns the nodes that only `theirs` has, and those that replace ours."""
    return {name: node for name, node in theirs.items() if name not in ours or name in but}


# ----------------------------------------


CONFLICTS = ("error", "keep", "replace")


class KnowledgeGraph:
    """Models merged by the structure of their modules, with data sets, users and training jobs.

    Threads and processes may open one store and write at the same time. Usable in a `with` statement, which closes it;
    a file that is open has a log beside it: close it before you copy it.

    Parameters
    ----------
    store
        None for a graph in memory, a path, or a URL: `zoo.db`, `sqlite:///zoo.db`, `postgresql://host/database`.
    scheme
        "structure", or "seed" to merge as the ModuleKG seed did; a store keeps the one that it was made with.
    levels
        What tells the stages and blocks of the models that are added from here on: "repetition", or "depth" as the seed
        has it; `mk.levels` shows both.

    Raises
    ------
    StoreError
        For a store that cannot be opened. Any method that reads or writes it raises this, too, where the store was
        moved, is damaged or cannot be written; nothing is written then.
    UnknownNameError
        For another scheme, or other levels.

    Examples
    --------
    >>> import torch, modulekg_widgets as mk
    >>> kg = mk.KnowledgeGraph()
    >>> digest = kg.add_model(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.ReLU()), name="two")
    >>> kg.module_count, kg.unique_count
    (3, 2)
    >>> kg.most_used(1)["count"].tolist()
    [2]
    >>> kg.add_user("ada"), kg.add_dataset("digits", classes=10)
    ('User:ada', 'DataSet:digits')
    >>> job = kg.add_job(user="ada", dataset="digits", model="two", accuracy=91.5, started="2026-01-02")
    >>> kg.jobs(user="ada")[["model", "accuracy"]].values.tolist()
    [['two', 0.915]]
    >>> kg.remove_job(job)
    >>> kg.remove_model("two")
    >>> kg.models, kg.unique_count
    ([], 0)
    """

    def __init__(self, store: Location | None = None, *, scheme: str | None = None, levels: str = "repetition") -> None:
        self.levels = checked_level_method(levels)
        self.repository = Repository(store, None if scheme is None else checked_scheme(scheme))
        self.builders: dict[str, Callable[[], nn.Module]] = {}

    @property
    def scheme(self) -> str:
        """The scheme by which modules are merged, "structure" or "seed"; fixed when the store was made."""
        return self.repository.scheme

    def contents(self) -> Contents:
        """All that the graph holds now, as plain records; read again only after somebody wrote. Not to be changed."""
        return self.repository.contents()

    # -------------------------------------------------------------- names and counts

    @property
    def models(self) -> list[str]:
        """The names of the models, in the order in which they were added."""
        return self.repository.names_of("Model")

    @property
    def datasets(self) -> list[str]:
        """The names of the data sets, in the order in which they were added."""
        return self.repository.names_of("DataSet")

    @property
    def users(self) -> list[str]:
        """The names of the users, in the order in which they were added."""
        return self.repository.names_of("User")

    @property
    def module_count(self) -> int:
        """The number of modules over all models, root and containers included, each module object once."""
        with self.repository.store.read() as connection:
            return reader.count_modules(connection)

    @property
    def unique_count(self) -> int:
        """The number of different structures."""
        with self.repository.store.read() as connection:
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
        with self.repository.store.read() as connection:
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
        with self.repository.store.read() as connection:
            model = reader.read_model(connection, name) if isinstance(name, str) else None
            if model is None:
                raise unknown_name_error("model", name, reader.names_of(connection, "Model"))
            keys = dict.fromkeys([model.root, *(key for key, _ in model.occurrences)])
            modules = reader.read_modules(connection, keys)
            reader.check_complete(name, keys, modules)
        return model_tree(model, modules)

    def close(self) -> None:
        """Give the connections to the store back; the graph stays usable and opens new ones."""
        self.repository.close()

    # -------------------------------------------------------------- adding and removing

    add_model = editing.add_model
    add_records = editing.add_records
    add_contents = editing.add_contents
    add_dataset = editing.add_dataset
    add_user = editing.add_user
    add_job = editing.add_job
    remove_model = editing.remove_model
    remove_dataset = editing.remove_dataset
    remove_user = editing.remove_user
    remove_job = editing.remove_job

    add_results = importers.add_results
    add_mlflow = importers.add_mlflow
    add_wandb = importers.add_wandb
    add_convergence = importers.add_convergence

    # -------------------------------------------------------------- questions

    most_used = usage.most_used
    jobs = usage.jobs
    module_statistics = usage.module_statistics
    best_modules = usage.best_modules

    is_a = analysis.is_a
    subclass_of = analysis.subclass_of
    families = analysis.families
    rank_frequency = analysis.rank_frequency
    importance = analysis.importance
    communities = analysis.communities
    overlap = analysis.overlap
    difference = analysis.difference
    similar = analysis.similar
    plot = analysis.plot

    equivalent = equivalence.equivalent
    same_as = equivalence.same_as

    predict = prediction.predict
    evaluate_prediction = prediction.evaluate_prediction
    suggest = prediction.suggest
    generate = prediction.generate

    to_networkx = exchange.to_networkx
    number_of_nodes = exchange.number_of_nodes
    number_of_edges = exchange.number_of_edges
    export = exchange.export

    # -------------------------------------------------------------- whole graphs

    def merge(self, other: KnowledgeGraph | Contents | Location, on_conflict: str = "error") -> None:
        """Adds everything of another graph.

        Models, data sets, users and jobs that both know by the same name but with other contents are conflicts.

        Parameters
        ----------
        other : KnowledgeGraph, Contents, str or path
            A graph, the contents of one, or the store of one that is there.
        on_conflict : {"error", "keep", "replace"}, default "error"
            Whether conflicts are an error, or this graph keeps its own, or takes those of the other.

        Raises
        ------
        DuplicateNameError
            For conflicts that are an error; nothing is changed then.
        StoreError
            For a graph of another scheme, and where there is no such store.
        UnknownNameError
            For another value of `on_conflict`.

        Examples
        --------
        >>> import torch, modulekg_widgets as mk
        >>> mine, yours = mk.KnowledgeGraph(), mk.KnowledgeGraph()
        >>> digest = yours.add_model(torch.nn.ReLU(), name="one")
        >>> mine.merge(yours)
        >>> mine.models
        ['one']
        """
        if on_conflict not in CONFLICTS:
            hint = closest_match_hint(str(on_conflict), CONFLICTS)
            raise UnknownNameError(f"a conflict cannot be met by {printable(str(on_conflict))!r}: {hint}")
        if not isinstance(other, Contents):
            other = (other if isinstance(other, KnowledgeGraph) else KnowledgeGraph(checked_existing(other))).contents()
        editing.add_contents(self, resolve_conflicts(self.contents(), other, on_conflict))

    def __enter__(self) -> KnowledgeGraph:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        if self.repository.store.url is None:
            raise StoreError("a graph in memory cannot leave its process: give it a store, or send its contents()")
        return (
            KnowledgeGraph,
            (self.repository.store.url.render_as_string(hide_password=False),),
            {"levels": self.levels},
        )

    def __repr__(self) -> str:
        return f"<KnowledgeGraph: {len(self.models)} models, {self.module_count} modules, {self.unique_count} unique>"

    def _repr_html_(self) -> str:
        figures = {
            "models": len(self.models), "modules": self.module_count, "different": self.unique_count,
            "data sets": len(self.datasets), "users": len(self.users), "jobs": len(self.repository.names_of("Job")),
        }  # fmt: skip
        heads = "".join(f"<th>{title}</th>" for title in figures)
        cells = "".join(f"<td>{figure:,}</td>" for figure in figures.values())
        where = html.escape(str(self.repository.store).encode("utf-8", "backslashreplace").decode())
        return f"<table><caption>Knowledge graph in {where}</caption><tr>{heads}</tr><tr>{cells}</tr></table>"


# -------------------- The public `mk.load_graph`: a graph from a file that `export` wrote


def load_graph(path: str | os.PathLike[str], store: Location | None = None) -> KnowledgeGraph:
    """The graph that `export` wrote as `.graphml`, `.cyjs` or `.jsonld`, in memory or added to what is in `store`.

    Parameters
    ----------
    path
        The file, whose ending names its format.
    store
        As that of `KnowledgeGraph`; by default the graph is in memory.

    Returns
    -------
    KnowledgeGraph
        With everything of the file.

    Raises
    ------
    GraphFileError
        For a file that is not such a graph; nothing is written then.
    DuplicateNameError
        Where the store knows a model, data set, user or job of the same name with other contents.

    Examples
    --------
    >>> import tempfile, torch, modulekg_widgets as mk
    >>> kg = mk.KnowledgeGraph()
    >>> digest = kg.add_model(torch.nn.Linear(2, 3), name="linear")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = kg.export(f"{folder}/zoo.graphml")
    ...     mk.load_graph(path).models
    ['linear']
    """
    contents = read_contents(path)
    graph = KnowledgeGraph(store, scheme=contents.scheme)
    graph.merge(contents)
    return graph
