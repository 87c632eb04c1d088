"""How a knowledge graph grows and shrinks: what is added and removed, each time in one transaction."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from modulekg_widgets.engine.errors import StoreError
from modulekg_widgets.engine.knowledge import jobs
from modulekg_widgets.engine.knowledge.contents import Contents, DataSetNode, UserNode
from modulekg_widgets.engine.knowledge.records import ModelRecord
from modulekg_widgets.engine.knowledge.store import reading
from modulekg_widgets.engine.knowledge.store.writing import Writer
from modulekg_widgets.engine.knowledge.stored import StoredGraph
from modulekg_widgets.engine.knowledge.traced import described
from modulekg_widgets.engine.knowledge.usage import unknown

if TYPE_CHECKING:
    from modulekg_widgets.engine.knowledge.result_tables import AddedResults


class EditableGraph(StoredGraph):
    """What is written to a store: all of one call, or nothing."""

    # -------------------------------------------------------------- adding

    def add_model(
        self, model: nn.Module, name: str | None = None, args: Any = None, kwargs: Mapping[str, Any] | None = None
    ) -> str:
        """Add every module of `model`; one of the same name is replaced, its jobs stay.

        Parameters
        ----------
        model : torch.nn.Module
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
        record = described(model, name, self.scheme, args, kwargs)
        self.add_records([record])
        return record.model.root

    def add_records(self, records: Iterable[ModelRecord]) -> None:
        """Add models of which the records were made elsewhere, all in one transaction.

        Parameters
        ----------
        records : iterable of ModelRecord
            Made under the scheme of this graph; of two with the same name the last is kept.
        """
        merged = Contents(self.scheme)
        for record in records:
            merged.modules.update(record.nodes)
            merged.models.pop(record.model.name, None)
            merged.models[record.model.name] = record.model
        self.add_contents(merged)

    def add_contents(self, contents: Contents) -> None:
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
        if contents.scheme != self.scheme:
            raise StoreError(f"graphs of the schemes {self.scheme!r} and {contents.scheme!r} do not go together")
        with self._store.write() as connection:
            Writer(connection, self.scheme).add(contents)

    def add_dataset(self, name: str, **properties: Any) -> str:
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
        with self._store.write() as connection:
            Writer(connection, self.scheme).named("DataSet", node)
        return f"DataSet:{name}"

    def add_user(self, name: str, **properties: Any) -> str:
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
            For an accuracy outside 0 … 100, a history or time that is none, an end before the start, or a property
            that is no plain value.
        UnknownNameError
            For a name that is no text.

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
        with self._store.write() as connection:
            writer = Writer(connection, self.scheme)
            for kind, end in (("User", user), ("DataSet", dataset), ("Model", model)):
                if end is not None and writer.id_of(kind, end) is None:
                    raise unknown(kind.lower(), end, reading.names_of(connection, kind))
            writer.job(node)
        return f"Job:{node.name}"

    def add_results(
        self,
        table: Any,
        dataset: str | None = None,
        target: str | None = None,
        *,
        model: str = "model",
        value: str = "value",
        training: Sequence[str] = ("tag", "image_size"),
        unit: str | Mapping[str, str] | None = None,
        device: str | None = None,
        columns: Mapping[str, str] | None = None,
    ) -> AddedResults:
        """Add results of models of the graph, as published or as measured: each model, data set and training is a job.

        A result that is there already is replaced. Values are kept as they are given.

        Parameters
        ----------
        table : DataFrame, str or path
            With a row for each result, as `mk.published_results` gives it, or for each model, a column a target; a CSV
            file by its path.
        dataset, target : str, optional
            What holds for all rows; by default what the columns of these names say. Data sets that are not in the
            graph are added.
        model, value : str
            The columns of the models' names in the graph, also with a tag of the training behind a dot, and of the
            values.
        training : sequence of str
            The columns that tell how a model was trained; they become properties of its jobs.
        unit : str or mapping, optional
            Of the values, or by target; by default what a column `unit` says.
        device : str, optional
            Where all of it was measured; by default what a column `device` says.
        columns : mapping, optional
            Other names of the table's columns: those above, or of columns of values the targets.

        Returns
        -------
        AddedResults
            `.added`, `.jobs`, and `.left_out`, by row the reason: unknown models, values that are no numbers, the same
            twice, fractions among percents.

        Raises
        ------
        PropertyError
            For a table without such columns; nothing is written then.
        GraphFileError
            For a file that cannot be read.

        Examples
        --------
        >>> import pandas as pd, torch, modulekg_widgets as mk
        >>> kg = mk.KnowledgeGraph()
        >>> digest = kg.add_model(torch.nn.Linear(2, 3), name="small")
        >>> table = pd.DataFrame({"arch": ["small", "large"], "top1": [81.5, 83.0]})
        >>> print(kg.add_results(table, dataset="mine", columns={"arch": "model", "top1": "acc@1"}, unit="%"))
        1 results of 1 jobs added, 1 rows left out
        row 1: no model is called 'large': known are 'small'
        """
        from modulekg_widgets.engine.knowledge import result_tables

        about = result_tables.ResultTable(
            dataset, target, model, value, tuple(training), unit, device, dict(columns or {})
        )
        contents, report = result_tables.added_results(result_tables.read_table(table), about, self.contents())
        self.add_contents(contents)
        return report

    def add_mlflow(self, folder: str | os.PathLike[str], accuracy: str = "accuracy", model: str = "model") -> list[str]:
        """Add the runs of an MLflow file store as jobs, with their data sets and users.

        A job is named by the run's id: the same run again replaces itself. Deleted runs are left out. Needs the extra
        `[mlflow]`.

        Parameters
        ----------
        folder : str or path
            The `mlruns/` folder, or the one that it is in.
        accuracy : str
            The metric whose last value is the job's accuracy; "accuracy" stands for its other usual names, too.
        model : str
            The tag or parameter with the model's name; one that the graph does not know is left out.

        Returns
        -------
        list of str
            The ids of the jobs, oldest first.

        Raises
        ------
        GraphFileError
            For a folder that is no such store.
        MissingPackageError
            Without the extra.
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
        self._remove("Model", name)

    def remove_dataset(self, name: str) -> None:
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
        self._remove("DataSet", name)

    def remove_user(self, name: str) -> None:
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
        self._remove("User", name)

    def remove_job(self, name: str) -> None:
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
        is_id = isinstance(name, str) and name.startswith("Job:") and name not in self._names_of("Job")
        self._remove("Job", name.removeprefix("Job:") if is_id else name)

    def _remove(self, kind: str, name: str) -> None:
        with self._store.write() as connection:
            writer = Writer(connection, self.scheme)
            if not isinstance(name, str) or writer.id_of(kind, name) is None:
                raise unknown(kind.lower(), name, reading.names_of(connection, kind))
            writer.remove_model(name) if kind == "Model" else writer.remove_named(kind, name)
