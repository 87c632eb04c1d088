"""Namespace `mk.monitoring`: `Metric`, `metrics`, `schedule`, `hessian` and the classes of results."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from modulekg_widgets.engine.monitoring.hessian import hessian
from modulekg_widgets.engine.monitoring.merge.rules import rule_of
from modulekg_widgets.engine.monitoring.metric import NEEDS, ConfigError, ConfiguredMetric, NoValueError
from modulekg_widgets.engine.monitoring.metrics import METRICS
from modulekg_widgets.engine.monitoring.readings import Reading
from modulekg_widgets.engine.monitoring.run import Alert, Run
from modulekg_widgets.engine.monitoring.schedule import schedule

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "NEEDS",
    "Alert",
    "ConfigError",
    "Metric",
    "NoValueError",
    "Reading",
    "Run",
    "hessian",
    "metrics",
    "schedule",
]


def Metric(name: str, **settings: object) -> ConfiguredMetric:  # noqa: N802 - stands in configurations like a class
    """A metric with settings, for a configuration.

    Parameters
    ----------
    name : str
        The name of a metric.
    **settings
        Its settings, the keyword parameters of its function or class.

    Returns
    -------
    ConfiguredMetric
        To stand in a configuration in place of the name.

    Raises
    ------
    UnknownNameError
        For an unknown metric.
    ConfigError
        For a setting that it does not have.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> mk.monitoring.Metric("DeadNeuronFraction", threshold=0.1).settings
    {'threshold': 0.1}
    """
    return METRICS[name](**settings)


def metrics() -> pd.DataFrame:
    """All metrics, those that are registered by users included.

    Returns
    -------
    DataFrame
        With the columns name, needs, steps ("one" or "several"), keeps, ranks and meaning; `ranks` says how the values
        of several processes are merged, see `merge.distributed`.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> table = mk.monitoring.metrics().set_index("name")
    >>> table.loc["WeightNorm", "meaning"]
    'The Euclidean norm of the weight.'
    """
    import pandas as pd

    kinds = [METRICS[name] for name in sorted(METRICS)]
    return pd.DataFrame(
        {
            "name": [kind.name for kind in kinds],
            "needs": [", ".join(kind.needs) for kind in kinds],
            "steps": ["several" if kind.multi_step else "one" for kind in kinds],
            "keeps": [kind.keeps for kind in kinds],
            "ranks": [rule_of(kind) for kind in kinds],
            "meaning": [(inspect.getdoc(kind.function) or "").partition("\n")[0] for kind in kinds],
        }
    )
