"""Questions answered by the structures alone: types, frequencies, centrality and overlap of models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modulekg_widgets.engine.knowledge.repository import GraphParts

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import nn

    from modulekg_widgets.engine.knowledge.analysis.rank_frequency import RankFrequency

# -------------------------------------------------------------- relations


def is_a(self: GraphParts, level: int = 1) -> pd.DataFrame:
    """Returns the abstract type of each module, and its differences from most modules of the type.

    Parameters
    ----------
    level : {1, 2}, default 1
        1: a type is a class with the ordered types of the children; 2, families by depth: equal children in a row
        count once.

    Returns
    -------
    pandas.DataFrame
        `node` and `type` (display names) and `differs`: the hyper-parameters that are not the most frequent of the
        type; where there are none, the shapes of own tensors; else `children` (their number) or `slots` (their
        names). Large types come first, those with one module are left out.

    Raises
    ------
    UnknownNameError
        For another level.

    Examples
    --------
    >>> import torch, modulekg_widgets as mk
    >>> kg = mk.KnowledgeGraph()
    >>> digest = kg.add_model(torch.nn.Sequential(*map(torch.nn.Dropout, (0.1, 0.1, 0.5))))
    >>> kg.is_a()["differs"].tolist()
    [{}, {'p': 0.5}]
    """
    from modulekg_widgets.engine.knowledge.analysis import module_types

    return module_types.is_a(self.contents(), level)


def subclass_of(self: GraphParts) -> pd.DataFrame:
    """Every class with the classes above it, as `class`, `base` and `max_difference` in the order of resolution."""
    from modulekg_widgets.engine.knowledge.analysis import module_types

    return module_types.subclass_of(self.contents())


def families(self: GraphParts) -> pd.DataFrame:
    """The models that differ in depth and sizes alone, as `family`, `count`, `models`, `class`."""
    from modulekg_widgets.engine.knowledge.analysis import module_types

    return module_types.families(self.contents())


# -------------------------------------------------------------- statistics


def rank_frequency(self: GraphParts, level: str | None = None) -> RankFrequency:
    """Returns structures by frequency of use, with a fitted power law and its alternatives.

    Parameters
    ----------
    level : {"model", "stage", "block", "op"}, optional
        Counts only occurrences at that level of the hierarchy.

    Returns
    -------
    RankFrequency
        `table` (`rank` from 1, `count`, `name`), and, fitted when asked for, `alpha`, `xmin`, `sigma`,
        `comparisons` and `verdict`, which need the extra `[analysis]`.

    Raises
    ------
    UnknownNameError
        For another level.

    Examples
    --------
    >>> import torch, modulekg_widgets as mk
    >>> kg = mk.KnowledgeGraph()
    >>> digest = kg.add_model(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.ReLU(), torch.nn.Linear(2, 2)))
    >>> kg.rank_frequency(level="op").table["count"].tolist()
    [2, 1]
    """
    from modulekg_widgets.engine.knowledge.analysis import rank_frequency as frequencies

    return frequencies.rank_frequency(self.contents(), level)


def importance(self: GraphParts, measure: str = "pagerank", level: str | None = None) -> pd.DataFrame:
    """The modules by how central they are; edges run from container to content.

    Parameters
    ----------
    measure : {"pagerank", "in_degree", "models", "closeness", "betweenness"}, default "pagerank"
        PageRank with damping 0.85; the number of structures that contain it directly; the number of models with
        it; nearness to what contains it (Wasserman & Faust 1994); the share of shortest paths through it, slow
        without igraph.
    level : {"model", "stage", "block", "op"}, optional
        Only what occurs at that level of some model, by its importance among all.

    Returns
    -------
    pandas.DataFrame
        `name` and a column called like the measure, highest first.

    Raises
    ------
    UnknownNameError
        For another measure or level.

    Examples
    --------
    >>> import torch, modulekg_widgets as mk
    >>> kg = mk.KnowledgeGraph()
    >>> inner = torch.nn.Sequential(torch.nn.ReLU())
    >>> digest = kg.add_model(torch.nn.Sequential(inner, torch.nn.ReLU()))
    >>> kg.importance("in_degree")["in_degree"].tolist()
    [2, 1, 0]
    """
    from modulekg_widgets.engine.knowledge.analysis import centrality

    return centrality.importance(self.contents(), measure, level)


def communities(self: GraphParts, method: str = "louvain", seed: int = 0, level: str | None = None) -> pd.DataFrame:
    """Returns communities of modules: groups that are built of each other more than of others.

    Parameters
    ----------
    method : {"louvain", "leiden"}, default "louvain"
        "leiden" needs the extra `[analysis]`.
    seed : int, default 0
        From 0 on; the same seed gives the same answer.
    level : {"model", "stage", "block", "op"}, optional
        Only what occurs at that level of some model, in the communities of all.

    Returns
    -------
    pandas.DataFrame
        `name`, `community` (from 0 by falling size), `class`, `count` (occurrences); `.attrs["modularity"]` is
        Newman's Q of the partition, `.attrs["names"]` a name for each community by its number: the families,
        models or classes that more of its structures have than others; all are distinct.

    Raises
    ------
    UnknownNameError
        For another method or level, or a seed that is none.
    MissingPackageError
        Where the packages of the method are not installed.

    Examples
    --------
    >>> import torch, modulekg_widgets as mk
    >>> kg = mk.KnowledgeGraph()
    >>> for name, act in {"a": torch.nn.ReLU(), "b": torch.nn.GELU()}.items():
    ...     digest = kg.add_model(torch.nn.Sequential(act, torch.nn.Sequential(act)), name=name)
    >>> found = kg.communities()
    >>> found["community"].tolist(), found.attrs["modularity"]
    ([0, 0, 0, 1, 1, 1], 0.5)
    >>> found.attrs["names"]
    ['a', 'b']
    """
    from modulekg_widgets.engine.knowledge.analysis import communities as partitions

    return partitions.communities(self.contents(), method, seed, level)


# -------------------------------------------------------------- comparison


def overlap(self: GraphParts, shared: bool = False) -> pd.DataFrame:
    """Returns the share of common structures of each two models.

    Parameters
    ----------
    shared : bool, default False
        Whether to count the structures that both have, instead of the Jaccard index.

    Returns
    -------
    pandas.DataFrame
        Of shape (models, models), labelled with their names in the order of adding: shared structures by all of
        both, 0 … 1, or the number of shared ones.

    Examples
    --------
    >>> import torch, modulekg_widgets as mk
    >>> kg = mk.KnowledgeGraph()
    >>> for name, act in {"a": torch.nn.ReLU(), "b": torch.nn.GELU()}.items():
    ...     digest = kg.add_model(torch.nn.Sequential(torch.nn.Linear(2, 2), act), name=name)
    >>> kg.overlap().loc["a"].tolist(), kg.overlap(shared=True).loc["a"].tolist()
    ([1.0, 0.2], [3, 1])
    """
    from modulekg_widgets.engine.knowledge.analysis import similarity

    return similarity.overlap(self.contents(), shared)


def difference(self: GraphParts, a: str, b: str) -> pd.DataFrame:
    """Returns the modules of two models with their number of occurrences in each.

    Parameters
    ----------
    a, b : str
        Models of the graph.

    Returns
    -------
    pandas.DataFrame
        `name`, `class`, `where` ("first", "second" or "both", in this order), `first` and `second` (occurrences).

    Raises
    ------
    UnknownPathError
        For an unknown model, with the names that are near.

    Examples
    --------
    >>> import torch, modulekg_widgets as mk
    >>> kg = mk.KnowledgeGraph()
    >>> for name, act in {"a": torch.nn.ReLU(), "b": torch.nn.GELU()}.items():
    ...     digest = kg.add_model(torch.nn.ModuleList([torch.nn.Linear(2, 2), act]), name=name)
    >>> kg.difference("a", "b").query("`class` == 'Linear'")[["where", "first", "second"]].values.tolist()
    [['both', 1, 1]]
    """
    from modulekg_widgets.engine.knowledge.analysis import similarity

    return similarity.difference(self.contents(), a, b)


def similar(self: GraphParts, model: nn.Module | str, n: int = 10) -> pd.DataFrame:
    """The models of the graph that are most like one by their structure; `mk.diff` tells in what two differ.

    Parameters
    ----------
    model : torch.nn.Module or str
        A module, or the name of a model of the graph, which is not among the answers.
    n : int, default 10
        How many.

    Returns
    -------
    pandas.DataFrame
        The likest first: `model`; `similarity`, from 0 to 1, of the kinds of operations, their surroundings and the
        classes that occur; `shared`, the part of the model's modules that the other one has as well.

    Raises
    ------
    UnknownNameError
        For a name that is of no model, and a number that is none.
    NotAModuleError, BrokenModuleError, FingerprintError
        For a module that has no fingerprint.

    Examples
    --------
    >>> import torch, modulekg_widgets as mk
    >>> kg = mk.KnowledgeGraph()
    >>> for width in (2, 3):
    ...     layers = torch.nn.Linear(1, width), torch.nn.ReLU()
    ...     digest = kg.add_model(torch.nn.Sequential(*layers), name=f"of {width}")
    >>> kg.similar("of 2")[["model", "shared"]].round(2).values.tolist()
    [['of 3', 0.33]]
    """
    from modulekg_widgets.engine.knowledge.analysis.similarity import SimilarityIndex
    from modulekg_widgets.engine.knowledge.facts.traced import describe_model
    from modulekg_widgets.engine.knowledge.facts.usage import checked_number
    from modulekg_widgets.engine.knowledge.prediction.data.features import find_record

    n, contents = checked_number(n), self.contents()
    known = isinstance(model, str)
    record = find_record(contents, model) if known else describe_model(model, None, contents.scheme)
    return self.repository.derived("similarity", SimilarityIndex).most_similar(record, n, model if known else None)


def plot(self: GraphParts, question: str, *args: object, ax: Axes | None = None, **kwargs: object) -> Figure | Axes:
    """Plots the answer to a question with matplotlib.

    Parameters
    ----------
    question : str
        One of most_used, rank_frequency, importance, communities, overlap, difference, is_a, families.
    *args
        What the method of that name takes.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default a new figure, which pyplot does not know.
    **kwargs
        What the method takes by keyword.

    Returns
    -------
    matplotlib.figure.Figure or matplotlib.axes.Axes
        The figure, or `ax`.

    Raises
    ------
    UnknownNameError
        For another question.

    Examples
    --------
    >>> import torch, modulekg_widgets as mk
    >>> kg = mk.KnowledgeGraph()
    >>> digest = kg.add_model(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.ReLU()))
    >>> kg.plot("most_used", 10, level="op").axes[0].get_title()
    'Most used structures'
    """
    from modulekg_widgets.engine.knowledge.analysis.plots import PLOTS

    draw = PLOTS[question]
    return draw(getattr(self, question)(*args, **kwargs), ax=ax)
