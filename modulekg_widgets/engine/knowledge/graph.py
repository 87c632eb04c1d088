"""The public class `KnowledgeGraph`: models merged by the structure of their modules.

Identical modules of many models are one node with all of its occurrences. The graph lies in a store: in memory, in an
SQLite file, or in PostgreSQL. This file opens, merges and prints it; reading is in repository.py, adding and removing
in editing.py, results of others in importers.py, and the questions that it answers in questions/, a file for each
subject.

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
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from modulekg_widgets.engine.errors import (
    DuplicateNameError,
    StoreError,
    UnknownNameError,
    closest_match_hint,
    printable,
)
from modulekg_widgets.engine.identity.levels import checked_level_method
from modulekg_widgets.engine.knowledge.exchange import read_contents
from modulekg_widgets.engine.knowledge.facts.contents import Contents
from modulekg_widgets.engine.knowledge.facts.property_values import encode
from modulekg_widgets.engine.knowledge.facts.records import ModelNode, checked_scheme
from modulekg_widgets.engine.knowledge.importers import ResultsGraph
from modulekg_widgets.engine.knowledge.questions.analysis import AnalysisQuestions
from modulekg_widgets.engine.knowledge.questions.equivalence import EquivalenceQuestions
from modulekg_widgets.engine.knowledge.questions.exchange import ExchangeQuestions
from modulekg_widgets.engine.knowledge.questions.prediction import PredictionQuestions
from modulekg_widgets.engine.knowledge.questions.usage import UsageQuestions
from modulekg_widgets.engine.knowledge.store.database import Location, checked_existing

# -------------------- Merging of two graphs with a policy for nodes of the same name and other contents


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


def _conflicts(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    return [name for name, node in theirs.items() if name in ours and not _is_same_node(ours[name], node)]


def _is_same_node(one: Any, other: Any) -> bool:
    """True if the nodes are equal, with NaN equal to NaN."""
    return one == other or (not isinstance(one, ModelNode) and encode(asdict(one)) == encode(asdict(other)))


def _without_known(theirs: Mapping[str, Any], ours: Mapping[str, Any], but: list[str]) -> dict[str, Any]:
    """Returns the nodes that only `theirs` has, and those that replace ours."""
    return {name: node for name, node in theirs.items() if name not in ours or name in but}


# ----------------------------------------


CONFLICTS = ("error", "keep", "replace")


class KnowledgeGraph(
    ResultsGraph, UsageQuestions, AnalysisQuestions, EquivalenceQuestions, PredictionQuestions, ExchangeQuestions
):
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
        super().__init__(store, None if scheme is None else checked_scheme(scheme))
        self.builders = {}

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
        self.add_contents(resolve_conflicts(self.contents(), other, on_conflict))

    def __enter__(self) -> KnowledgeGraph:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._store.url is None:
            raise StoreError("a graph in memory stays in its process: give it a store, or send its contents()")
        return KnowledgeGraph, (self._store.url.render_as_string(hide_password=False),), {"levels": self.levels}

    def __repr__(self) -> str:
        return f"<KnowledgeGraph: {len(self.models)} models, {self.module_count} modules, {self.unique_count} unique>"

    def _repr_html_(self) -> str:
        figures = {
            "models": len(self.models), "modules": self.module_count, "different": self.unique_count,
            "data sets": len(self.datasets), "users": len(self.users), "jobs": len(self._names_of("Job")),
        }  # fmt: skip
        heads = "".join(f"<th>{title}</th>" for title in figures)
        cells = "".join(f"<td>{figure:,}</td>" for figure in figures.values())
        where = html.escape(str(self._store).encode("utf-8", "backslashreplace").decode())
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
