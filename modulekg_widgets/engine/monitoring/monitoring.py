"""What one needs beside `mk.Monitor`: `mk.monitoring.Metric`, `.schedule`, `.metrics`, `.hessian`."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from modulekg_widgets.engine.monitoring import metrics as _metrics
from modulekg_widgets.engine.monitoring.hessian import hessian
from modulekg_widgets.engine.monitoring.merge.rules import rule_of
from modulekg_widgets.engine.monitoring.metric import METRICS, NEEDS, ConfigError, ConfiguredMetric, NoValueError
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

_ = _metrics  # importing the package registers all metrics


def Metric(name: str, **settings: Any) -> ConfiguredMetric:  # noqa: N802 - stands in configurations like a class
    """A metric with settings, for a configuration: `Metric("DeadNeuronFraction", threshold=0.1)`.

    Raises `UnknownNameError` for an unknown metric and `ConfigError` for a setting that it does not have.
    """
    return METRICS[name](**settings)


def metrics() -> pd.DataFrame:
    """All metrics, with the columns name, needs, steps ("one" or "several"), keeps, ranks and meaning.

    `ranks` says how the values of several processes are merged: see `distributed.py`.
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
            "meaning": [(inspect.getdoc(kind.made) or "").partition("\n")[0] for kind in kinds],
        }
    )
