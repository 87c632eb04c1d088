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
