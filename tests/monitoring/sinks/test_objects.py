"""Objects with `log`: the user's own, and Weights & Biases offline."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from modulekg_widgets.engine.monitoring.history import History
from modulekg_widgets.engine.monitoring.readings import Reading
from modulekg_widgets.engine.monitoring.sinks.sink_targets import open_sink
from modulekg_widgets.engine.monitoring.sinks.sink_thread import SinkThreads
from monitoring.sinks.samples import HISTOGRAM, remember

READINGS = [
    Reading("", "loss", 3, 0.25),
    Reading("layer1.conv", "WeightNorm", 3, 0.5),
    Reading("layer1.conv", "WeightStatistic", 3, {"mean": 0.125, "std": 2.0}),
    Reading("layer1.conv", "WeightNorm", 4, 0.75, 1),
    Reading("layer1.conv", "WeightNorm", 4, 1.5, 0, "eval"),
]
STEP_3 = {
    "loss": 0.25,
    "layer1.conv/WeightNorm": 0.5,
    "layer1.conv/WeightStatistic/mean": 0.125,
    "layer1.conv/WeightStatistic/std": 2.0,
}
STEP_4 = {"layer1.conv[1]/WeightNorm": 0.75, "eval/layer1.conv/WeightNorm": 1.5}


class Board:
    """An object as users write it; keeps what it was given."""

    def __init__(self) -> None:
        self.logged: list[Any] = []

    def log(self, values: dict[str, Any], step: int) -> None:
        self.logged.append((step, values))

    def finish(self) -> None:
        self.logged.append("finish")


class Stepless(Board):
    def log(self, values: dict[str, Any]) -> None:  # type: ignore[override]
        self.logged.append(values)


class Keywords(Board):
    def log(self, *args: Any, **kwargs: Any) -> None:
        self.logged.append((args, kwargs))


def delivered(board: Any, portions: list[list[Reading]]) -> list[Any]:
    sink = open_sink(board)
    for portion in portions:
        sink.write(portion)
    sink.close()
    return board.logged


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_one_call_for_each_step_however_the_readings_come(size: int) -> None:
    portions = [READINGS[at : at + size] for at in range(0, 5, size)]
    assert delivered(Board(), portions) == [(3, STEP_3), (4, STEP_4), "finish"]


def test_a_log_without_a_step_is_called_without() -> None:
    assert delivered(Stepless(), [READINGS]) == [STEP_3, STEP_4, "finish"]
    assert delivered(Keywords(), [READINGS]) == [((STEP_3,), {"step": 3}), ((STEP_4,), {"step": 4}), "finish"]


def test_nothing_is_logged_of_nothing() -> None:
    assert delivered(Board(), [[]]) == ["finish"]
    assert delivered(Board(), [[Reading("m", "M", 0, {})]]) == ["finish"]


def test_vectors_and_histograms_are_arrays_for_other_objects() -> None:
    (_, values), _ = delivered(
        Board(), [[Reading("m", "V", 0, np.array([1.0, math.nan])), Reading("m", "H", 0, HISTOGRAM)]]
    )
    np.testing.assert_equal(values.pop("m/V"), np.array([1.0, math.nan]))
    np.testing.assert_equal(values.pop("m/H/counts"), HISTOGRAM["counts"])
    assert values == {"m/H/low": -1.0, "m/H/high": 3.0}


def test_flush_lets_the_last_step_go() -> None:
    board = Board()
    sink: Any = open_sink(board)
    sink.write(READINGS[:1])
    assert board.logged == []
    sink.flush()
    sink.flush()
    assert board.logged == [(3, {"loss": 0.25})]


def test_a_module_is_not_finished_as_its_user_goes_on() -> None:
    board = Board()
    module = ModuleType("tracker")
    module.log, module.finish, module.logged = board.log, board.finish, board.logged  # type: ignore[attr-defined]
    assert delivered(module, [READINGS]) == [(3, STEP_3), (4, STEP_4)]


def test_an_object_needs_no_finish() -> None:
    logged: list[Any] = []
    delivered(SimpleNamespace(log=lambda values, step: logged.append((step, values)), logged=logged), [READINGS])
    assert logged == [(3, STEP_3), (4, STEP_4)]


# ---------------------------------------------------------------- with wandb


@pytest.fixture
def wandb_run(require: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A run in a folder of its own that never leaves this machine."""
    require("wandb")
    for name, value in {"MODE": "offline", "SILENT": "true", "CONSOLE": "off", "DISABLE_GIT": "true"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    for name in ("DIR", "CONFIG_DIR", "CACHE_DIR", "DATA_DIR"):
        monkeypatch.setenv(f"WANDB_{name}", str(tmp_path))
    import wandb

    with wandb.init(project="modulekg", dir=tmp_path) as run:
        yield run


def history_of(folder: Path) -> list[dict[str, Any]]:
    """What a finished offline run has logged, row by row."""
    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        records = records_in(path.read_bytes())
        kinds = [record.WhichOneof("record_type") for record in records]
        if "exit" in kinds:
            return [
                row_of(record.history.item) for record, kind in zip(records, kinds, strict=True) if kind == "history"
            ]
        time.sleep(0.01)
    raise AssertionError("the process of wandb does not write the end of the run")


def row_of(items: Any) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for item in items:
        *folders, name = item.nested_key or [item.key]
        inside = row
        for folder in folders:
            inside = inside.setdefault(folder, {})
        inside[name] = json.loads(item.value_json)
    return row


def records_in(raw: bytes) -> list[Any]:
    """The records in a file of wandb: a log in blocks of 32 kB, as LevelDB has it."""
    from wandb.proto.wandb_internal_pb2 import Record

    at, content, found = 7, b"", []
    while at + 7 <= len(raw):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        size, kind = int.from_bytes(raw[at + 4 : at + 6], "little"), raw[at + 6]
        if at + 7 + size > len(raw):
            break  # it is being written
        content += raw[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            found.append(Record.FromString(content))
            content = b""
    return found


@pytest.mark.parametrize("passes_module", [True, False])
@pytest.mark.slow
def test_wandb_gets_every_value(wandb_run: Any, tmp_path: Path, passes_module: bool) -> None:
    import wandb

    history = History()
    sinks = SinkThreads(history)
    sinks.add(open_sink(wandb if passes_module else wandb_run))
    vector = Reading("layer1.conv", "InputMean", 5, np.array([0.0, 1.0, 4.0, math.nan]))
    remember(history, [*READINGS, vector, Reading("layer1.conv", "WeightHistogram", 5, HISTOGRAM)])
    sinks.close()
    wandb_run.log({"accuracy": 0.5}, step=9)  # it is open still
    assert wandb_run.summary["layer1.conv/WeightNorm"] == 0.5
    wandb_run.finish()
    rows = history_of(tmp_path)
    assert [row["_step"] for row in rows] == [3, 4, 5, 9]
    own = [{key: value for key, value in row.items() if not key.startswith("_")} for row in rows]
    assert own[:2] == [STEP_3, STEP_4]
    assert own[2]["layer1.conv/WeightHistogram"] == {
        "_type": "histogram", "values": [1.0, 2.0, 3.0, 4.0], "bins": [-1.0, 0.0, 1.0, 2.0, 3.0],
    }  # fmt: skip
    mean = own[2]["layer1.conv/InputMean"]
    assert (sum(mean["values"]), mean["bins"][0], mean["bins"][-1]) == (3, 0.0, 4.0)
    assert own[3] == {"accuracy": 0.5}


def test_wandb_takes_wide_histograms_and_vectors_without_numbers(wandb_run: Any, tmp_path: Path) -> None:
    sink = open_sink(wandb_run)
    wide = {"low": 0.0, "high": 1300.0, "total": 1300.0, "sampled": 1300.0, "counts": np.ones(1300)}
    empty = {"low": math.nan, "high": math.nan, "total": 0.0, "sampled": 0.0, "counts": np.zeros(4)}
    sink.write(
        [Reading("m", "Wide", 0, wide), Reading("m", "Nan", 0, np.array([math.nan])), Reading("m", "E", 0, empty)]
    )
    sink.close()
    wandb_run.finish()
    (row,) = history_of(tmp_path)
    assert row["m/Wide"]["values"] == [3.0] * 433 + [1.0]
    assert row["m/Wide"]["bins"] == pytest.approx([*range(0, 1300, 3), 1300])
    assert "m/Nan" not in row


def test_a_step_that_wandb_has_left_behind_is_said_once(wandb_run: Any, recwarn: pytest.WarningsRecorder) -> None:
    sink: Any = open_sink(wandb_run)
    wandb_run.log({"loss": 1.0}, step=10)
    wandb_run.log({"loss": 1.0}, step=11)
    for _ in range(3):
        sink.write(READINGS)
        sink.flush()
    (message,) = [str(warning.message) for warning in recwarn if issubclass(warning.category, RuntimeWarning)]
    assert message.startswith("wandb is at step 11 already and drops the values that the monitor has of step 3:")
    assert "monitor.log({...})" in message


def test_wandb_that_was_finished_raises(wandb_run: Any) -> None:
    sink = open_sink(wandb_run)
    sink.write(READINGS)
    wandb_run.finish()
    with pytest.raises(Exception, match="finished"):
        sink.close()
