"""The questions that a knowledge graph answers: tables, fits and files of all that it holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx

from modulekg_widgets.engine.knowledge.contents import Contents

if TYPE_CHECKING:
    import pandas as pd

    from modulekg_widgets.engine.knowledge.statistics import RankFrequency


class Questions(ABC):
    """What can be asked of `contents`; each answer is computed by the module of its subject."""

    @abstractmethod
    def contents(self) -> Contents:
        """All that the graph holds now."""

    # -------------------------------------------------------------- use

    def most_used(self, n: int = 10, level: str | None = None, **chosen: Any) -> pd.DataFrame:
        """The `n` structures with most occurrences, as `name`, `count`, `models`, `class`, `hyperparameters`.

        `level` counts only occurrences as `model`, `stage`, `block` or `op`; `models` is the number of models.
        `since`, `until`, `user` and `dataset` keep the models of such jobs; `over="jobs"` counts a model per job.
        """
        from modulekg_widgets.engine.knowledge.usage import most_used

        return most_used(self.contents(), n, level, **chosen)

    def jobs(self, **chosen: Any) -> pd.DataFrame:
        """Who trained what on which data: a row per job, oldest first.

        `user`, `dataset`, `model`, `since` and `until` keep the jobs of these alone.
        """
        from modulekg_widgets.engine.knowledge.usage import jobs_table

        return jobs_table(self.contents(), **chosen)

    def module_statistics(self, dataset: str | None = None, level: str | None = None) -> pd.DataFrame:
        """Accuracy (fractions) and convergence (steps) of each module over the jobs whose models contain it."""
        from modulekg_widgets.engine.knowledge.usage import module_statistics

        return module_statistics(self.contents(), dataset, level)

    def best_modules(self, n: int = 10, level: str | None = "block", **chosen: Any) -> pd.DataFrame:
        """The blocks (or what `level` says) that most of the `top` models with the best accuracy contain."""
        from modulekg_widgets.engine.knowledge.usage import best_modules

        return best_modules(self.contents(), n, level, **chosen)

    # -------------------------------------------------------------- relations

    def is_a(self, level: int = 1) -> pd.DataFrame:
        """The abstract type of each module, as `node`, `type` and `differs`: what is not as most of the type have it.

        Level 1: class and ordered types of the children; level 2, families by depth: equal runs of children are one.
        """
        from modulekg_widgets.engine.knowledge.relations import is_a

        return is_a(self.contents(), level)

    def subclass_of(self) -> pd.DataFrame:
        """Every class with the classes above it, as `class`, `base` and `distance` in the order of resolution."""
        from modulekg_widgets.engine.knowledge.relations import subclass_of

        return subclass_of(self.contents())

    def families(self) -> pd.DataFrame:
        """The models that differ in depth and sizes alone, as `family`, `count`, `models`, `class`."""
        from modulekg_widgets.engine.knowledge.relations import families

        return families(self.contents())

    # -------------------------------------------------------------- statistics and analysis

    def rank_frequency(self, level: str | None = None) -> RankFrequency:
        """How the uses of modules fall with their rank, with a fitted power law and its alternatives."""
        from modulekg_widgets.engine.knowledge.statistics import rank_frequency

        return rank_frequency(self.contents(), level)

    def importance(self, measure: str = "pagerank") -> pd.DataFrame:
        """The modules by `pagerank`, `in_degree`, `models`, `closeness` or `betweenness`, highest first."""
        from modulekg_widgets.engine.knowledge.analysis import importance

        return importance(self.contents(), measure)

    def communities(self, method: str = "louvain", seed: int = 0) -> pd.DataFrame:
        """Modules that occur together, as `name`, `community`, `class`, `count`; `.attrs["modularity"]` tells how well.

        `method="leiden"` needs the extra `[analysis]`.
        """
        from modulekg_widgets.engine.knowledge.communities import communities

        return communities(self.contents(), method, seed)

    def overlap(self, shared: bool = False) -> pd.DataFrame:
        """What share of their modules (Jaccard) each two models have in common, or how many with `shared`."""
        from modulekg_widgets.engine.knowledge.comparison import overlap

        return overlap(self.contents(), shared)

    def difference(self, a: str, b: str) -> pd.DataFrame:
        """The modules of two models, and how often each has them: `name`, `class`, `where`, `first`, `second`."""
        from modulekg_widgets.engine.knowledge.comparison import difference

        return difference(self.contents(), a, b)

    def plot(self, question: str, *args: Any, ax: Any = None, **kwargs: Any) -> Any:
        """A picture (matplotlib) of what a question answers: `kg.plot("most_used", 10, level="op")`.

        Questions: most_used, rank_frequency, importance, communities, overlap, is_a, families. Returns a Figure, or
        draws into `ax` and returns it. Raises `UnknownNameError` for another question.
        """
        from modulekg_widgets.engine.knowledge.plots import PLOTS

        draw = PLOTS[question]
        return draw(getattr(self, question)(*args, **kwargs), ax=ax)

    # -------------------------------------------------------------- exchange

    def to_networkx(self, types: Iterable[str] | str | None = None) -> nx.DiGraph:
        """The graph for networkx: a node per structure, an edge from container to content with `count` and `order`.

        Once data sets, users or jobs are known, these and the models are nodes as well; `types` chooses others, "all"
        includes the types of modules. Attributes of structures: `name`, `class`, `hyperparameters`, `count`, `models`.
        """
        from modulekg_widgets.engine.knowledge.property_graph import to_networkx

        return to_networkx(self.contents(), types)

    def export(self, path: str | Path) -> Path:
        """Write the graph in the format of the file's extension; returns the path. The file appears whole or not."""
        from modulekg_widgets.engine.knowledge.exchange import export_contents

        return export_contents(self.contents(), Path(path))
