"""Every metric against its definition in numpy, on what real modules in training give it, in three precisions."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import numpy as np
import pytest
import torch

from modulekg_widgets.engine.monitoring import metrics
from modulekg_widgets.engine.monitoring.metric import NoValueError
from modulekg_widgets.engine.monitoring.metrics import METRICS
from monitoring.metrics.metric_comparison import compare
from monitoring.metrics.metric_references import REFERENCES
from monitoring.metrics.metric_samples import DTYPES, SOURCES, Sample, as_array, has_weight, is_trained, samples, value

# those that say themselves to be metrics of attention have a table of their own
OWN = [name for name in METRICS if METRICS[name].__module__.startswith(f"{metrics.__name__}.")]
HERE = [name for name in OWN if "Attention" not in METRICS[name].needs]

CASES = [(name, source) for name in REFERENCES for source in SOURCES]


@cache
def taken(source: str, dtype: torch.dtype) -> list[list[Sample]]:
    return samples(source, dtype)


def missing(name: str, source: str) -> str | None:
    """Why a metric has no value for what the source gives; None when it has one."""
    if "TID" in name and source != "batch_norm":
        return "running"
    if name == "GradientNoiseScale" and source in ("batch_norm", "relu", "attention"):
        return "neither a linear layer nor a convolution"
    if not has_weight(source) and ("Weight" in METRICS[name].needs or "WeightGrad" in METRICS[name].needs):
        return ""
    return "" if "WeightGrad" in METRICS[name].needs and not is_trained(source) else None


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "source"), CASES)
def test_a_metric_is_its_definition(name: str, source: str, dtype: torch.dtype) -> None:
    why = missing(name, source)
    kind = METRICS[name]
    for steps in taken(source, dtype):
        if why:
            with pytest.raises(NoValueError, match=why):
                value(kind, steps)
        elif why is None and name.startswith("InputCovCondition") and np.isnan(REFERENCES[name](steps)):
            with pytest.raises(NoValueError, match="rank"):
                value(kind, steps)
        elif why is None:
            found = as_array(value(kind, steps))
            compare(name, found, REFERENCES[name](steps), steps)
        else:
            assert steps[-1].wg is None  # the engine asks no metric then


@pytest.mark.slow
def test_names_of_built_in_metrics_are_taken_before_any_is_used() -> None:
    code = "import modulekg_widgets as mk; mk.metric('WeightNorm', needs='Weight')(lambda w: w.sum())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "DuplicateNameError: the metric 'WeightNorm' is registered already" in done.stderr


def test_every_metric_has_a_reference() -> None:
    assert sorted(HERE) == sorted(REFERENCES)


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("Sparsity", 0.3, 1.0),
        ("DeadNeuronFraction", 0.2, 0.9),
        ("WeightParamJump", 1.0, 99.0),
        ("InputCovCondition", 1e2, 1e9),
        ("RankMe", 5.0, 20.0),
    ],
)
def test_the_samples_are_worth_measuring(name: str, least: float, most: float) -> None:
    """What is 0 in all samples could be always 0 in the package."""
    found = [
        float(REFERENCES[name](steps))
        for source in SOURCES
        for steps in taken(source, torch.float32)
        if missing(name, source) is None
    ]
    assert least <= np.nanmax(found) <= most


def test_the_samples_cover_reused_and_frozen_modules() -> None:
    assert len(taken("reused", torch.float32)) == 2
    assert taken("frozen", torch.float32)[0][0].wg is None
