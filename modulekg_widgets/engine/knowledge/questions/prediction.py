"""Questions about models that nobody has trained: their values, and which suit a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from modulekg_widgets.engine.knowledge.contents import Contents
from modulekg_widgets.engine.knowledge.questions import Questions

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

    from modulekg_widgets.engine.knowledge.prediction.predictor import Prediction, Predictor
    from modulekg_widgets.engine.knowledge.records import ModelRecord
    from modulekg_widgets.engine.knowledge.suggestion.candidates import Candidate, Ranking
    from modulekg_widgets.engine.knowledge.suggestion.generation import Generated


class PredictionQuestions(Questions):
    """Prediction, suggestion and generation, learnt from torchvision's published figures and the jobs of the graph.

    The first of these questions builds the published models that the graph does not have, which takes seconds.
    """

    builders: dict[str, Callable[[], nn.Module]]  # of models by name, as far as this session knows them
    _fitted: tuple[Contents, str, Predictor] | None = None

    def predict(
        self,
        target: str,
        model: nn.Module | str,
        *,
        args: Any = None,
        kwargs: Mapping[str, Any] | None = None,
        dataset: str = "ImageNet-1K",
    ) -> Prediction:
        """The value that a model would reach on a data set, from its structure, with its uncertainty.

        It is learnt from torchvision's published accuracies and the jobs of the graph, whose accuracy is an "acc@1".

        Parameters
        ----------
        target : {"acc@1", "acc@5"}
            What is predicted; on other data sets than ImageNet-1K "acc@1" alone.
        model : torch.nn.Module or str
            A module, or the name of a model of the graph.
        args, kwargs : optional
            What the forward of a module takes; with either its cost counts, too, that of a forward pass in eval mode.
        dataset : str, default "ImageNet-1K"
            That or a data set of the graph.

        Returns
        -------
        Prediction
            `value`, `std`, and `low` and `high` of the 90 % interval, all in percent; `nearest`, the known models that
            are most alike, and `far`, whether these are unlike it; also a number, by `float(…)`.

        Raises
        ------
        UnknownNameError
            For an unknown target, model or data set, with those that are near.
        PredictionError
            Where nothing is known of the target on the data set.
        NotAModuleError, BrokenModuleError, FingerprintError, TraceError
            For a module that has no fingerprint, or whose forward pass cannot be followed.

        Examples
        --------
        >>> import modulekg_widgets as mk
        >>> model = mk.torchvision_builders()["resnet18"]()
        >>> mk.KnowledgeGraph().predict("acc@1", model).low > 60  # doctest: +SKIP
        True
        """
        from modulekg_widgets.engine.knowledge.prediction.features import record_in
        from modulekg_widgets.engine.knowledge.traced import described

        known = isinstance(model, str)
        record = record_in(self.contents(), model) if known else described(model, None, "structure", args, kwargs, True)
        return self._predictor(target).predict([record], dataset)[0]

    def evaluate_prediction(self, target: str = "acc@1", **options: Any) -> pd.DataFrame:
        """How well each predictor tells `target` of torchvision families that it has not seen.

        Parameters
        ----------
        target : {"acc@1", "acc@5"}, default "acc@1"
            What is predicted, on ImageNet-1K.
        **options
            `predictors`, some of "ridge-size", "ridge-ops", "ridge-ops-size" (together "ridge"), "wl", "wl-rbf" and
            "gnn"; `models`, names of published ones, by default all; `seeds` of the GNN, by default 0 to 4.

        Returns
        -------
        pandas.DataFrame
            A row per predictor: `predictor`, `rho` (Spearman's rank correlation), `mae` (percent points), `families`,
            `models` (their numbers), `rho_std`, `mae_std` (over the seeds), `coverage` (the part of the models inside
            the 90 % intervals of the predictor that gives them).

        Raises
        ------
        UnknownNameError
            For an unknown target, predictor or model.
        PredictionError
            For models of fewer than three families.

        Examples
        --------
        >>> import modulekg_widgets as mk
        >>> some = ["alexnet", "squeezenet1_0", "squeezenet1_1", "shufflenet_v2_x0_5", "mnasnet0_5"]
        >>> found = mk.KnowledgeGraph().evaluate_prediction(predictors=["wl"], models=some)
        >>> found[["families", "models"]].values.tolist()
        [[4, 5]]
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
        """The known models and blocks that promise most on a data set within a budget.

        Known are the models of the graph and torchvision's published ones.

        Parameters
        ----------
        dataset : str, optional
            A data set of the graph, by default ImageNet-1K; its `classes` are those of the models that are built.
        max_params : float, optional
            The most parameters.
        max_flops : float, optional
            The most FLOPs of a forward pass, a multiply-add counted as 2.
        n : int, default 10
            How many.
        **options
            `kinds`, of "model" and "block", by default both; `target`, by default "acc@1"; `builders`, functions by the
            name of the model that they build, beside torchvision's and those that `mk.index_models` gave this graph in
            this session.

        Returns
        -------
        Ranking of Candidate
            By predicted value less its deviation, what nobody can build last; each has `.build(num_classes=None)`,
            `value` and `std` (percent), `parameters`, `flops`, `why`. `.frame()` is a table.

        Raises
        ------
        UnknownNameError
            For an unknown data set, kind or target.

        Examples
        --------
        >>> import modulekg_widgets as mk
        >>> kg = mk.KnowledgeGraph()
        >>> found = kg.suggest(max_params=3e6, n=3)  # doctest: +SKIP
        >>> found[0].build(num_classes=10)  # doctest: +SKIP
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
        """New models that vary width, depth and blocks of known ones towards an objective, by a small evolution.

        Parameters
        ----------
        objective : str or function, default "acc@1"
            A target to predict, of which the value less its deviation counts, or a function of a record with its FLOPs,
            of which more is better.
        budget : float or mapping, optional
            The most parameters, or `{"max_params": x, "max_flops": y}`.
        n : int, default 5
            How many.
        **options
            `dataset` and `builders` as those of `suggest`; `models`, names of those to begin with; `seed`, by default
            0, which repeats a search; `generations`, by default 6, and `population`, by default 12.

        Returns
        -------
        Ranking of Generated
            The best first; each ran on tensors without data, keeps within the budget, is not in the graph and has
            `.build()`, `recipe`, `value`, `std`, `parameters` and `flops`. Where there are none, `.reason` says why.

        Raises
        ------
        UnknownNameError
            For an unknown target, data set, model or part of a budget.
        PredictionError
            Where no known model can be built, and for a budget that is no number above zero.

        Examples
        --------
        >>> import modulekg_widgets as mk
        >>> kg = mk.KnowledgeGraph()
        >>> found = kg.generate(budget=1.5e6, n=1, models=["squeezenet1_1"])  # doctest: +SKIP
        >>> found[0].build()  # doctest: +SKIP
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
