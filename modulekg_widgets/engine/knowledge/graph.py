"""The knowledge graph of modules: identical modules of many models are one node, with all their uses.

What it holds lies in a store, in memory or in a database; the questions that it answers stand in questions.py.
"""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Mapping
from typing import Any

import networkx as nx
from torch import nn

from modulekg_widgets.engine.errors import StoreError, UnknownNameError, UnknownPathError, nearest, shown
from modulekg_widgets.engine.knowledge import jobs
from modulekg_widgets.engine.knowledge.contents import Contents, DataSetNode, UserNode
from modulekg_widgets.engine.knowledge.merging import without_conflicts
from modulekg_widgets.engine.knowledge.questions import Questions
from modulekg_widgets.engine.knowledge.records import ModelRecord, StructureNode, checked_scheme
from modulekg_widgets.engine.knowledge.store import reading
from modulekg_widgets.engine.knowledge.store.database import Location, Store, existing
from modulekg_widgets.engine.knowledge.store.writing import Writer
from modulekg_widgets.engine.knowledge.traced import described
from modulekg_widgets.engine.knowledge.trees import tree_of
from modulekg_widgets.engine.knowledge.usage import unknown

CONFLICTS = ("error", "keep", "replace")


class KnowledgeGraph(Questions):
    """Models merged by the structure of their modules, with data sets, users and training jobs.

    Threads and processes may open one store and write at the same time. Usable in a `with` statement, which closes it;
    a file that is open has a log beside it: close it before you copy it.

    Parameters
    ----------
    store
        None for a graph in memory, a path, or a URL: `zoo.db`, `sqlite:///zoo.db`, `postgresql://host/database`.
    scheme
        "structure", or "seed" to merge as the ModuleKG seed did; a store keeps the one that it was made with.

    Raises
    ------
    StoreError
        For a store that cannot be opened.

    Examples
    --------
    >>> import torch, modulekg_widgets as mk
    >>> kg = mk.KnowledgeGraph()
    >>> digest = kg.add_model(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.ReLU()), name="two")
    >>> kg.module_count, kg.unique_count
    (3, 2)
    >>> kg.most_used(1)["count"].tolist()
    [2]
    """

    def __init__(self, store: Location | None = None, *, scheme: str | None = None) -> None:
        self._store = Store(store, None if scheme is None else checked_scheme(scheme))
        self.builders = {}
        self._read: tuple[int, Contents] | None = None  # the contents at a revision of the store

    @property
    def scheme(self) -> str:
        return self._store.scheme

    # -------------------------------------------------------------- building

    def add_model(
        self, model: nn.Module, name: str | None = None, args: Any = None, kwargs: Mapping[str, Any] | None = None
    ) -> str:
        """Add every module of `model`; returns the id of its root's node, which is its fingerprint.

        `name` defaults to the name of the class; a model of the same name is replaced, its jobs stay. With `args` a
        forward pass is traced without computing, and its cost, what feeds what and the operators are kept as well.
        Raises an error that names the path where the model cannot be fingerprinted or followed, and then leaves the
        graph as it was.
        """
        record = described(model, name, self.scheme, args, kwargs)
        self.add_records([record])
        return record.model.root

    def add_records(self, records: Iterable[ModelRecord]) -> None:
        """Add models of which the records were made elsewhere, all in one transaction."""
        merged = Contents(self.scheme)
        for record in records:
            merged.modules.update(record.nodes)
            merged.models.pop(record.model.name, None)
            merged.models[record.model.name] = record.model
        self.add_contents(merged)

    def add_contents(self, contents: Contents) -> None:
        """Add everything of `contents` in one transaction; what has a name that is taken is replaced."""
        if contents.scheme != self.scheme:
            raise StoreError(f"graphs of the schemes {self.scheme!r} and {contents.scheme!r} do not go together")
        with self._store.write() as connection:
            Writer(connection, self.scheme).add(contents)

    def add_dataset(self, name: str, **properties: Any) -> str:
        """Add a data set with any plain properties, or give the one of that name others; returns the node's id."""
        node = DataSetNode(jobs.checked_name(name, "data set"), jobs.checked_properties(properties))
        with self._store.write() as connection:
            Writer(connection, self.scheme).named("DataSet", node)
        return f"DataSet:{name}"

    def add_user(self, name: str, **properties: Any) -> str:
        """Add a user with any plain properties, or give the one of that name others; returns the node's id."""
        node = UserNode(jobs.checked_name(name, "user"), jobs.checked_properties(properties))
        with self._store.write() as connection:
            Writer(connection, self.scheme).named("User", node)
        return f"User:{name}"

    def add_job(
        self,
        *,
        user: str | None = None,
        dataset: str | None = None,
        model: str | None = None,
        accuracy: float | None = None,
        history: Mapping[str, jobs.Points] | jobs.Points | None = None,
        started: jobs.Moment = None,
        ended: jobs.Moment = None,
        name: str | None = None,
        **properties: Any,
    ) -> str:
        """Add a training run of `model` on `dataset` by `user`, each named as it was added; returns the node's id.

        `accuracy` is a fraction, or percent where it is above 1; `history` a list of values, or of (step, value), or
        such lists by metric. `started` and `ended` are datetimes, ISO texts or seconds since 1970. A job of the same
        `name` is replaced. Raises `UnknownPathError` for a name that is not in the graph, with the nearest that are.
        """
        node = jobs.job_node(
            name, user=user, dataset=dataset, model=model, accuracy=accuracy, history=history, started=started,
            ended=ended, properties=properties,
        )  # fmt: skip
        with self._store.write() as connection:
            writer = Writer(connection, self.scheme)
            for kind, end in (("User", user), ("DataSet", dataset), ("Model", model)):
                if end is not None and writer.id_of(kind, end) is None:
                    raise unknown(kind.lower(), end, reading.names_of(connection, kind))
            writer.job(node)
        return f"Job:{node.name}"

    def merge(self, other: KnowledgeGraph | Contents | Location, on_conflict: str = "error") -> None:
        """Add everything of another graph, of its contents, or of the one in a store.

        Models, data sets, users and jobs that both know by the same name but with other contents are conflicts:
        "error" raises `DuplicateNameError` and changes nothing, "keep" keeps those of this graph, "replace" the others.
        """
        if on_conflict not in CONFLICTS:
            hint = nearest(str(on_conflict), CONFLICTS)
            raise UnknownNameError(f"a conflict cannot be met by {shown(str(on_conflict))!r}: {hint}")
        if not isinstance(other, Contents):
            other = (other if isinstance(other, KnowledgeGraph) else KnowledgeGraph(existing(other))).contents()
        self.add_contents(without_conflicts(self.contents(), other, on_conflict))

    def add_mlflow(self, folder: str | os.PathLike[str], accuracy: str = "accuracy", model: str = "model") -> list[str]:
        """Add the runs of an MLflow file store (`mlruns/`) as jobs, with their data sets and users; returns their ids.

        `accuracy` names the metric, `model` the tag or parameter with the model's name; one that the graph does not
        know is left out. The same run again replaces itself. Needs the extra `[mlflow]`. Raises `GraphFileError` for
        a folder that is no such store.
        """
        from modulekg_widgets.engine.knowledge.exchange.mlflow_runs import mlflow_jobs

        datasets, users, runs = mlflow_jobs(folder, accuracy, model, known=set(self.models))
        ours = self.contents()
        self.add_contents(
            Contents(
                self.scheme,
                datasets={node.name: node for node in datasets if node.name not in ours.datasets},
                users={node.name: node for node in users if node.name not in ours.users},
                jobs={job.name: job for job in runs},
            )
        )
        return [f"Job:{job.name}" for job in runs]

    # -------------------------------------------------------------- removing

    def remove_model(self, name: str) -> None:
        """Remove a model and the modules that no other model contains; its jobs stay, with no model."""
        self._remove("Model", name)

    def remove_dataset(self, name: str) -> None:
        """Remove a data set; its jobs stay, with no data set."""
        self._remove("DataSet", name)

    def remove_user(self, name: str) -> None:
        """Remove a user; the jobs stay, with no user."""
        self._remove("User", name)

    def remove_job(self, name: str) -> None:
        """Remove a job, by its name or the id that `add_job` gave."""
        is_id = isinstance(name, str) and name.startswith("Job:") and name not in self._names_of("Job")
        self._remove("Job", name.removeprefix("Job:") if is_id else name)

    def _remove(self, kind: str, name: str) -> None:
        with self._store.write() as connection:
            writer = Writer(connection, self.scheme)
            if not isinstance(name, str) or writer.id_of(kind, name) is None:
                raise unknown(kind.lower(), name, reading.names_of(connection, kind))
            writer.remove_model(name) if kind == "Model" else writer.remove_named(kind, name)

    # -------------------------------------------------------------- reading

    def contents(self) -> Contents:
        """All that the graph holds now, as plain records; read again only after somebody wrote. Not to be changed."""
        with self._store.read() as connection:
            revision = self._store.revision_in(connection)
            if self._read is None or self._read[0] != revision:
                self._read = revision, reading.read_contents(connection, self.scheme)
            return self._read[1]

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
            return reading.names_of(connection, kind)

    @property
    def module_count(self) -> int:
        """The number of modules over all models, root and containers included, each module object once."""
        with self._store.read() as connection:
            return reading.count_modules(connection)

    @property
    def unique_count(self) -> int:
        """The number of different structures."""
        with self._store.read() as connection:
            return reading.count_nodes(connection, "Module")

    @property
    def nodes(self) -> list[StructureNode]:
        """The structures, in the order in which they were added."""
        return list(self.contents().modules.values())

    def node(self, fingerprint: str) -> StructureNode:
        """The structure of a fingerprint's hexdigest, looked up in the store, or of a display name such as `ReLU854`.

        Raises `UnknownPathError`, for a name with those that are near.
        """
        with self._store.read() as connection:
            found = reading.read_module(connection, fingerprint) if isinstance(fingerprint, str) else None
        if found is not None:
            return found
        named = {name: key for key, name in self.contents().names.items()}
        if not isinstance(fingerprint, str) or fingerprint not in named:
            what = f"no module has the fingerprint or name {shown(str(fingerprint))!r}"
            raise UnknownPathError(f"{what}: {nearest(str(fingerprint), named)}")
        return self.contents().modules[named[fingerprint]]

    def names(self) -> dict[str, str]:
        """The display name of every node, `ReLU854`, with as many digits as keep those of a class apart."""
        return dict(self.contents().names)

    def tree(self, name: str) -> nx.DiGraph:
        """The hierarchy of a model: a node per dotted path with its `fingerprint`, successors in the order of children.

        A shared module stands under each of its paths; a cycle ends where it closes. Under the seed's scheme, which
        merges modules with other names of children, the names are those of the model that was added last. Raises
        `UnknownPathError` for an unknown model and `TooLargeError` beyond a million paths.
        """
        with self._store.read() as connection:
            model = reading.read_model(connection, name) if isinstance(name, str) else None
            if model is None:
                raise unknown("model", name, reading.names_of(connection, "Model"))
            keys = dict.fromkeys([model.root, *(key for key, _ in model.occurrences)])
            modules = reading.read_modules(connection, keys)
            reading.check_closed(name, keys, modules)
        return tree_of(model, modules)

    def close(self) -> None:
        """Give the connections to the store back; the graph stays usable and opens new ones."""
        self._store.close()
        self._read = None

    def __enter__(self) -> KnowledgeGraph:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._store.url is None:
            raise StoreError("a graph in memory stays in its process: give it a store, or send its contents()")
        return KnowledgeGraph, (self._store.url.render_as_string(hide_password=False),)

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
