"""Parquet: what pandas sees, row groups on the way, and files that promise more than they hold."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modulekg_widgets.engine.errors import RecordingError
from modulekg_widgets.engine.monitoring.readings import Reading
from modulekg_widgets.engine.monitoring.sinks import parquet_sink
from modulekg_widgets.engine.monitoring.sinks.recording import load_recording
from modulekg_widgets.engine.monitoring.sinks.sink_targets import open_sink
from monitoring.sinks.samples import assert_same, record, scalars


@pytest.fixture(autouse=True)
def _pyarrow(require: Callable[..., None]) -> None:
    require("pyarrow")


def test_it_is_a_table_for_pandas(tmp_path: Path) -> None:
    import pandas as pd

    readings = [
        *scalars(4),
        Reading("v", "V", 5, np.array([0.5, math.nan])),
        Reading("d", "D", 6, {"mean": 1.0}, 2, "eval"),
    ]
    readings += [Reading("m", "M", 7, value) for value in (math.nan, math.inf)]
    frame = pd.read_parquet(record(tmp_path / "run.parquet", readings))
    assert list(frame.columns) == ["module", "metric", "step", "value", "parts", "call", "phase"]
    assert frame.value.dtype == np.float64
    np.testing.assert_equal(frame.value[:12].tolist(), [reading.value for reading in readings[:12]])
    np.testing.assert_equal(frame.value[12:].tolist(), [math.nan, math.nan, math.nan, math.inf])
    assert [json.loads(text) for text in frame.parts.dropna()] == [[0.5, "NaN"], {"mean": 1.0}]
    assert frame.parts.isna().tolist() == [True] * 12 + [False] * 2 + [True] * 2
    assert frame.loc[13, ["step", "call", "phase"]].tolist() == [6, 2, "eval"]


def test_row_groups_are_written_on_the_way_and_the_file_is_there_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as pq

    monkeypatch.setattr(parquet_sink, "GROUP_ROWS", 100)
    path = tmp_path / "run.parquet"
    sink = open_sink(path)
    (part,) = tmp_path.glob("run.parquet.*.part")
    sizes = []
    for reading in scalars(150, 2):
        sink.write([reading])
        sizes.append(part.stat().st_size)
        assert len(sink._rows) < 100  # type: ignore[attr-defined]
    assert len(set(sizes)) == 4  # the beginning, and one more for each group
    assert not path.exists()
    sink.close()
    assert os.listdir(tmp_path) == ["run.parquet"]
    assert pq.ParquetFile(path).metadata.num_row_groups == 3
    assert_same(load_recording(path).readings(), scalars(150, 2))


def test_long_values_fill_a_group_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    monkeypatch.setattr(parquet_sink, "GROUP_CHARACTERS", 10_000)
    readings = [Reading("m", "M", step, np.arange(1000) / 7) for step in range(5)]
    path = record(tmp_path / "run.parquet", readings)
    assert pq.ParquetFile(path).metadata.num_row_groups == 5
    assert_same(load_recording(path).readings(), readings)


def test_an_old_recording_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = record(tmp_path / "run.parquet", scalars(3))
    before = path.read_bytes()
    sink = open_sink(path)
    sink.write(scalars(10))
    assert path.read_bytes() == before
    sink.close()
    assert_same(load_recording(path).readings(), scalars(10))


def test_a_value_that_fails_takes_only_its_group_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_sink, "GROUP_ROWS", 10)
    path = tmp_path / "run.parquet"
    sink = open_sink(path)
    sink.write(scalars(10, 1))
    with pytest.raises(OverflowError):
        sink.write([*scalars(9, 1), Reading("m", "M", 1 << 70, 0.5)])
    sink.close()
    assert_same(load_recording(path).readings(), scalars(10, 1))


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    path = record(tmp_path / "run.parquet", scalars(3))
    before = path.read_bytes()
    sink = open_sink(path)
    sink.write(scalars(10))
    sink._file._file.close()  # type: ignore[attr-defined]
    sink._file._file = open("/dev/full", "wb", buffering=0)  # type: ignore[attr-defined]  # noqa: SIM115
    with pytest.raises(OSError, match="No space left"):
        sink.close()
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["run.parquet"]


def test_the_run_of_a_killed_process_is_refused(tmp_path: Path) -> None:
    sink = open_sink(tmp_path / "run.parquet")
    sink.write(scalars(5000))
    (part,) = tmp_path.glob("run.parquet.*.part")
    (tmp_path / "left.parquet").write_bytes(part.read_bytes())
    sink.close()
    with pytest.raises(RecordingError, match=r"left\.parquet.*did not end"):
        load_recording(tmp_path / "left.parquet")


def made(path: Path, rows: int = 4, column: dict[str, Any] | None = None, **options: Any) -> Path:
    """A file of somebody else's that looks like one of ours but for some columns or options."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {"module": pa.array(["m"] * rows), "metric": pa.array(["M"] * rows)}
    columns |= {"step": pa.array(np.arange(rows)), "value": pa.array(np.ones(rows))}
    columns |= {"parts": pa.array([None] * rows, "string"), "call": pa.array(np.zeros(rows, int))}
    columns |= {"phase": pa.array(["train"] * rows), **(column or {})}
    settings: dict[str, Any] = {"store_schema": False, "compression": "zstd", **options}
    with pq.ParquetWriter(path, pa.table(columns).schema, **settings) as writer:
        header = {"format": "modulekg-run", "version": 1, "name": "made"}
        writer.add_key_value_metadata({"modulekg-run": json.dumps(header)})
        writer.write_table(pa.table(columns))
    return path


