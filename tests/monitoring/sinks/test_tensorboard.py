"""TensorBoard: what stands in the event files."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modulekg_widgets.engine.monitoring.readings import Reading
from modulekg_widgets.engine.monitoring.sinks.sink_targets import open_sink
from monitoring.sinks.samples import HISTOGRAM, every_reading


@pytest.fixture
def events(require: Callable[..., None], tmp_path: Path) -> Callable[[list[Reading]], Any]:
    """What TensorBoard reads after these readings were written."""
    require("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    def written(readings: list[Reading]) -> EventAccumulator:
        with SummaryWriter(tmp_path) as writer:
            sink = open_sink(writer)
            sink.write(readings)
            sink.close()
            # closed is the sink, not the writer: what is in the files now is all that counts
            found = EventAccumulator(str(tmp_path), {"scalars": 0, "histograms": 0})
            found.Reload()
            writer.add_scalar("after", 1.0, 0)
        return found

    return written


def test_scalars(events: Callable[[list[Reading]], Any]) -> None:
    found = events(
        [
            Reading("", "loss", 3, 0.25),
            Reading("layer1.conv", "WeightNorm", 3, 0.5),
            Reading("layer1.conv", "WeightNorm", 4, 0.75),
            Reading("layer1.conv", "WeightNorm", 4, 1.5, 1),
            Reading("layer1.conv", "WeightNorm", 4, 2.5, 2, "eval"),
            Reading("layer1.conv", "WeightStatistic", 4, {"mean": 0.125, "std": 2.0}),
            Reading("layer1.conv", "RankMe", 4, math.nan),
        ]
    )
    scalars = {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
    assert math.isnan(scalars.pop("layer1.conv/RankMe")[0][1])
    assert scalars == {
        "loss": [(3, 0.25)],
        "layer1.conv/WeightNorm": [(3, 0.5), (4, 0.75)],
        "layer1.conv[1]/WeightNorm": [(4, 1.5)],
        "eval/layer1.conv[2]/WeightNorm": [(4, 2.5)],
        "layer1.conv/WeightStatistic/mean": [(4, 0.125)],
        "layer1.conv/WeightStatistic/std": [(4, 2.0)],
    }


def test_a_histogram_keeps_its_bins(events: Callable[[list[Reading]], Any]) -> None:
    found = events([Reading("layer", "WeightHistogram", 7, HISTOGRAM)])
    assert found.Tags()["scalars"] == []
    (event,) = found.Histograms("layer/WeightHistogram")
    value = event.histogram_value
    assert (event.step, value.min, value.max, value.num) == (7, -1.0, 3.0, 10.0)
    assert (value.bucket_limit, value.bucket) == ([-1.0, 0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 3.0, 4.0])
    # by hand, from the middles -0.5, 0.5, 1.5 and 2.5
    assert (value.sum, value.sum_squares) == (-0.5 + 1.0 + 4.5 + 10.0, 0.25 + 0.5 + 6.75 + 25.0)


def test_a_vector_is_a_histogram_of_its_finite_values(events: Callable[[list[Reading]], Any]) -> None:
    vector = np.array([1.0, 2.0, math.nan, 4.0, math.inf, -math.inf])
    found = events([Reading("m", "V", 1, vector), Reading("m", "D", 1, {"part": vector, "mean": 0.5})])
    for tag in ("m/V", "m/D/part"):
        (event,) = found.Histograms(tag)
        value = event.histogram_value
        assert (value.min, value.max, value.num, value.sum, value.sum_squares) == (1.0, 4.0, 3.0, 7.0, 21.0)
    assert [event.value for event in found.Scalars("m/D/mean")] == [0.5]


def test_every_reading_can_be_written(events: Callable[[list[Reading]], Any]) -> None:
    empty = {"low": math.nan, "high": math.nan, "total": 0.0, "sampled": 0.0, "counts": np.zeros(4)}
    single = {"low": 2.0, "high": 2.0, "total": 5.0, "sampled": 5.0, "counts": np.array([5.0, 0.0])}
    odd = [
        Reading("m", "Empty", 0, empty),
        Reading("m", "Single", 0, single),
        Reading("m", "None", 0, np.array([math.nan])),
    ]
    found = events([reading for reading in every_reading() if reading.step < 1 << 62] + odd)
    value = found.Histograms("m/Single")[0].histogram_value
    assert value.bucket == [0.0, 5.0, 0.0]
    assert value.bucket_limit == sorted(value.bucket_limit)
    assert "m/None" not in found.Tags()["histograms"]
    assert "\\ud800/\\ud800" not in found.Tags()["scalars"]
    assert any(tag.startswith("\\ud800/") for tag in found.Tags()["scalars"])
