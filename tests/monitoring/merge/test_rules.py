"""The rules by which values of several processes become one, against what numpy finds on all data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import UnknownNameError
from modulekg_widgets.engine.monitoring.merge.rules import (
    COMPANIONS,
    RULES,
    RankValues,
    SharedLayout,
    companion_name,
    rebinned,
)
from modulekg_widgets.engine.monitoring.metric import MERGE_RULES, MetricKind
from modulekg_widgets.engine.monitoring.metrics import METRICS
from modulekg_widgets.engine.monitoring.readings import SCALAR, TRAIN, Form, Slot, flat

NAN = float("nan")


@mk.metric("Greatest of ranks", needs="ForwardOutput", ranks="max")
def greatest(y: Any) -> Any:
    return y.max()


def kind_of(slot: Slot) -> MetricKind:
    return METRICS[slot.metric.removeprefix("beside ")]


def merged(metric: str, ranks: list[tuple[float, Any]], companions: list[Any] | None = None) -> Any:
    """The value of a metric out of (amount, value) of each process; None where a process has no value."""
    layout = SharedLayout(len(ranks), kind_of)
    form = next(flat(value)[0] for _, value in ranks if value is not None)
    layout.extend([Slot("m", metric, 0, TRAIN, form)])
    if companions is not None:
        layout.extend([Slot("m", companion_name(COMPANIONS[metric]), 0, TRAIN, form)])
    table = RankValues(np.full((len(ranks), len(layout.slots)), NAN), np.zeros((len(ranks), layout.width)))
    for rank, (amount, value) in enumerate(ranks):
        if value is not None:
            table.amounts[rank] = amount
            table.numbers[rank, layout.columns[0]] = flat(value)[1]
            if companions is not None:
                table.numbers[rank, layout.columns[1]] = flat(companions[rank])[1]
    found = layout.merge(table)
    assert found.has_value[0]
    return form.value(found.numbers[layout.columns[0]])


@pytest.fixture
def parts() -> list[np.ndarray]:
    """Rows of three channels of three processes, of uneven count."""
    random = np.random.default_rng(0)
    return [random.normal(size=(count, 3)) * scale + scale for count, scale in ((2, 1.0), (7, 3.0), (4, 0.1))]


def test_norm_is_that_of_all_rows(parts: list[np.ndarray]) -> None:
    found = merged("OutputSndNorm", [(part.size, np.linalg.norm(part)) for part in parts])
    assert found == pytest.approx(np.linalg.norm(np.concatenate(parts)), rel=1e-12)


def test_norm_of_gradients_is_that_of_the_mean_loss(parts: list[np.ndarray]) -> None:
    found = merged("OutputGradSndNorm", [(part.size, np.linalg.norm(part)) for part in parts])
    assert found == pytest.approx(np.linalg.norm(np.concatenate(parts) / 3), rel=1e-12)


def test_norm_whose_square_leaves_float64() -> None:
    assert merged("OutputSndNorm", [(1, 3e200), (1, 4e200)]) == pytest.approx(5e200)
    assert merged("OutputSndNorm", [(1, 3e-200), (1, 4e-200)]) == pytest.approx(5e-200)


def test_norm_that_is_infinite_or_nan_on_one_rank() -> None:
    assert merged("OutputSndNorm", [(1, np.inf), (1, 1.0)]) == np.inf
    assert np.isnan(merged("OutputSndNorm", [(1, NAN), (1, 1.0)]))


def test_means_are_weighted(parts: list[np.ndarray]) -> None:
    found = merged("InputMean", [(part.size, part.mean(0)) for part in parts])
    np.testing.assert_allclose(found, np.concatenate(parts).mean(0), rtol=1e-12)


def test_deviations_know_the_means(parts: list[np.ndarray]) -> None:
    found = merged("InputStd", [(part.size, part.std(0)) for part in parts], [part.mean(0) for part in parts])
    np.testing.assert_allclose(found, np.concatenate(parts).std(0), rtol=1e-12)


def statistic(part: np.ndarray) -> dict[str, float]:
    return {"mean": part.mean(), "std": part.std(), "min": part.min(), "max": part.max(), "zeros": (part == 0).mean()}


def test_statistic_of_shards(parts: list[np.ndarray]) -> None:
    shards = [np.where(part > 1, part, 0.0) for part in parts]
    found = merged("WeightStatistic", [(part.size, statistic(part)) for part in shards])
    assert found == pytest.approx(statistic(np.concatenate(shards)), rel=1e-12)


def test_copies_count_once() -> None:
    assert merged("WeightNorm", [(-4, 2.0), (-4, 2.0), (-4, 2.0)]) == 2.0
    assert merged("WeightParamJump", [(-4, 3.0), (-4, 3.0)]) == 3.0
    assert merged("WeightNorm", [(-4, None), (-4, 2.5), (-4, 3.0)]) == 2.5  # the first that there is


def test_counts_of_shards_add_up() -> None:
    assert merged("WeightParamJump", [(4, 3.0), (2, 1.0), (0, 100.0)]) == 4.0


def test_update_ratio_of_shards(parts: list[np.ndarray]) -> None:
    updates = [part[::-1] * 0.01 for part in parts]
    norms = [np.linalg.norm(part) for part in parts]
    ratios = [np.linalg.norm(update) / norm for update, norm in zip(updates, norms, strict=True)]
    found = merged("UpdateRatio", [(part.size, ratio) for part, ratio in zip(parts, ratios, strict=True)], norms)
    whole = np.linalg.norm(np.concatenate(updates)) / np.linalg.norm(np.concatenate(parts))
    assert found == pytest.approx(whole, rel=1e-12)


def test_extremes_and_rank_without_a_value() -> None:
    assert merged("ActivationMax", [(1, 2.0), (0, None), (9, 1.0)]) == 2.0
    assert merged("DeadNeuronFraction", [(1, 0.5), (0, None), (9, 0.25)]) == 0.25
    assert np.isnan(merged("ActivationMax", [(1, 2.0), (9, NAN)]))


def test_metrics_choose_a_rule() -> None:
    assert merged("Greatest of ranks", [(1, 2.0), (9, 1.0)]) == 2.0
    with pytest.raises(UnknownNameError, match="did you mean 'mean'"):
        mk.metric("Never made", needs="ForwardOutput", ranks="meen")
    assert "Never made" not in METRICS


def test_other_metrics_take_the_mean() -> None:
    assert merged("RankMe", [(3, 10.0), (1, 2.0)]) == 8.0


def test_failure_on_one_rank_does_not_hide_the_value_of_the_other() -> None:
    """NaN without data has a form of its own where the value is no single number."""
    layout = SharedLayout(2, kind_of)
    layout.extend([Slot("m", "InputMean", 0, TRAIN, SCALAR), Slot("m", "InputMean", 0, TRAIN, Form((("", 2),)))])
    one = layout.merge(RankValues(np.array([[0.0, NAN], [NAN, 8.0]]), np.array([[NAN, 0.0, 0.0], [0.0, 1.0, 2.0]])))
    assert one.has_value.tolist() == [False, True]
    assert one.numbers[1:].tolist() == [1.0, 2.0]
    none = layout.merge(RankValues(np.array([[0.0, NAN], [0.0, NAN]]), np.full((2, 3), NAN)))
    assert none.has_value.tolist() == [True, False]
    assert np.isnan(none.numbers[0])


def test_histograms_over_the_range_of_all() -> None:
    def histogram(part: np.ndarray) -> dict[str, Any]:
        counts, edges = np.histogram(part, 64)
        return {"low": edges[0], "high": edges[-1], "total": part.size, "sampled": part.size, "counts": counts}

    random = np.random.default_rng(0)
    parts = [random.normal(size=4000), random.normal(size=2000) * 2]
    found = merged("OutputHistogram", [(part.size, histogram(part)) for part in parts])
    wanted = histogram(np.concatenate(parts))
    assert (found["low"], found["high"], found["total"], found["sampled"]) == (
        wanted["low"],
        wanted["high"],
        6000,
        6000,
    )
    assert found["counts"].sum() == pytest.approx(6000)
    assert np.abs(np.cumsum(found["counts"]) - np.cumsum(wanted["counts"])).max() < 30
    gradients = merged("OutputGradHistogram", [(part.size, histogram(part)) for part in parts])
    assert (gradients["low"], gradients["high"]) == (wanted["low"] / 2, wanted["high"] / 2)
    np.testing.assert_allclose(gradients["counts"], found["counts"])


@pytest.mark.parametrize(
    ("counts", "own", "of_all", "expected"),
    [
        ([2, 4], (0, 1), (0, 1), [2, 4]),
        ([2, 4], (0, 1), (0, 2), [6, 0]),
        ([2, 4], (1, 2), (0, 4), [6, 0]),
        ([2, 4], (1, 3), (0, 4), [2, 4]),
        ([2, 4], (0, 3), (0, 4), [2 + 4 / 3, 8 / 3]),  # the second bin lies over the middle
        ([3, 0], (2, 2), (0, 2), [0, 3]),  # all elements were 2
        ([3, 0], (1, 1), (0, 2), [0, 3]),
        ([3, 0], (0, 0), (0, 2), [3, 0]),
        ([3, 0], (1, 1), (1, 1), [3, 0]),
    ],
)
def test_bins_of_another_range(
    counts: list[float], own: tuple[float, float], of_all: tuple[float, float], expected: list[float]
) -> None:
    ends = [np.array([float(end)]) for end in (*own, *of_all)]
    np.testing.assert_allclose(rebinned(np.array([counts], float), *ends)[0], expected, rtol=1e-12)


def test_equal_ranges_keep_whole_counts() -> None:
    counts = np.arange(64.0)
    low, high = np.array([-0.1234567]), np.array([7.654321])
    assert np.array_equal(rebinned(counts[None], low, high, low, high)[0], counts)


def test_every_rule_belongs_to_a_metric() -> None:
    assert set(RULES) <= set(METRICS)
    assert set(COMPANIONS) <= set(RULES)
    assert set(COMPANIONS.values()) <= set(METRICS)
    listed = mk.monitoring.metrics().set_index("name")["ranks"]
    assert set(listed) == {*MERGE_RULES, "std", "statistic", "ratio", "none"}
    assert (listed["OutputSndNorm"], listed["RankMe"], listed["LossSpike"]) == ("norm", "mean", "none")
