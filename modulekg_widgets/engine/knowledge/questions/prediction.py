"""Questions about models that nobody has trained: predicted values, and models for a task.

They are answered from the jobs of the graph and torchvision's published figures. The first question about an accuracy
builds the published models that the graph does not have, which takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from modulekg_widgets.engine.knowledge.repository import GraphParts

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

    from modulekg_widgets.engine.knowledge.facts.records import ModelRecord
    from modulekg_widgets.engine.knowledge.prediction.predictor import Prediction, Predictor
    from modulekg_widgets.engine.knowledge.suggestion.candidates import Candidate, Ranking
    from modulekg_widgets.engine.knowledge.suggestion.generation import Generated


def predict(
    self: GraphParts,
    target: str,
    model: nn.Module | str,
    *,
    args: object = None,
    kwargs: Mapping[str, object] | None = None,
    dataset: str | None = None,
    training: Mapping[str, object] | None = None,
    device: str | None = None,
    extrapolate: bool = False,
) -> Prediction:
    """Predicts the value that a model would reach, with an interval, from structure, size, cost and training.

    It is learnt from all results of the jobs of the graph, and for accuracies from what torchvision publishes. Of a
    data set of which few are known, the values on others tell as much as these few show.

    Of 70 values and ten families on, what is least off on families left out tells the others: a Gaussian process or
    gradient boosting, or the graph neural network, once `evaluate_prediction` has trained it on this graph.

    Parameters
    ----------
    target : str
        What is predicted, as "acc@1" (percent), "latency" (as measured: ms) or whatever jobs have results of.
    model : torch.nn.Module or str
        A module, or the name of a model of the graph.
    args, kwargs : optional
        What the forward of a module takes; with either its cost counts, too, that of a forward pass in eval mode.
    dataset : str, optional
        A data set of the graph; by default that of all values, or ImageNet-1K, where some are of it.
    training : mapping, optional
        How it is trained, as `{"tag": "fb_in22k_ft_in1k", "image_size": 224}`.
    device : str, optional
        On which it runs; by default that of all values. It does not count for accuracies and other shares.
    extrapolate : bool, default False
        Whether to tell a value of a model that is unlike those of which values are known.

    Returns
    -------
    Prediction
        `value`, `std`, and `low` and `high` of the 90 % interval, in `unit`; `nearest`, the known models that
        are most alike; `far`, whether these are unlike it, and the `reason`, with a value of None; `predictor`,
        what told it, and `errors`, by how much it and others are off on families left out; also a number, by
        `float(…)`.

    Raises
    ------
    UnknownNameError
        For an unknown target, model, data set or device, with those that are near.
    PredictionError
        Where nothing is known of the target on the data set, or values are of several and none is named.
    NotAModuleError, BrokenModuleError, FingerprintError, TraceError
        For a module that has no fingerprint, or whose forward pass cannot be followed.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> model = mk.torchvision_builders()["resnet18"]()
    >>> mk.KnowledgeGraph().predict("acc@1", model).low > 60  # doctest: +SKIP
    True
    """
    from modulekg_widgets.engine.knowledge.facts.traced import describe_model
    from modulekg_widgets.engine.knowledge.prediction.data.features import find_record

    known = isinstance(model, str)
    record = (
        find_record(self.contents(), model) if known else describe_model(model, None, "structure", args, kwargs, True)
    )
    return _predictor(self, target).predict([record], dataset, device, training, extrapolate)[0]


def evaluate_prediction(
    self: GraphParts, target: str = "acc@1", dataset: str | None = None, device: str | None = None, **options: Any
) -> pd.DataFrame:
    """Evaluates predictions of `target` for left-out families of models, beside simple baselines.

    Parameters
    ----------
    target : str, default "acc@1"
        What is predicted.
    dataset, device : str, optional
        Where, as for `predict`.
    **options
        `predictors`, some of "mean", "params", "ridge-size", "ridge-ops", "ridge-ops-size" (the last three
        together "ridge"), "wl", "wl-rbf", "nearest" (the value of the most alike), "boosting", "gnn",
        "own" (the kernels of `predict`) and "shared" (the same for models that were measured on other data
        sets), by default those that take seconds; `models`, names of some, by default all; `seeds` of the GNN, by
        default 0 to 4.

    Returns
    -------
    pandas.DataFrame
        A row per predictor: `predictor`, `rho` (Spearman's rank correlation), `mae` (in the unit of the values),
        `families`, `models` (their numbers), `rho_std`, `mae_std` (over the seeds of the GNN), `coverage` (the
        part of the values inside the 90 % intervals), `relative_to_mean` (the median of the relative error), `n`
        (values).

    Raises
    ------
    UnknownNameError
        For an unknown target, data set, device, predictor or model.
    PredictionError
        For values of fewer than three families.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> some = ["alexnet", "squeezenet1_0", "squeezenet1_1", "shufflenet_v2_x0_5", "mnasnet0_5"]
    >>> found = mk.KnowledgeGraph().evaluate_prediction(predictors=["wl"], models=some)
    >>> found[["families", "models"]].values.tolist()
    [[4, 5]]
    """
    from modulekg_widgets.engine.knowledge.prediction import evaluation

    return evaluation.evaluate_prediction(_predictor(self, target), dataset, device, **options)


def suggest(
    self: GraphParts,
    dataset: str | None = None,
    max_params: float | None = None,
    max_flops: float | None = None,
    n: int = 10,
    max_latency: float | None = None,
    device: str | None = None,
    **options: Any,
) -> Ranking[Candidate]:
    """Returns the known models and blocks with the best prediction on a data set within a budget.

    Known are the models of the graph and torchvision's published ones.

    Parameters
    ----------
    dataset : str, optional
        A data set of the graph, by default ImageNet-1K; its `classes` are those of the models that are built.
    max_params : float, optional
        The most parameters.
    max_flops : float, optional
        The most FLOPs of a forward pass, a multiply-add counted as 2, on an image of the data set's `image_size`.
    n : int, default 10
        How many.
    max_latency : float, optional
        The longest time that a model may be predicted to take, in ms, called as those whose times are known were.
        Blocks, and models of which it cannot be told, are left out.
    device : str, optional
        On which it runs, one of which the graph has latencies; by default that of all. The columns
        `latency` and `latency_std` are of it.
    **options
        `kinds`, of "model" and "block", by default both; `target`, by default "acc@1"; `builders`, functions by the
        name of the model that they build, beside torchvision's and those that `mk.index_models` gave this graph in
        this session.

    Returns
    -------
    Ranking of Candidate
        By predicted value less its deviation, what nobody can build last; each has `.build(num_classes=None)`,
        `value` and `std` (percent), `parameters`, `flops`, `latency` and `latency_std` (ms, or None), `why`.
        `.frame()` is a table.
        `.reason` says why there is none, or of how many no latency could be told.

    Raises
    ------
    UnknownNameError
        For an unknown data set, kind, target or device.
    PredictionError
        For a limit that is not a number above zero, and where latencies are of several devices and none is named.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> kg = mk.KnowledgeGraph()
    >>> found = kg.suggest(max_params=3e6, n=3)  # doctest: +SKIP
    >>> found[0].build(num_classes=10)  # doctest: +SKIP
    """
    from modulekg_widgets.engine.knowledge.suggestion import known_models

    if max_latency is not None or device is not None:
        options = {"latencies": _predictor(self, "latency"), **options, "max_latency": max_latency, "device": device}
    return known_models.suggest(self.contents(), dataset, max_params, max_flops, n, **_with_own(self, options, "acc@1"))


def generate(
    self: GraphParts,
    objective: str | Callable[[ModelRecord], float] = "acc@1",
    budget: float | Mapping[str, float] | None = None,
    n: int = 5,
    **options: Any,
) -> Ranking[Generated]:
    """Generates new models that vary width, depth and blocks of known ones, by a small evolutionary search.

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
        0, which repeats a search; `generations`, by default 6, and `population`, by default 12; `against`, as
        "params", "flops" or a target such as "latency" on a `device`: then the result is the Pareto front.

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
        Where no known model can be built, for an objective that gives no number, and for a budget that is no number
        above zero.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> kg = mk.KnowledgeGraph()
    >>> found = kg.generate(budget=1.5e6, n=1, models=["squeezenet1_1"])  # doctest: +SKIP
    >>> found[0].build()  # doctest: +SKIP
    """
    from modulekg_widgets.engine.knowledge.suggestion import generation
    from modulekg_widgets.engine.knowledge.suggestion.costs import SIZE_COSTS

    target = objective if isinstance(objective, str) else "acc@1"
    against = options.get("against")
    if isinstance(against, str) and against not in SIZE_COSTS:
        options["costs"] = _predictor(self, against)
    return generation.generate(self.contents(), objective, budget, n, **_with_own(self, options, target))


def _with_own(graph: GraphParts, options: Mapping[str, Any], target: str) -> dict[str, Any]:
    """Returns the options of a search with the builders and the predictor of this graph."""
    target = options.get("target", target)
    builders = {**graph.builders, **(options.get("builders") or {})}
    return {"predictor": _predictor(graph, target), **options, "builders": builders}


def _predictor(graph: GraphParts, target: str) -> Predictor:
    """Fitted once for as long as the graph stays the same."""
    from modulekg_widgets.engine.knowledge.facts.jobs import checked_name
    from modulekg_widgets.engine.knowledge.facts.units import canonical_target
    from modulekg_widgets.engine.knowledge.prediction.data.observations import FeatureCache
    from modulekg_widgets.engine.knowledge.prediction.predictor import fitted_predictor

    name = canonical_target(checked_name(target, "target"))
    features = graph.repository.derived("features", lambda _: FeatureCache())
    return graph.repository.derived(("predictor", name), lambda contents: fitted_predictor(contents, name, features))
