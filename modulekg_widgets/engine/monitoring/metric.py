"""Metrics: their registry, the decorator `@mk.metric`, and the names of what they can read.

For authors of metrics. A metric of one step is a function `fn(*needed) -> value`; one that keeps state is a class with
`compute`, or with `update` per step and `compute` at the end of a window. `needs` names its arguments: tensors of the
forward, gradients, weights, or derived values such as `ForwardOutputMoments`, which are computed once for all metrics.
A value is a number, a vector or a dict of these. `NoValueError` records NaN with a reason; any other exception stops
this metric of this module with one warning, and never the training. `ranks` is the rule for merging over ranks.

    @mk.metric("NegativeShare", needs="ForwardOutput")
    def negative_share(output):
        return (output < 0).float().mean()
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from modulekg_widgets.engine.errors import ModuleKGError, UnknownNameError, closest_match_hint, printable
from modulekg_widgets.engine.registry import Registry, check_function
from modulekg_widgets.engine.torch_runtime.pytree import Function

if TYPE_CHECKING:
    import torch

Decorated = TypeVar("Decorated", bound=Function)
MetricInstance: TypeAlias = Any  # an object with compute(), and with update() and observe() where its class has them

# what a metric may need -> what it is given
FORWARD = {
    "ForwardInput": "the first tensor among the inputs of the call",
    "ForwardOutput": "the first tensor among its outputs",
    "ForwardInputMoments": "the `Moments` of the input, shared by all that ask",
    "ForwardOutputMoments": "the `Moments` of the output",
    "ForwardInputEigOfCov": "the eigenvalues of the input's covariance over channels, descending",
    "ForwardOutputEigOfCov": "the eigenvalues of the output's covariance over channels, descending",
    "Attention": "the `Attention` of the call: queries, keys and mask",
}
BACKWARD = {
    "BackwardInput": "the gradient at the input that comes through this module alone",
    "BackwardOutput": "the gradient at the output",
    "BackwardOutputMoments": "the `Moments` of the gradient at the output",
    "BackwardOutputEigOfCov": "the eigenvalues of that gradient's covariance over channels, descending",
}
STEP = {
    "Weight": "the module's own weight",
    "WeightGrad": "the gradient of the weight as it stands at `track`",
    "Loss": "the latest number logged as `loss`",
}
NEEDS = {**FORWARD, **BACKWARD, **STEP}
MERGE_RULES = ("mean", "norm", "sum", "min", "max", "histogram")  # how values of several processes may be merged


class NoValueError(ModuleKGError):
    """A metric that has no value for this module or these tensors: the reason is recorded beside a NaN."""


class NoDataError(NoValueError):
    """Tensors on the meta device, of which no metric has a value."""

    def __init__(self) -> None:
        super().__init__("its tensors are on the meta device and hold no data")


class ConfigError(ModuleKGError, TypeError):
    """A configuration that is not `{module: [metrics]}`, or a metric with settings that it does not have."""


@dataclass(frozen=True)
class MetricKind:
    """A registered metric; calling it with settings gives a `ConfiguredMetric`."""

    name: str
    needs: tuple[str, ...]
    # settings -> an object with compute(), and update() for several steps; made anew with each registration
    make: Callable[..., MetricInstance] = field(compare=False)
    multi_step: bool = False
    wants_module: bool = False
    keeps: str = ""  # the copy that it keeps between steps, in words
    before: bool = False  # whether it must also see the step before the scheduled one
    function: Any = None  # the function or class that was registered
    quick: Callable[[torch.Tensor], Any] | None = None  # the same value, straight from the tensor behind the one need
    ranks: str = ""  # how the values of several processes are merged, where `merge.rules.RULES` does not say it

    @property
    def keeps_state(self) -> bool:
        """True for a metric class, which has one instance per module and call."""
        return inspect.isclass(self.function)

    def __call__(self, **settings: object) -> ConfiguredMetric:
        known = [
            name
            for name, parameter in _parameters(self.function).items()
            if parameter.kind is parameter.KEYWORD_ONLY or parameter.default is not parameter.empty
        ]
        for name in settings:
            if name not in known:
                hint = closest_match_hint(name, known)
                raise ConfigError(f"the metric {self.name} has no setting {printable(name)!r}: {hint}")
        return ConfiguredMetric(self, settings)


@dataclass(frozen=True)
class ConfiguredMetric:
    """A metric with settings, which a configuration may hold in place of its name."""

    kind: MetricKind
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.kind.name

    def instance(self) -> MetricInstance:
        """Returns a new object with `compute`, for one module and call."""
        return self.kind.make(**self.settings)


METRICS: Registry[MetricKind] = Registry("metric")


def metric(
    *names: str,
    needs: str | Iterable[str],
    keeps: str = "",
    before: bool = False,
    ranks: str = "",
    quick: Callable[[torch.Tensor], object] | None = None,
) -> Callable[[Decorated], Decorated]:
    """Register a metric: a function for values of one step, or a class for what keeps something between steps.

    A function is `fn(*needed) -> value`. A class is one object per module and call: `compute(self, *needed)` for one
    step, or `update(self, *needed)` for each step of a window and `compute(self)` at its end. With a parameter
    `module`, the module is passed by that name. A value is a number, a tensor of one or no dimension, or a dict of
    these; None means no value at this step. The tensors are the training's own: read them, never change them. Keyword
    parameters with defaults are settings. A metric that fails in training gives NaN, one warning and a reason.

    Parameters
    ----------
    *names : str
        The names under which configurations find it.
    needs : str or iterable of str
        What it is given, in that order; `mk.monitoring.NEEDS` lists what there is.
    keeps : str
        Which copy a class keeps between steps, in words.
    before : bool
        Whether a class also has `observe(self, *needed)`, called at the step before a scheduled one.
    ranks : str
        How values are merged under torch.distributed: "mean" (by default, weighted by the amount of data), "norm",
        "sum", "min", "max" or "histogram".
    quick : callable, optional
        Gives the same value of the tensor behind the one need, as a new tensor without dimensions, where nothing else
        asks for its moments.

    Returns
    -------
    callable
        A decorator that gives the function or class back.

    Raises
    ------
    UnknownNameError
        Without a name, or for what cannot be needed.
    DuplicateNameError
        For a taken name.
    ConfigError
        For a class without `compute`.

    Examples
    --------
    >>> import torch
    >>> import modulekg_widgets as mk
    >>> @mk.metric("NegativeShare", needs="ForwardOutput")
    ... def negative_share(output):
    ...     return (output < 0).float().mean()
    >>> model = torch.nn.Identity()
    >>> with mk.Monitor(model, {"": ["NegativeShare"]}) as monitor:
    ...     _ = model(torch.tensor([-1.0, 2.0]))
    ...     monitor.track(0)
    >>> monitor.get_output()[""]["NegativeShare"]
    {0: 0.5}
    """
    if not names or not all(isinstance(name, str) and name for name in names):
        raise UnknownNameError('a metric is registered under a name: write @mk.metric("Name", needs="Weight")')
    wanted = (needs,) if isinstance(needs, str) else tuple(needs)
    for need in wanted:
        if need not in NEEDS:
            raise UnknownNameError(
                f"a metric cannot need {printable(str(need))!r}: {closest_match_hint(str(need), NEEDS)}"
            )

    if ranks not in ("", *MERGE_RULES):
        raise UnknownNameError(
            f"values of ranks cannot be merged by {printable(ranks)!r}: {closest_match_hint(ranks, MERGE_RULES)}"
        )

    def decorate(made: Any) -> Any:
        check_function(made, f"the metric {printable(names[0])!r}")
        is_class = inspect.isclass(made)
        if is_class and not hasattr(made, "compute"):
            raise ConfigError(f"the metric class {printable(made.__name__)} has no compute(): it gives the value")
        multi_step = is_class and hasattr(made, "update")
        called: Function = getattr(made, "update" if multi_step else "compute") if is_class else made
        wants_module = "module" in _parameters(called)

        def make(**settings: object) -> MetricInstance:
            if is_class:
                return made(**settings)
            return SimpleNamespace(compute=functools.partial(made, **settings) if settings else made)

        kinds = {
            name: MetricKind(name, wanted, make, multi_step, wants_module, keeps, before, made, quick, ranks)
            for name in names
        }
        for kind in kinds.values():
            kind_module(kind, made)
        METRICS.add({name: kind for name, kind in kinds.items() if name not in METRICS or METRICS[name] != kind})
        return made

    return decorate


def _parameters(called: Function) -> Mapping[str, inspect.Parameter]:
    """The parameters of a callable by name; empty if it has no signature."""
    try:
        return inspect.signature(called).parameters
    except (TypeError, ValueError):
        return {}


def kind_module(kind: MetricKind, made: Function) -> None:
    """Set `__module__` of a kind, by which the registry lets a cell that runs again replace its metric."""
    object.__setattr__(kind, "__module__", getattr(made, "__module__", None))
