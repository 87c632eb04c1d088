"""JSON lines and CSV: what other readers see, torn lines, full disks and killed processes."""

from __future__ import annotations

import csv
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from modulekg_widgets.engine.errors import RecordingError
from modulekg_widgets.engine.monitoring.readings import Reading
from modulekg_widgets.engine.monitoring.sinks import line_files
from modulekg_widgets.engine.monitoring.sinks.recording import load_recording
from modulekg_widgets.engine.monitoring.sinks.sink_targets import open_sink
from monitoring.sinks.samples import HISTOGRAM, NAMES, assert_same, every_reading, record, scalars

LINES = (".jsonl", ".csv")


def refused(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def test_json_lines_are_strict_json_of_a_header_and_one_object_a_reading(tmp_path: Path) -> None:
    path = record(tmp_path / "run.jsonl", every_reading(), "a \ud800 name")
    rows = [json.loads(line, parse_constant=refused) for line in path.read_text("ascii").splitlines()]
    assert rows[0] == {"format": "modulekg-run", "version": 1, "name": "a \ud800 name"}
    assert [row["module"] for row in rows[1 : len(NAMES) + 1]] == NAMES
    assert all(list(row) == ["module", "metric", "step", "value", "call", "phase"] for row in rows[1:])


def test_what_json_has_no_numbers_for(tmp_path: Path) -> None:
    values: list[Any] = [math.nan, math.inf, -math.inf, np.array([0.5, math.nan]), {**HISTOGRAM, "low": -math.inf}]
    path = record(tmp_path / "run.jsonl", [Reading("m", "M", 0, value) for value in values])
    found = [json.loads(line)["value"] for line in path.read_text().splitlines()[1:]]
    histogram = {"low": "-Infinity", "high": 3.0, "total": 10.0, "sampled": 10.0, "counts": [1.0, 2.0, 3.0, 4.0]}
    assert found == ["NaN", "Infinity", "-Infinity", [0.5, "NaN"], histogram]


def test_values_of_other_types_are_written_as_numbers(tmp_path: Path) -> None:
    values: list[Any] = [np.float32(0.5), np.int64(2), 3, True, [1, 2], (np.float16(1), 2.5), np.array(4.0)]
    readings = [Reading("m", "M", np.int64(1), value, np.int32(0)) for value in values]  # type: ignore[arg-type]
    for kind in (".jsonl", ".csv", ".parquet"):
        found = [reading.value for reading in load_recording(record(tmp_path / f"run{kind}", readings)).readings()]
        for value, expected in zip(found, [0.5, 2, 3, 1, [1, 2], [1, 2.5], [4.0]], strict=True):
            np.testing.assert_equal(value, expected)


def test_no_cell_of_csv_is_a_formula(tmp_path: Path) -> None:
    path = record(tmp_path / "run.csv", every_reading())
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["module", "metric", "step", "value", "call", "phase"]
    texts = [cell for row in rows[1:] for cell in (row[0], row[1], row[5])]
    assert any(text.startswith("'") for text in texts)
    assert not [text for text in texts if text[:1] in {"=", "+", "-", "@", "\t", "\r", "\n"}]
    assert not [text for text in texts if not text.isprintable()]
    assert [float(row[3]) for row in rows[1:] if row[3][:1] == "-"] == [-0.0, -2.5e-300, -math.inf]


def test_csv_is_a_table_for_pandas(tmp_path: Path) -> None:
    readings = [
        *scalars(4),
        Reading("v", "V", 5, np.array([0.5, math.nan])),
        Reading("d", "D", 6, {"mean": 1.0}, 2, "eval"),
    ]
    frame = pd.read_csv(record(tmp_path / "run.csv", readings))
    assert list(frame.columns) == ["module", "metric", "step", "value", "call", "phase"]
    assert frame.module.tolist() == [reading.module for reading in readings]
    assert frame.value[:12].astype(float).tolist() == [reading.value for reading in readings[:12]]
    assert [json.loads(cell) for cell in frame.value[12:]] == [[0.5, "NaN"], {"mean": 1.0}]
    assert frame.loc[13, ["step", "call", "phase"]].tolist() == [6, 2, "eval"]


@pytest.mark.parametrize("kind", LINES)
def test_every_place_to_be_torn_at(kind: str, tmp_path: Path) -> None:
    readings = [*scalars(2, 1), Reading("é", "V", 3, np.array([1.0, math.nan]), 1, "eval")]
    raw = record(tmp_path / f"run{kind}", readings).read_bytes()
    path = tmp_path / f"torn{kind}"
    ends = [at for at, byte in enumerate(raw) if byte == ord("\n")]
    for length in range(ends[0], len(raw) + 1):
        whole = sum(end <= length for end in ends[1:])  # a line without its end is whole, too
        path.write_bytes(raw[:length])
        assert_same(load_recording(path).readings(None), readings[:whole])
        sink = open_sink(path, append=True)
        sink.write(readings[whole:])
        sink.close()
        assert path.read_bytes() == raw


@pytest.mark.parametrize("kind", LINES)
def test_each_write_is_in_the_file_at_once(kind: str, tmp_path: Path) -> None:
    sink = open_sink(tmp_path / f"run{kind}")
    for step, reading in enumerate(scalars(5, 1)):
        sink.write([reading])
        assert len(list(load_recording(tmp_path / f"run{kind}").readings())) == step + 1
    sink.close()


@pytest.mark.parametrize("kind", LINES)
def test_a_line_that_could_not_be_read_is_not_written(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_files, "MAX_LINE_BYTES", 200)
    sink = open_sink(tmp_path / f"run{kind}")
    sink.write(scalars(2))
    with pytest.raises(RecordingError, match="read back"):
        sink.write([Reading("m", "M", 3, np.full(100, 0.1))])
    sink.close()
    assert_same(load_recording(tmp_path / f"run{kind}").readings(), scalars(2))


def test_a_full_disk_raises(tmp_path: Path) -> None:
    sink = open_sink(tmp_path / "run.jsonl")
    sink._file.close()  # type: ignore[attr-defined]
    sink._file = open("/dev/full", "wb", buffering=0)  # type: ignore[attr-defined]  # noqa: SIM115
    with pytest.raises(OSError, match="No space left"):
        sink.write(scalars(1))
    sink.close()


WRITES_FOR_EVER = """
import sys
from modulekg_widgets.engine.monitoring.readings import Reading
from modulekg_widgets.engine.monitoring.sinks.sink_targets import open_sink
sink = open_sink(sys.argv[1])
for step in range(10**9):
    sink.write([Reading("layer", "M", step, step / 8)])
    print(step, flush=True)
"""


@pytest.mark.parametrize("kind", LINES)
def test_a_killed_process_loses_no_line_that_was_written(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"run{kind}"
    command = [sys.executable, "-c", WRITES_FOR_EVER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for _ in range(500):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        written = 500 + len([line for line in process.stdout.read().split("\n")[:-1] if line])
    found = [reading.value for reading in load_recording(path).readings()]
    assert len(found) >= written
    assert found == [step / 8 for step in range(len(found))]
