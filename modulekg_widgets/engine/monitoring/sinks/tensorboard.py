"""TensorBoard through the user's `SummaryWriter`: numbers as scalars, vectors and histograms as histograms."""

from __future__ import annotations

from typing import Any

import numpy as np

from modulekg_widgets.engine.monitoring.readings import Reading
from modulekg_widgets.engine.monitoring.sinks.naming import Histogram, entries, finite


class TensorBoardSink:
    """Writes `module/metric` at its step to a `SummaryWriter`, which stays open: its user closes it.

    A histogram is of the finite values of a vector; one without any is left out.
    """

    def __init__(self, writer: Any) -> None:
        self.name = f"TensorBoard ({getattr(writer, 'log_dir', type(writer).__name__)})"
        self._writer = writer

    def write(self, readings: list[Reading]) -> None:
        for reading in readings:
            for tag, value in entries(reading):
                if isinstance(value, Histogram):
                    self._add(tag, value, reading.step)
                elif not isinstance(value, np.ndarray):
                    self._writer.add_scalar(tag, value, reading.step)
                elif len(shown := finite(value)):
                    self._writer.add_histogram(tag, shown, reading.step)

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.flush()

    def _add(self, tag: str, histogram: Histogram, step: int) -> None:
        """Sums are those of the middles of the bins, as the values themselves are gone."""
        edges, counts = histogram.edges, histogram.counts
        middles = (edges[:-1] + edges[1:]) / 2
        # TensorBoard has right edges only: an empty bin in front says where the first one begins
        self._writer.add_histogram_raw(
            tag,
            min=histogram.low,
            max=histogram.high,
            num=float(counts.sum()),
            sum=float(counts @ middles),
            sum_squares=float(counts @ middles**2),
            bucket_limits=edges.tolist(),
            bucket_counts=np.concatenate([[0.0], counts]).tolist(),
            global_step=step,
        )
