"""Methods of the graph that import results and runs: result tables, MLflow, Weights & Biases, convergence."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from modulekg_widgets.engine.knowledge.editing import add_contents
from modulekg_widgets.engine.knowledge.facts.contents import Contents
from modulekg_widgets.engine.knowledge.repository import GraphParts

if TYPE_CHECKING:
    import pandas as pd

    from modulekg_widgets.engine.knowledge.imports.result_tables import AddedResults


def add_results(
    self: GraphParts,
    table: pd.DataFrame | str | os.PathLike[str],
    dataset: str | None = None,
    target: str | None = None,
    *,
    model: str = "model",
    value: str = "value",
    training: str | Sequence[str] = ("tag", "image_size"),
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
        graph are added. "accuracy", "top1" and the like are called "acc@1".
    model, value : str
        The columns of the models' names in the graph, also with a tag of the training behind a dot, and of the
        values.
    training : str or sequence of str
        The columns that tell how a model was trained; they become properties of its jobs.
    unit : str or mapping, optional
        Of the values, or by target; by default what a column `unit` says. Percents and fractions are compared, and
        of latencies all units of time.
    device : str, optional
        Where all of it was measured; by default what a column `device` says.
    columns : mapping, optional
        Other names of the table's columns: those above, or of columns of values the targets.

    Returns
    -------
    AddedResults
        `.added`, `.jobs`, and `.left_out`, by row the reason: unknown models, values that are not numbers, the same
        twice, fractions among percents, accuracies and other shares out of 0 to 100 %; `.notes` tells of values in
        a unit in which they do not count beside others.

    Raises
    ------
    PropertyError
        For a table without such columns, and arguments that are none; nothing is written then.
    UnknownNameError
        For a name that is not text.
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
    row 1: no model is called 'large': known: 'small'
    """
    from modulekg_widgets.engine.knowledge.imports import result_tables
    from modulekg_widgets.engine.knowledge.imports.result_tables import result_columns

    about = result_columns(dataset, target, model, value, training, unit, device, columns)
    contents, report = result_tables.jobs_from_table(result_tables.read_table(table), about, self.contents())
    add_contents(self, contents)
    return report


def add_mlflow(
    self: GraphParts, path: str | os.PathLike[str], accuracy: str = "accuracy", model: str = "model"
) -> list[str]:
    """Add the runs of an MLflow store as jobs, with their data sets and users.

    A job is named by the run's id: the same run again replaces itself. Deleted runs are left out. File stores need
    the extra `[mlflow]`, databases nothing.

    Parameters
    ----------
    path : str or path
        An SQLite database (`mlflow.db`, also as `sqlite:///mlflow.db`), the `mlruns/` folder of a file store, or
        the folder that either is in, `mlruns/` first. It is only read.
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
        For what is no such store, is damaged, or takes longer to read than it should; nothing is written then.
    MissingPackageError
        Without the extra.
    """
    from modulekg_widgets.engine.knowledge.imports.mlflow import mlflow_jobs

    datasets, users, runs = mlflow_jobs(path, accuracy, model, known=set(self.repository.names_of("Model")))
    ours = self.contents()
    add_contents(
        self,
        Contents(
            self.repository.scheme,
            datasets={node.name: node for node in datasets if node.name not in ours.datasets},
            users={node.name: node for node in users if node.name not in ours.users},
            jobs={job.name: job for job in runs},
        ),
    )
    return [f"Job:{job.name}" for job in runs]


