"""Adding and removing of models, data sets, users and jobs, each call in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from modulekg_widgets.engine.errors import StoreError
from modulekg_widgets.engine.identity.skeleton_source import ModelLike
from modulekg_widgets.engine.knowledge.facts import jobs
from modulekg_widgets.engine.knowledge.facts.contents import Contents, DataSetNode, JobNode, UserNode
from modulekg_widgets.engine.knowledge.facts.records import ModelRecord
from modulekg_widgets.engine.knowledge.facts.traced import describe_model
from modulekg_widgets.engine.knowledge.facts.usage import unknown_name_error
from modulekg_widgets.engine.knowledge.repository import GraphParts
from modulekg_widgets.engine.knowledge.store import reader

# -------------------------------------------------------------- adding


def add_model(
    self: GraphParts,
    model: ModelLike,
    name: str | None = None,
    args: object = None,
    kwargs: Mapping[str, object] | None = None,
) -> str:
    """Add every module of `model`; one of the same name is replaced, its jobs stay.

    Parameters
    ----------
    model : torch.nn.Module or ModelFile
        It is not kept: only plain values are.
    name : str, optional
        By default the name of its class.
    args, kwargs : optional
        What its forward takes. With either a forward pass is traced without computing, and its cost, what feeds
        what and the operators are kept as well.

    Returns
    -------
    str
        The id of its root's node, which is its fingerprint.

    Raises
    ------
    NotAModuleError, BrokenModuleError, FingerprintError
        Where the model has no fingerprint, with the path; the graph stays as it was, as for all that follow.
    TraceError
        Where its forward pass cannot be followed, with the module and the line.
    UnknownNameError
        For a name that is no text.
    """
    record = describe_model(model, name, self.repository.scheme, args, kwargs, levels=self.levels)
    add_records(self, [record])
    return record.model.root


def add_records(self: GraphParts, records: Iterable[ModelRecord]) -> None:
    """Add models of which the records were made elsewhere, all in one transaction.

    Parameters
    ----------
    records : iterable of ModelRecord
        Made under the scheme of this graph; of two with the same name the last is kept.
    """
    merged = Contents(self.repository.scheme)
    for record in records:
        merged.modules.update(record.nodes)
        merged.models.pop(record.model.name, None)
        merged.models[record.model.name] = record.model
    add_contents(self, merged)


def add_contents(self: GraphParts, contents: Contents) -> None:
    """Add everything of `contents` in one transaction; what has a name that is taken is replaced.

    Parameters
    ----------
    contents : Contents
        Those of another graph, as its `contents()` gives them.

    Raises
    ------
    StoreError
        For contents of another scheme, or with a module whose parts are neither in them nor in the graph.
    """
    if contents.scheme != self.repository.scheme:
        raise StoreError(f"graphs of the schemes {self.repository.scheme!r} and {contents.scheme!r} cannot be merged")
    with self.repository.adding(contents) as (writer, _):
        writer.add(contents)


def add_dataset(self: GraphParts, name: str, **properties: object) -> str:
    """Add a data set, or give the one of that name other properties.

    Parameters
    ----------
    name : str
        It is the data set's key.
    **properties
        Plain values: None, bool, numbers, texts, bytes, datetimes, and tuples, lists and dicts of these. `suggest`
        reads `classes`, `image_size` (pixels) and `task`; how alike two data sets are goes by all.

    Returns
    -------
    str
        The id of its node, `DataSet:<name>`.

    Raises
    ------
    PropertyError
        For a property that is no plain value, by name.
    UnknownNameError
        For a name that is no text.
    """
    node = DataSetNode(jobs.checked_name(name, "data set"), jobs.checked_properties(properties))
    with self.repository.adding(Contents(self.repository.scheme, datasets={node.name: node})) as (writer, _):
        writer.add_named("DataSet", node)
    return f"DataSet:{name}"


def add_user(self: GraphParts, name: str, **properties: object) -> str:
    """Add a user, or give the one of that name other properties.

    Parameters
    ----------
    name : str
        It is the user's key.
    **properties
        Plain values, as those of `add_dataset`.

    Returns
    -------
    str
        The id of its node, `User:<name>`.

    Raises
    ------
    PropertyError
        For a property that is no plain value, by name.
    UnknownNameError
        For a name that is no text.
    """
    node = UserNode(jobs.checked_name(name, "user"), jobs.checked_properties(properties))
    with self.repository.adding(Contents(self.repository.scheme, users={node.name: node})) as (writer, _):
        writer.add_named("User", node)
    return f"User:{name}"


def add_job(
    self: GraphParts,
    *,
    user: str | None = None,
    dataset: str | None = None,
    model: str | None = None,
    accuracy: float | None = None,
    history: Mapping[str, jobs.Points] | jobs.Points | None = None,
    started: jobs.TimeLike = None,
    ended: jobs.TimeLike = None,
    name: str | None = None,
    **properties: object,
) -> str:
    """Add a training run of `model` on `dataset` by `user`; a job of the same name is replaced.

    Parameters
    ----------
    user, dataset, model : str, optional
        Each as it was added.
    accuracy : float, optional
        A fraction, or percent where it is above 1; by default the last accuracy of `history`, if that has one.
    history : sequence or mapping, optional
        Accuracies, or such by metric: values, whose steps count from 0, (step, value) pairs, or
        `{step: value}`.
    started, ended : datetime, date, str or float, optional
        Datetimes (local time without a zone), ISO texts or seconds since 1970; a job without either starts now.
    name : str, optional
        By default 32 random hexadecimal digits.
    **properties
        Plain values, as those of `add_dataset`.

    Returns
    -------
    str
        The id of its node, `Job:<name>`.

    Raises
    ------
    UnknownPathError
        For a user, data set or model that is not in the graph, with the nearest that are.
    PropertyError
        For an accuracy outside 0 … 100, also among `results`, a history or time that is none, an end before the
        start, or a property that is not a plain value.
    UnknownNameError
        For a name that is not text.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> kg = mk.KnowledgeGraph()
    >>> kg.add_job(history={"loss": [2.0, 1.1, 1.0], "accuracy": [0.2, 0.6, 0.61]}, name="run 1")
    'Job:run 1'
    >>> kg.jobs()[["accuracy", "convergence"]].values.tolist()
    [[0.61, 1.0]]
    """
    node = jobs.job_node(
        name, user=user, dataset=dataset, model=model, accuracy=accuracy, history=history, started=started,
        ended=ended, properties=properties,
    )  # fmt: skip
    with self.repository.adding(Contents(self.repository.scheme, jobs={node.name: node})) as (writer, connection):
        for kind, end in (("User", user), ("DataSet", dataset), ("Model", model)):
            if end is not None and writer.id_of(kind, end) is None:
                raise unknown_name_error(kind.lower(), end, reader.names_of(connection, kind))
        writer.add_job(node)
    return f"Job:{node.name}"


# -------------------------------------------------------------- removing


def remove_model(self: GraphParts, name: str) -> None:
    """Remove a model and the modules that no other model contains; its jobs stay, with no model.

    Parameters
    ----------
    name : str
        As it was added.

    Raises
    ------
    UnknownPathError
        Where there is none, with the names that are near.
    """
    _remove(self, "Model", name)


def remove_dataset(self: GraphParts, name: str) -> None:
    """Remove a data set; its jobs stay, with no data set.

    Parameters
    ----------
    name : str
        As it was added.

    Raises
    ------
    UnknownPathError
        Where there is none, with the names that are near.
    """
    _remove(self, "DataSet", name)


def remove_user(self: GraphParts, name: str) -> None:
    """Remove a user; the jobs stay, with no user.

    Parameters
    ----------
    name : str
        As it was added.

    Raises
    ------
    UnknownPathError
        Where there is none, with the names that are near.
    """
    _remove(self, "User", name)


def remove_job(self: GraphParts, name: str) -> None:
    """Remove a job.

    Parameters
    ----------
    name : str
        Its name, or the id that `add_job` gave.

    Raises
    ------
    UnknownPathError
        Where there is none, with the names that are near.
    """
    is_id = isinstance(name, str) and name.startswith("Job:") and name not in self.repository.names_of("Job")
    _remove(self, "Job", name.removeprefix("Job:") if is_id else name)


def _remove(graph: GraphParts, kind: str, name: str) -> None:
    with graph.repository.changing(lambda known: _without_node(known, kind, name)) as (writer, connection):
        if not isinstance(name, str) or writer.id_of(kind, name) is None:
            raise unknown_name_error(kind.lower(), name, reader.names_of(connection, kind))
        writer.remove_model(name) if kind == "Model" else writer.remove_named(kind, name)


def _without_node(known: Contents, kind: str, name: str) -> Contents | None:
    """Returns `known` without a node, as it would be read; None if more may change than that."""
    if kind == "Model":
        return _without_model(known, name)
    place, end = {"DataSet": ("datasets", "dataset"), "User": ("users", "user"), "Job": ("jobs", None)}[kind]
    rest = {key: node for key, node in getattr(known, place).items() if key != name}
    return replace(known, **({place: rest} if end is None else {place: rest, "jobs": _jobs_without(known, end, name)}))


def _without_model(known: Contents, name: str) -> Contents | None:
    """Returns `known` without a model and the structures of it alone.

    None for a graph with modules of no model, which may contain one of these, and under the seed's scheme.
    """
    models = {key: model for key, model in known.models.items() if key != name}
    used = {key for model in models.values() for key, _ in model.occurrences}
    own = {key for key, _ in known.models[name].occurrences}
    if known.scheme == "seed" or not known.modules.keys() <= used | own:
        return None
    modules = {key: node for key, node in known.modules.items() if key in used}
    return replace(known, modules=modules, models=models, jobs=_jobs_without(known, "model", name))


def _jobs_without(known: Contents, end: str, name: str) -> dict[str, JobNode]:
    """Returns the jobs; those of a removed node without it."""
    gone: dict[str, object] = {end: None}
    return {key: replace(job, **gone) if getattr(job, end) == name else job for key, job in known.jobs.items()}