def test_a_table_as_a_sink_writes_it_is_taken(tmp_path: Path) -> None:
    recording = load_recording(made(tmp_path / "run.parquet"))
    assert recording.name == "made"
    assert recording.get_output() == {"m": {"M": {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0}}}


def test_columns_of_other_types_are_refused(tmp_path: Path) -> None:
    import pyarrow as pa

    wrong = {
        "step": [pa.array([0.5] * 4), pa.array(["0"] * 4), pa.array([None] * 4, "int64"), pa.array([0] * 4, "int32")],
        "value": [
            pa.array(["0"] * 4),
            pa.array([None] * 4, "float64"),
            pa.array([[1.0]] * 4),
            pa.array([{"a": 1}] * 4),
        ],
        "module": [pa.array([None] * 4, "string"), pa.array([b"x"] * 4), pa.array([1] * 4)],
        "parts": [pa.array(["0.5"] * 4), pa.array(['"NaN"'] * 4), pa.array(["[" * 5000] * 4), pa.array(["x"] * 4)],
        "call": [pa.array([10**9] * 4), pa.array([-1] * 4), pa.array([None] * 4, "int64")],
        "phase": [pa.array(["test"] * 4), pa.array([None] * 4, "string")],
        "extra": [pa.array([1] * 4)],
    }
    for name, columns in wrong.items():
        for column in columns:
            with pytest.raises(RecordingError, match=r"run\.parquet"):
                load_recording(made(tmp_path / "run.parquet", column={name: column}))


def test_what_older_releases_of_pyarrow_unpickled_is_not_looked_at(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="no Parquet that a sink wrote"):
        load_recording(made(tmp_path / "run.parquet", store_schema=True))


def test_a_small_file_does_not_become_large(tmp_path: Path) -> None:
    import pyarrow as pa

    def once(text: str, rows: int) -> Any:
        return pa.DictionaryArray.from_arrays(pa.array([0] * rows, "int32"), [text])

    bombs = [
        made(tmp_path / "rows.parquet", rows=1_000_000, column={"step": pa.array(np.zeros(1_000_000, int))}),
        made(tmp_path / "names.parquet", rows=2000, column={"module": once("x" * 10_000_000, 2000)}),
        made(tmp_path / "parts.parquet", rows=2000, column={"parts": once("[" + "1," * 500_000 + "1]", 2000)}),
    ]
    for path in bombs:
        assert path.stat().st_size < 100_000
        begin = time.process_time()
        with pytest.raises(RecordingError, match="cannot hold"):
            load_recording(path)
        assert time.process_time() - begin < 2
