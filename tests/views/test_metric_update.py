"""The messages of a MetricPanel: their bytes, what thinning keeps, and nothing lost or sent twice."""

import math
import struct
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.monitoring.readings import Row
from modulekg_widgets.engine.monitoring.run import Alert
from modulekg_widgets.engine.views import metric_payload
from modulekg_widgets.engine.views.metric_payload import UpdateReader, min_max_positions
from widgets.metric_samples import Page, histogram, live_run, put

INF, NAN = math.inf, math.nan


def page_of(updates: UpdateReader) -> Page:
    page = Page()
    while (update := updates.next()) is not None:
        page.receive(update.content, update.buffers)
    return page


def same(one: list[tuple[float, float]], other: list[tuple[float, float]]) -> bool:
    return np.array_equal(np.array(one), np.array(other), equal_nan=True)


def test_the_exact_bytes_of_an_update() -> None:
    run = live_run()
    put(run, 0, {("a", "Norm"): 1.5, ("b", "Norm"): NAN})
    put(run, 1, {("a", "Norm"): -INF, ("b", "Norm"): 2.5})
    put(run, 1, {("", "loss"): 0.25})
    content, buffers = UpdateReader([run]).next() or ({}, [])
    assert content == {
        "catalog": {
            "from": 0,
            "entries": [
                [0, "a", "Norm", 0, "train", "number"],
                [0, "b", "Norm", 0, "train", "number"],
                [0, "", "loss", 0, "train", "number"],
            ],
        },
        "points": {"series": [0, 1, 2], "counts": [2, 2, 1]},
    }
    assert buffers == [struct.pack("<10d", 0, 1, 1.5, -INF, 0, 1, NAN, 2.5, 1, 0.25)]


def test_the_exact_bytes_of_histograms() -> None:
    run = live_run()
    put(run, 7, {("a", "WeightHistogram"): histogram([1, 2, 3], -1.0, 4.0), ("a", "Norm"): 9.0})
    content, buffers = UpdateReader([run]).next() or ({}, [])
    assert content["catalog"]["entries"][0] == [0, "a", "WeightHistogram", 0, "train", "histogram"]
    assert content["points"] == {"series": [1], "counts": [1]}
    assert content["histograms"] == {"series": [0], "steps": [7], "bins": [3]}
    assert buffers == [struct.pack("<2d", 7, 9), struct.pack("<7d", -1, 4, 6, 6, 1, 2, 3)]


def test_a_vector_is_its_mean_and_a_dict_a_series_for_each_key() -> None:
    run = live_run()
    channels, empty = np.array([1.0, 2.0, 6.0]), np.array([])
    statistic = {"mean": 0.5, "per_channel": np.array([2.0, 4.0])}
    put(run, 3, {("a", "InputMean"): channels, ("a", "Stat"): statistic, ("b", "InputMean"): empty, ("b", "Norm"): 8.0})
    page = page_of(UpdateReader([run]))
    assert [entry[1:3] + entry[5:] for entry in page.entries] == [
        ["a", "InputMean", "vector"],
        ["a", "Stat.mean", "number"],
        ["a", "Stat.per_channel", "vector"],
        ["b", "InputMean", "vector"],
        ["b", "Norm", "number"],
    ]
    assert page.line("a", "InputMean") == [(3, 3.0)]
    assert page.line("a", "Stat.mean") == [(3, 0.5)]
    assert page.line("a", "Stat.per_channel") == [(3, 3.0)]
    assert same(page.line("b", "InputMean"), [(3, NAN)])
    assert page.line("b", "Norm") == [(3, 8.0)]


@pytest.mark.parametrize(
    ("vector", "mean"), [([INF, 1.0], INF), ([INF, -INF], NAN), ([NAN, 1.0], NAN), ([-INF, 0.0], -INF), ([5.0], 5.0)]
)
def test_what_is_not_finite_in_a_vector_shows_in_its_mean(vector: list[float], mean: float) -> None:
    run = live_run()
    put(run, 0, {("a", "M"): np.array([1.0]), ("b", "M"): np.array(vector)})
    page = page_of(UpdateReader([run]))
    assert page.line("a", "M") == [(0, 1.0)]
    assert same(page.line("b", "M"), [(0, mean)])