def add_wandb(
    self: GraphParts,
    *paths: str | os.PathLike[str],
    model: str = "model",
    dataset: str | None = None,
    accuracy: str = "accuracy",
    targets: Mapping[str, str] | None = None,
    unit: str | Mapping[str, str] | None = None,
    training: str | Sequence[str] = ("tag", "image_size"),
) -> AddedResults:
    """Add the runs that Weights & Biases exported as CSV: its table of runs, and charts of them for histories.

    Each run of a model of the graph is a job, named by its id if the table has that column. The same run again
    replaces itself and keeps its history; charts may come later, too. A key of a configuration is called as in the
    table or, where the summary has it as well, `config.key`, the other one `summary.key`.

    Parameters
    ----------
    *paths : str or path
        CSV files, as the page of W&B exports them: tables of runs, with a column "Name", and charts, with a column
        "<run> - <metric>" for each line, over "Step" best.
    model : str
        The column with the model's name in the graph.
    dataset : str, optional
        The column with the data set, or a data set of the graph that all runs are of; by default a column
        "dataset", if there is one.
    accuracy : str
        The column or metric of which the last value is the job's accuracy; "accuracy" stands for its other usual
        names, too.
    targets : mapping, optional
        Other columns that hold results, each with its target.
    unit : str or mapping, optional
        Of these results, or by target.
    training : str or sequence of str
        Columns that tell how a model was trained; they become properties of its jobs.

    Returns
    -------
    AddedResults
        `.added`, `.jobs`, and `.left_out`, by run, result or line of a chart the reason: unknown models, what is no
        number, lines of no run, or of runs that are called alike.

    Raises
    ------
    GraphFileError
        For a file that cannot be read or is damaged; nothing is written then.
    PropertyError
        For a file of another kind, and without the columns that were named.

    Examples
    --------
    >>> import pandas as pd, torch, modulekg_widgets as mk
    >>> kg = mk.KnowledgeGraph()
    >>> digest = kg.add_model(torch.nn.Linear(2, 3), name="small")
    >>> runs = {"Name": ["first", "second"], "State": "finished", "arch": ["small", "large"], "loss": 0.5}
    >>> pd.DataFrame(runs).to_csv("runs.csv", index=False)
    >>> pd.DataFrame({"Step": [0, 1], "first - val_acc": [0.4, 0.9]}).to_csv("chart.csv", index=False)
    >>> print(kg.add_wandb("runs.csv", "chart.csv", model="arch", targets={"loss": "loss"}, unit="nats"))
    3 results of 1 jobs added, 1 runs left out
    run second: no model is called 'large': known: 'small'
    """
    from modulekg_widgets.engine.knowledge.imports import wandb

    about = wandb.wandb_columns(model, dataset, accuracy, targets, unit, training)
    tables = [wandb.read_wandb_table(path) for path in paths]
    contents, report = wandb.wandb_jobs(tables, about, self.contents())
    add_contents(self, contents)
    return report


def add_convergence(
    self: GraphParts, metric: str = "accuracy", *, reach: float, falls: bool | None = None
) -> AddedResults:
    """Add the steps until a metric reaches a value as a result of every job whose history tells them.

    The target is called by both, as "steps to accuracy 0.9", and is predicted as any other; what it predicts is of
    runs that get there. Steps are as each history counts them: do not mix epochs and batches.

    Parameters
    ----------
    metric : str
        As histories call it; "accuracy" stands for its other usual names, too.
    reach : float
        The value; of accuracies and other shares a fraction, or percent where it is above 1.
    falls : bool, optional
        Whether the metric gets better by falling; by default what its name says, as "loss" does.

    Returns
    -------
    AddedResults
        `.added`, `.jobs`, and `.left_out`, by job the reason: another history, or one that does not get there.

    Raises
    ------
    UnknownNameError
        For a metric that no history has, with those that are near.
    PropertyError
        For a value that is none, and a metric of which nobody says whether it falls; nothing is written then.

    Examples
    --------
    >>> import torch, modulekg_widgets as mk
    >>> kg = mk.KnowledgeGraph()
    >>> digest = kg.add_model(torch.nn.Linear(2, 3), name="small")
    >>> for name, values in {"slow": [0.2, 0.6, 0.9], "quick": [0.5, 0.92], "weak": [0.1, 0.3]}.items():
    ...     job = kg.add_job(model="small", history={"accuracy": values}, name=name)
    >>> print(kg.add_convergence("accuracy", reach=0.9))
    2 results of 2 jobs added, 1 jobs left out
    job weak: it does not reach 0.9: its best is 0.3
    """
    from modulekg_widgets.engine.knowledge.imports.convergence import convergence_goal, steps_to_goal

    goal = convergence_goal(metric, reach, falls)
    contents, report = steps_to_goal(goal, self.contents())
    add_contents(self, contents)
    return report
