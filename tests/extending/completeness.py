"""What is registered by this project and has no example: each function names it, by the tables of the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin

from axes.rules.tables import EXAMPLES
from extending.attention_references import ATTENTION
from knowledge.exchanged import WRITTEN
from modulekg_widgets.engine.adapters import adapters
from modulekg_widgets.engine.axes.inference import inference
from modulekg_widgets.engine.axes.terms.call import rules
from modulekg_widgets.engine.knowledge.exchange import READERS, exporters
from modulekg_widgets.engine.monitoring import metrics
from modulekg_widgets.engine.monitoring.metrics import METRICS
from modulekg_widgets.engine.pruning.importance.importance import criteria
from monitoring.metrics.metric_references import REFERENCES
from pruning.importance_samples import CRITERIA
from pruning.standard_modules import CASES

_ = inference, metrics  # importing them registers theirs
ALSO = {"gv": "dot"}  # extensions of one format, written by the test of all extensions


def own(table: Any) -> set[Any]:
    """The keys of what this project registers; other tests and plugins register their own."""
    return {key for key in table if table[key].__module__.partition(".")[0] == "modulekg_widgets"}


def rules_without_example(examples: Iterable[str] | None = None) -> set[str]:
    """`examples`, here and below, stands for the names in the table of the tests."""
    named = {of.name for of in EXAMPLES} if examples is None else set(examples)
    return own(rules) - named - {name.removesuffix("_") for name in named}


def metrics_without_example(examples: Iterable[str] | None = None) -> set[str]:
    return own(METRICS) - set({**REFERENCES, **ATTENTION} if examples is None else examples)


def importances_without_example(examples: Iterable[str] | None = None) -> set[str]:
    return own(criteria) - set(CRITERIA if examples is None else examples)


def exporters_without_example(examples: Iterable[str] | None = None) -> set[str]:
    return own(exporters) - set((*WRITTEN, *ALSO) if examples is None else examples)


def adapters_without_example(examples: Iterable[str] | None = None) -> set[str]:
    """Classes of the table without a module in the cases, and classes of torch.nn that it speaks of."""
    names = CASES if examples is None else examples
    cases = {type(CASES[name]().net.inner) for name in names}
    nearest = {next((cls for cls in case.__mro__ if cls in adapters), None) for case in cases}
    without = own(adapters) - nearest
    for cls in vars(nn).values():
        if isinstance(cls, type) and any(base in adapters for base in cls.__mro__):
            becomes_another = issubclass(cls, LazyModuleMixin)  # with its first forward pass
            if not becomes_another and not any(issubclass(case, cls) for case in cases):
                without.add(cls)
    return {cls.__name__ for cls in without}


WITHOUT_EXAMPLE: dict[str, Callable[..., set[str]]] = {
    "axis rule": rules_without_example,
    "adapter": adapters_without_example,
    "importance": importances_without_example,
    "metric": metrics_without_example,
    "exporter": exporters_without_example,
}
EXAMPLE_TABLES: dict[str, set[str]] = {
    "axis rule": {of.name for of in EXAMPLES},
    "adapter": set(CASES),
    "importance": set(CRITERIA),
    "metric": {*REFERENCES, *ATTENTION},
    "exporter": {*WRITTEN, *ALSO},
}
READABLE = set(READERS)