def test_calls_phases_and_runs_are_series_of_their_own() -> None:
    first, second = live_run("one"), live_run("two")
    put(first, 0, {("a", "Norm"): 1.0})
    put(first, 0, {("a", "Norm"): 2.0}, call=1)
    put(first, 0, {("a", "Norm"): 3.0}, phase="eval")
    put(second, 0, {("a", "Norm"): 4.0})
    page = page_of(UpdateReader([first, second]))
    assert page.line("a", "Norm") == [(0, 1.0)]
    assert page.line("a", "Norm", call=1) == [(0, 2.0)]
    assert page.line("a", "Norm", phase="eval") == [(0, 3.0)]
    assert page.line("a", "Norm", run=1) == [(0, 4.0)]


def test_many_runs_are_read_side_by_side() -> None:
    runs = [live_run(f"run {number}") for number in range(40)]
    updates, page = UpdateReader(runs), Page()
    for step in range(30):
        for number, run in enumerate(runs):
            put(run, step, {("", "loss"): float(number * step)})
        page.receive(*(updates.next() or ({}, [])))
    for number in range(40):
        assert page.line("", "loss", run=number) == [(step, float(number * step)) for step in range(30)]


def test_only_what_is_new_is_sent_and_nothing_when_nothing_is() -> None:
    run, page = live_run(), Page()
    updates = UpdateReader([run])
    assert updates.next() == ({"waiting": [0]}, [])
    assert updates.next() is None
    expected = []
    for step in range(40):
        put(run, step, {("", "loss"): step / 7})
        if step % 10 == 0:
            put(run, step, {("", "loss"): -1.0, (f"layer{step}", "Norm"): 1.0})
        expected.append((step, step / 7))
        expected += [(step, -1.0)] if step % 10 == 0 else []
        if step % 3 == 0:
            update = updates.next()
            assert update is not None
            page.receive(*update)
            assert updates.next() is None
    page.receive(*(updates.next() or ({}, [])))
    assert page.line("", "loss") == expected
    assert [len(message.get("catalog", {}).get("entries", ())) for message in page.messages].count(1) == 3
    assert len(page.entries) == 5


def test_the_history_on_the_disk_is_read_as_well() -> None:
    run = live_run()
    values = np.random.default_rng(0).normal(size=(300, 100))
    names = [(f"layer{number}", "Norm") for number in range(100)]
    for step, row in enumerate(values):
        put(run, step, dict(zip(names, row, strict=True)))
    page = page_of(UpdateReader([run]))
    for number in (0, 57, 99):
        assert page.line(f"layer{number}", "Norm") == list(enumerate(values[:, number]))


def test_rewinding_gives_everything_again() -> None:
    run = live_run()
    updates = UpdateReader([run])
    for step in range(5):
        put(run, step, {("", "loss"): float(step)})
        run.alerts.append(Alert("loss", "", step, float(step), f"loss is {step}"))
        assert updates.next() is not None
    updates.rewind()
    page = page_of(updates)
    assert page.line("", "loss") == [(step, float(step)) for step in range(5)]
    assert page.alerts == [[0, "", "loss", step, f"loss is {step}"] for step in range(5)]


def test_a_long_wait_is_thinned_to_what_tells_most() -> None:
    run = live_run()
    values = np.sin(np.arange(50_000) / 900)
    values[31_234], values[7] = 5.0, -5.0
    for step, value in enumerate(values):
        put(run, step, {("", "loss"): value})
    line = page_of(UpdateReader([run])).line("", "loss")
    assert len(line) <= metric_payload.MAX_POINTS
    assert {(31_234, 5.0), (7, -5.0), (49_999, values[-1])} <= set(line)
    assert line == [(step, values[int(step)]) for step, _ in line]
    assert [step for step, _ in line] == sorted({step for step, _ in line})


