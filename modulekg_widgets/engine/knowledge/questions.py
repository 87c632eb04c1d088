"""The questions that a knowledge graph answers: tables, fits and files of all that it holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx

from modulekg_widgets.engine.knowledge.contents import Contents

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

    from modulekg_widgets.engine.knowledge.analysis.rank_frequency import RankFrequency
    from modulekg_widgets.engine.knowledge.jobs import Moment
    from modulekg_widgets.engine.knowledge.prediction.predictor import Prediction, Predictor
    from modulekg_widgets.engine.knowledge.records import ModelRecord
    from modulekg_widgets.engine.knowledge.suggestion.candidates import Candidate, Ranking
    from modulekg_widgets.engine.knowledge.suggestion.generation import Generated


class Questions(ABC):
    """What can be asked of `contents`; each answer is computed by the module of its subject."""

    builders: dict[str, Callable[[], nn.Module]]  # of models by name, as far as this session knows them
    _fitted: tuple[Contents, str, Predictor] | None = None

    @abstractmethod
    def contents(self) -> Contents:
        """All that the graph holds now."""

    # -------------------------------------------------------------- use

    def most_used(
        self,
        n: int = 10,
        level: str | None = None,
        *,
        over: str = "models",
        since: Moment = None,
        until: Moment = None,
        user: str | None = None,
        dataset: str | None = None,
    ) -> pd.DataFrame:
        """The `n` structures with most occurrences, as `name`, `count`, `models`, `class`, `hyperparameters`.

        `level` counts only occurrences as `model`, `stage`, `block` or `op`; `models` is the number of models.
        `since`, `until`, `user` and `dataset` keep the models of such jobs; `over="jobs"` counts a model per job.
        """
        from modulekg_widgets.engine.knowledge.usage import most_used

        return most_used(self.contents(), n, level, over=over, since=since, until=until, user=user, dataset=dataset)

    def jobs(
        self,
        user: str | None = None,
        dataset: str | None = None,
        model: str | None = None,
        since: Moment = None,
        until: Moment = None,
    ) -> pd.DataFrame:
        """Who trained what on which data: a row per job, oldest first; the arguments keep the jobs of these alone."""
        from modulekg_widgets.engine.knowledge.usage import jobs_table

        return jobs_table(self.contents(), user, dataset, model, since, until)

    def module_statistics(self, dataset: str | None = None, level: str | None = None) -> pd.DataFrame:
        """Accuracy (fractions) and convergence (steps) of each module over the jobs whose models contain it."""
        from modulekg_widgets.engine.knowledge.usage import module_statistics

        return module_statistics(self.contents(), dataset, level)

    def best_modules(
        self, n: int = 10, level: str | None = "block", *, dataset: str | None = None, top: int = 5
    ) -> pd.DataFrame:
        """The blocks (or what `level` says) that most of the `top` models with the best accuracy contain."""
        from modulekg_widgets.engine.knowledge.usage import best_modules

        return best_modules(self.contents(), n, level, dataset=dataset, top=top)

    # -------------------------------------------------------------- relations

    def is_a(self, level: int = 1) -> pd.DataFrame:
        """The abstract type of each module, as `node`, `type` and `differs`: what is not as most of the type have it.

        Level 1: class and ordered types of the children; level 2, families by depth: equal runs of children are one.
        """
        from modulekg_widgets.engine.knowledge.analysis.relations import is_a

        return is_a(self.contents(), level)

    def subclass_of(self) -> pd.DataFrame:
        """Every class with the classes above it, as `class`, `base` and `distance` in the order of resolution."""
        from modulekg_widgets.engine.knowledge.analysis.relations import subclass_of

        return subclass_of(self.contents())

    def families(self) -> pd.DataFrame:
        """The models that differ in depth and sizes alone, as `family`, `count`, `models`, `class`."""
        from modulekg_widgets.engine.knowledge.analysis.relations import families

        return families(self.contents())

    # -------------------------------------------------------------- statistics and analysis

    def rank_frequency(self, level: str | None = None) -> RankFrequency:
        """How the uses of modules fall with their rank, with a fitted power law and its alternatives."""
        from modulekg_widgets.engine.knowledge.analysis.rank_frequency import rank_frequency

        return rank_frequency(self.contents(), level)

    def importance(self, measure: str = "pagerank") -> pd.DataFrame:
        """The modules by `pagerank`, `in_degree`, `models`, `closeness` or `betweenness`, highest first."""
        from modulekg_widgets.engine.knowledge.analysis.importance import importance

        return importance(self.contents(), measure)

    def communities(self, method: str = "louvain", seed: int = 0) -> pd.DataFrame:
        """Modules that occur together, as `name`, `community`, `class`, `count`; `.attrs["modularity"]` tells how well.

        `method="leiden"` needs the extra `[analysis]`.
        """
        from modulekg_widgets.engine.knowledge.analysis.communities import communities

        return communities(self.contents(), method, seed)

    def overlap(self, shared: bool = False) -> pd.DataFrame:
        """What share of their modules (Jaccard) each two models have in common, or how many with `shared`."""
        from modulekg_widgets.engine.knowledge.analysis.comparison import overlap

        return overlap(self.contents(), shared)

    def difference(self, a: str, b: str) -> pd.DataFrame:
        """The modules of two models, and how often each has them: `name`, `class`, `where`, `first`, `second`."""
        from modulekg_widgets.engine.knowledge.analysis.comparison import difference

        return difference(self.contents(), a, b)

    def plot(self, question: str, *args: Any, ax: Any = None, **kwargs: Any) -> Any:
        """A picture (matplotlib) of what a question answers: `kg.plot("most_used", 10, level="op")`.

        Questions: most_used, rank_frequency, importance, communities, overlap, difference, is_a, families. Returns a
        Figure, or draws into `ax` and returns it. Raises `UnknownNameError` for another question.
        """
        from modulekg_widgets.engine.knowledge.analysis.plots import PLOTS

        draw = PLOTS[question]
        return draw(getattr(self, question)(*args, **kwargs), ax=ax)

    # -------------------------------------------------------------- prediction and suggestion

    def predict(
        self,
        target: str,
        model: nn.Module | str,
        *,
        args: Any = None,
        kwargs: Mapping[str, Any] | None = None,
        dataset: str = "ImageNet-1K",
    ) -> Prediction:
        """The `target` ("acc@1" or "acc@5", in percent) that a model would reach on a data set, with its uncertainty.

        It is learnt from torchvision's published accuracies and the jobs of the graph. `model` may be the name of one
        in the graph; with `args` its cost counts too, in eval mode. Raises `UnknownNameError` and `PredictionError`.
        """
        from modulekg_widgets.engine.knowledge.prediction.features import record_in
        from modulekg_widgets.engine.knowledge.traced import described

        known = isinstance(model, str)
        record = record_in(self.contents(), model) if known else described(model, None, "structure", args, kwargs, True)
        return self._predictor(target).predict([record], dataset)[0]

    def evaluate_prediction(self, target: str = "acc@1", **options: Any) -> pd.DataFrame:
        """How well each predictor tells `target` of torchvision families that it has not seen.

        A row per predictor: `predictor`, `rho` (Spearman), `mae` (percent points), `families`, and more; the graph
        neural network over five seeds. `predictors=["ridge", "wl", "gnn"]` asks some of them, `models` names some.
        """
        from modulekg_widgets.engine.knowledge.prediction.evaluation import evaluate_prediction
        from modulekg_widgets.engine.knowledge.prediction.features import record_in
        from modulekg_widgets.engine.knowledge.prediction.published import published

        contents = self.contents()
        records = {name: record_in(contents, name) for name in published() if name in contents.models}
        return evaluate_prediction(records, target, **options)

    def suggest(
        self,
        dataset: str | None = None,
        max_params: float | None = None,
        max_flops: float | None = None,
        n: int = 10,
        **options: Any,
    ) -> Ranking[Candidate]:
        """The `n` known models and blocks that promise most on a data set within a budget; each has `.build()`.

        `kinds=["model"]` leaves the blocks out, `builders` builds models by name (those of `index_models` are known in
        this session, torchvision's always). Raises `UnknownNameError`.
        """
        from modulekg_widgets.engine.knowledge.suggestion.known_models import suggest

        return suggest(self.contents(), dataset, max_params, max_flops, n, **self._with_own(options, "acc@1"))

    def generate(
        self,
        objective: str | Callable[[ModelRecord], float] = "acc@1",
        budget: float | Mapping[str, float] | None = None,
        n: int = 5,
        **options: Any,
    ) -> Ranking[Generated]:
        """New models that vary width, depth and blocks of known ones towards an objective; each has `.build()`.

        `budget` is a number of parameters, or has `max_params` and `max_flops`; `models` names those to begin with,
        `seed` repeats a search. Raises `UnknownNameError` and `PredictionError`.
        """
        from modulekg_widgets.engine.knowledge.suggestion.generation import generate

        target = objective if isinstance(objective, str) else "acc@1"
        return generate(self.contents(), objective, budget, n, **self._with_own(options, target))

    def _with_own(self, options: Mapping[str, Any], target: str) -> dict[str, Any]:
        """The options of a search, with what this graph knows of itself."""
        target = options.get("target", target)
        builders = {**self.builders, **(options.get("builders") or {})}
        return {"predictor": self._predictor(target), **options, "builders": builders}

    def _predictor(self, target: str) -> Predictor:
        """Fitted once for as long as the graph stays the same."""
        from modulekg_widgets.engine.knowledge.prediction.predictor import fitted_predictor

        contents = self.contents()
        if self._fitted is None or self._fitted[0] is not contents or self._fitted[1] != target:
            self._fitted = contents, target, fitted_predictor(contents, target)
        return self._fitted[2]

    # -------------------------------------------------------------- exchange

    def to_networkx(self, types: Iterable[str] | str | None = None) -> nx.DiGraph:
        """The graph for networkx: a node per structure, an edge from container to content with `count` and `order`.

        Once data sets, users or jobs are known, these and the models are nodes as well; `types` chooses others, "all"
        includes the types of modules. Attributes of structures: `name`, `class`, `hyperparameters`, `count`, `models`.
        """
        from modulekg_widgets.engine.knowledge.exchange.property_graph import to_networkx

        return to_networkx(self.contents(), types)

    def number_of_nodes(self) -> int:
        """The number of nodes of `to_networkx()`."""
        return self.to_networkx().number_of_nodes()

    def number_of_edges(self) -> int:
        """The number of edges of `to_networkx()`."""
        return self.to_networkx().number_of_edges()

    def export(self, path: str | Path) -> Path:
        """Write the graph in the format of the file's extension; returns the path. The file appears whole or not."""
        from modulekg_widgets.engine.knowledge.exchange import export_contents

        return export_contents(self.contents(), path)
