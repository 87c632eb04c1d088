"""The metrics, one family a file; importing this package registers them all in `METRICS`.

Read statistics.py first, histograms.py and activations.py for what more a function can do, weights.py and anomalies.py
for classes that keep something between steps; what they share of a tensor is `measures.moments.Moments`.

To add one: a function under `@metric(name, needs=…, ranks=…)` in the file of its family or in a new one, which is found
here by itself, and a row in `metric_references`, the table of the tests with which they compare every registered
metric.
"""

from importlib import import_module
from pkgutil import iter_modules

from modulekg_widgets.engine.monitoring.metric import METRICS, metric

__all__ = ["METRICS", "metric"]  # whoever registers under a name of one of these has to hear that it is taken

for _family in iter_modules(__path__):
    import_module(f"{__name__}.{_family.name}")