def test_what_takes_many_messages_is_thinned_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resync of a long run: no message is long to read, and all of them have no more points than one would."""
    run = live_run()
    for step in range(20_000):
        put(run, step, {("", "loss"): float(step % 1000)})
    clock = iter(range(10**9))
    monkeypatch.setattr(metric_payload.time, "thread_time", lambda: float(next(clock)))
    updates, page = UpdateReader([run]), Page()
    while (update := updates.next(seconds=500)) is not None:
        page.receive(*update)
    assert 30 <= len(page.messages) <= 50
    line = page.line("", "loss")
    assert 1000 <= len(line) <= metric_payload.MAX_POINTS + 4 * len(page.messages)
    assert {step for step, value in line if value == 999.0} == set(range(999, 20_000, 1000))
    assert line[-1] == (19_999, 999.0)


@given(
    st.lists(st.floats(width=32) | st.sampled_from([NAN, INF, -INF]), min_size=1, max_size=300),
    st.integers(metric_payload.MIN_POINTS, 60),
)
def test_thinning_keeps_the_extremes_the_last_point_and_that_there_was_a_nan(values: list[float], limit: int) -> None:
    numbers = np.array(values)
    kept = min_max_positions(numbers, limit)
    assert len(kept) <= max(limit, 1)
    assert list(kept) == sorted(set(kept.tolist()))
    assert kept[-1] == len(values) - 1
    known = numbers[~np.isnan(numbers)]
    if len(known):
        assert known.min() in numbers[kept]
        assert known.max() in numbers[kept]
    assert np.isnan(numbers[kept]).any() == np.isnan(numbers).any()


def test_a_panel_holds_4000_series_and_counts_the_others() -> None:
    run = live_run()
    for _ in range(2):
        put(run, 0, {(f"layer{number}", "Norm"): float(number) for number in range(4100)})
    updates = UpdateReader([run])
    page = page_of(updates)
    assert len(page.entries) == len(page.points) == 4000
    assert page.line("layer3999", "Norm") == [(0, 3999.0), (0, 3999.0)]
    assert updates.catalog.omitted == 100
    updates.rewind()
    assert len(page_of(updates).entries) == 4000
    assert updates.catalog.omitted == 100


def test_a_message_has_a_largest_size() -> None:
    run = live_run()
    names = [(f"layer{number}", "Norm") for number in range(1000)]
    for step in range(500):
        put(run, step, dict.fromkeys(names, float(step)))
    _, buffers = UpdateReader([run]).next() or ({}, [b""])
    assert len(buffers[0]) <= 16 * metric_payload.MAX_MESSAGE_POINTS


def test_many_histograms_between_two_messages_are_thinned_to_the_last() -> None:
    run = live_run()
    for step in range(1000):
        put(run, step, {("a", "H"): histogram([step, 1])})
    page = page_of(UpdateReader([run]))
    steps = [step for _, step, _ in page.histograms]
    assert len(steps) <= metric_payload.MAX_HISTOGRAMS
    assert steps[-1] == 999
    assert steps == sorted(set(steps))
    assert all(numbers[4] == step for _, step, numbers in page.histograms)


def test_texts_survive_utf_8() -> None:
    run = live_run("\ud800")
    put(run, 0, {("\ud800", "M\udfff"): 1.0})
    run.alerts.append(Alert("M\udfff", "\ud800", 0, 1.0, "\ud800!"))
    page = page_of(UpdateReader([run]))
    assert page.entries == [[0, "\\ud800", "M\\udfff", 0, "train", "number"]]
    assert page.alerts == [[0, "\\ud800", "M\\udfff", 0, "\\ud800!"]]


def test_the_end_of_a_run_is_told_once_and_after_its_last_value() -> None:
    run, other = live_run(), live_run()
    updates = UpdateReader([run, other])
    put(run, 0, {("", "loss"): 1.0})
    page = Page()
    page.receive(*(updates.next() or ({}, [])))
    assert page.ended == set()
    for _ in range(2):  # a monitor may run twice
        run.is_running = False  # type: ignore[attr-defined]
        assert updates.next() == ({"ended": [0]}, [])
        assert updates.next() is None
        run.is_running = True  # type: ignore[attr-defined]
        assert updates.next() is None


def test_a_run_that_has_not_begun_has_not_ended() -> None:
    run = live_run()
    run.is_running = False  # type: ignore[attr-defined] - a monitor with values of an earlier training, not started
    put(run, 0, {("", "loss"): 1.0})
    assert page_of(UpdateReader([run])).ended == set()
    del run.is_running  # type: ignore[attr-defined] - a recorded run
    assert page_of(UpdateReader([run])).ended == {0}


def test_a_run_waits_from_its_start_to_its_first_value() -> None:
    run, other = live_run(), live_run()
    run.is_running = False  # type: ignore[attr-defined]
    updates = UpdateReader([run, other])
    assert updates.next() == ({"waiting": [1]}, [])
    run.is_running = True  # type: ignore[attr-defined]
    assert updates.next() == ({"waiting": [0]}, [])
    put(run, 0, {("", "loss"): 1.0})
    assert "waiting" not in (updates.next() or ({}, []))[0]
    updates.rewind()
    assert (updates.next() or ({}, []))[0]["waiting"] == [1]


def test_a_run_that_fails_before_its_first_value_has_ended() -> None:
    monitor = mk.Monitor(nn.Linear(2, 2), {})
    updates = UpdateReader([monitor])
    with monitor:  # which ends so, too, where its block raises
        assert updates.next() == ({"waiting": [0]}, [])
    assert updates.next() == ({"ended": [0]}, [])
    with monitor:
        assert updates.next() == ({"waiting": [0]}, [])
    assert UpdateReader([monitor]).next() == ({"ended": [0]}, [])


def test_a_monitor_that_has_ended_before_it_is_looked_at() -> None:
    monitor = mk.Monitor(nn.Linear(2, 2), {})
    assert UpdateReader([monitor]).next() is None  # not started
    with monitor:
        monitor.log({"loss": 1.0})
        assert page_of(UpdateReader([monitor])).ended == set()
    assert page_of(UpdateReader([monitor])).ended == {0}
    with monitor:
        assert page_of(UpdateReader([monitor])).ended == set()


def test_a_run_that_cannot_be_read_does_not_hide_the_others(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, sound = live_run("broken"), live_run()
    for run in (broken, sound):
        put(run, 0, {("", "loss"): 2.0})

    def rows(start: int) -> Iterator[Row]:
        raise OSError("the disk is gone")

    monkeypatch.setattr(broken.history, "rows", rows)
    page = page_of(UpdateReader([broken, sound]))
    assert page.line("", "loss", run=1) == [(0, 2.0)]
    assert ["broken can be read no further" in record.getMessage() for record in caplog.records] == [True]


def test_the_latest_values_of_a_metric() -> None:
    first, second = live_run(), live_run()
    put(second, 9, {("b", "Norm"): 9.0, ("b", "Other"): 4.0})
    put(first, 0, {("", "loss"): 0.5, ("a", "Norm"): 1.0, ("b", "Norm"): 2.0, ("b", "H"): histogram([1])})
    put(first, 1, {("a", "Norm"): 3.0}, call=1)
    put(first, 2, {("a", "Norm"): 7.0}, phase="eval")
    updates = UpdateReader([first, second])
    updates.next()
    assert updates.latest("Norm", "train") == {"a": 3.0, "b": 2.0}
    assert updates.latest("", "train") == {"a": 3.0, "b": 2.0}
    assert updates.latest("Norm", "eval") == {"a": 7.0}
    assert updates.latest("Other", "train") == {"b": 4.0}
    assert updates.latest("H", "train") == {}
    put(first, 3, {("b", "Norm"): NAN})
    updates.next()
    assert math.isnan(updates.latest("Norm", "train")["b"])
