"""The metrics, one family a file; importing this package registers them all."""

from modulekg_widgets.engine.monitoring.metric import metric
from modulekg_widgets.engine.monitoring.metrics import (
    activations,
    attention,
    batch_norm,
    histograms,
    noise_scale,
    norms,
    origin,
    spectra,
    spikes,
    statistics,
    weights,
)

__all__ = [
    "activations",
    "attention",
    "batch_norm",
    "histograms",
    "metric",
    "noise_scale",
    "norms",
    "origin",
    "spectra",
    "spikes",
    "statistics",
    "weights",
]
