"""Recorded runs: read back equal, refused by file and line, and cut where a training goes on."""

from __future__ import annotations

import json
import math
import os
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import RecordingError
from modulekg_widgets.engine.monitoring.history import History
from modulekg_widgets.engine.monitoring.readings import Reading
from modulekg_widgets.engine.monitoring.run import Run
from modulekg_widgets.engine.monitoring.sinks import recording as module
from modulekg_widgets.engine.monitoring.sinks.recording import Recording, continue_file, load_recording
from modulekg_widgets.engine.monitoring.sinks.sink_targets import open_sink
from monitoring.sinks.samples import HISTOGRAM, KINDS, assert_same, every_reading, record, remember, scalars

HEAD = json.dumps({"format": "modulekg-run", "version": 1, "name": "run"})
COLUMNS = "module,metric,step,value,call,phase"
LINE = {"module": "m", "metric": "M", "step": 0, "value": 0.5, "call": 0, "phase": "train"}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, require: Callable[..., None]) -> str:
    if request.param == ".parquet":
        require("pyarrow")
    return request.param


def test_everything_comes_back(kind: str, tmp_path: Path) -> None:
    path = record(tmp_path / f"run{kind}", every_reading(), "my run")
    recording = load_recording(str(path))
    assert isinstance(recording, Run)
    assert recording.name == ("run" if kind == ".csv" else "my run")
    assert_same(recording.readings(None), every_reading())


def test_a_recording_tells_what_the_run_told(kind: str, tmp_path: Path) -> None:
    run = Run("live")
    readings = [*scalars(3), Reading("m", "H", 3, HISTOGRAM), Reading("m", "V", 3, np.array([1.0, math.nan]))]
    readings += [Reading("m", "M", 4, 1.0), Reading("m", "M", 4, 2.0, 1), Reading("m", "M", 4, 3.0, 0, "eval")]
    remember(run.history, readings)
    recording = load_recording(record(tmp_path / f"run{kind}", readings))
    for phase in ("train", "eval"):
        np.testing.assert_equal(recording.get_output(phase), run.get_output(phase))
    for column, values in recording.frame().items():
        np.testing.assert_equal(values.tolist(), run.frame()[column].tolist())
    assert recording.alerts == []


def test_the_readings_of_a_step_share_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = record(tmp_path / "run.jsonl", scalars(10, 7))
    assert [len(row.slots) for row in load_recording(path).history.rows()] == [7] * 10
    monkeypatch.setattr(module, "ROW_SLOTS", 3)
    recording = load_recording(path)
    assert [len(row.slots) for row in recording.history.rows()] == [3, 3, 1] * 10
    assert_same(recording.readings(), scalars(10, 7))


def test_before_a_step(kind: str, tmp_path: Path) -> None:
    recording = load_recording(record(tmp_path / f"run{kind}", scalars(10)))
    part = recording.before(4)
    assert isinstance(part, Recording)
    assert part.name == recording.name
    assert_same(part.readings(), scalars(4))
    assert_same(recording.readings(), scalars(10))
    history = History()
    remember(history, every_reading())
    recording.copy_to(history, before=2)
    recording.copy_to(history)
    assert_same(history.readings(), [*every_reading(), *scalars(2), *scalars(10)])


# ------------------------------------------------------------- going on in it


@pytest.mark.parametrize("start", [0, 1, 4, 10, 99])
def test_a_file_goes_on_from_a_step(kind: str, start: int, tmp_path: Path) -> None:
    path = record(tmp_path / f"run{kind}", scalars(10), "first")
    continue_file(path, start)
    assert_same(load_recording(path).readings(), scalars(min(start, 10)))
    sink = open_sink(path, append=True)
    sink.write(scalars(12)[3 * min(start, 10) :])
    sink.close()
    whole = record(tmp_path / f"whole{kind}", scalars(12), "first")
    assert_same(load_recording(path).readings(), scalars(12))
    if kind != ".parquet":  # whose row groups lie elsewhere
        assert path.read_bytes() == whole.read_bytes()
    assert sorted(os.listdir(tmp_path)) == [path.name, whole.name]


def test_readings_that_came_late_stay(kind: str, tmp_path: Path) -> None:
    readings = [Reading("", "loss", step, float(step)) for step in (0, 3, 1, 2, 4, 0)]
    path = record(tmp_path / f"run{kind}", readings)
    continue_file(path, 3)
    assert [reading.step for reading in load_recording(path).readings()] == [0, 1, 2, 0]


def test_a_torn_line_is_cut_as_well(tmp_path: Path) -> None:
    path = record(tmp_path / "run.jsonl", scalars(3, 1))
    path.write_bytes(path.read_bytes()[:-5])
    continue_file(path, 3)
    assert_same(load_recording(path).readings(), scalars(2, 1))
    assert path.read_bytes().endswith(b"}\n")


def test_a_link_still_leads_to_the_file(kind: str, tmp_path: Path) -> None:
    path, link = record(tmp_path / f"run{kind}", scalars(5)), tmp_path / f"link{kind}"
    link.symlink_to(path)
    path.chmod(0o640)
    continue_file(link, 2)
    sink = open_sink(link, append=True)
    sink.close()
    assert link.is_symlink()
    assert_same(load_recording(path).readings(), scalars(2))
    if kind != ".parquet":
        assert path.stat().st_mode & 0o777 == 0o640


def test_a_file_that_cannot_be_cut_stays_as_it_is(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = record(tmp_path / f"run{kind}", scalars(5))
    before = path.read_bytes()

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    for name in ("fsync", "replace") if kind != ".parquet" else ("replace",):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, full)
            with pytest.raises(RecordingError, match=r"cannot be cut.*No space left"):
                continue_file(path, 2)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


# ------------------------------------------------------------- bad recordings


def refused(path: Path, content: bytes | str, where: str) -> None:
    """Assert that neither reading nor cutting takes the file, and that the error says why."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    for act in (load_recording, lambda path: continue_file(path, 5)):
        begin = time.process_time()
        with pytest.raises(RecordingError, match=where) as caught:
            act(path)
        assert time.process_time() - begin < 2
        assert isinstance(caught.value, mk.ModuleKGError)
        assert str(path) in str(caught.value)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 800


@pytest.mark.parametrize(
    ("head", "where"),
    [
        ("", "empty"), ("\n", "line 1: no JSON"), ("[]", "line 1: it does not begin"), ("{}", "it does not begin"),
        ('{"format": "modulekg-plan", "version": 1}', "does not begin"), ("\x00" * 100, "line 1: no JSON"),
        (HEAD.replace("1", "2"), "version is 2; this release reads 1"), (HEAD.replace("1", '"1"'), "version"),
        (HEAD.replace("1", "true"), "version"), (HEAD.replace("1", "1.0"), "version"), ("[" * 100_000, "line 1"),
        (HEAD.replace('"run"', "null"), "name is not text"), (COLUMNS, "line 1: no JSON"), ("9" * 5000, "line 1"),
        ("\ufeff" + HEAD, "line 1: no JSON"), ("\x1b[2J", "line 1"),
    ],
)  # fmt: skip
def test_a_header_of_something_else(head: str, where: str, tmp_path: Path) -> None:
    refused(tmp_path / "run.jsonl", head, where)


WRONG: list[tuple[str, list[Any]]] = [
    ("module", [None, 3, ["m"], {}, True]),
    ("metric", [None, 0.5, []]),
    ("step", [None, "0", 0.0, 0.5, True, [], 1 << 63, -(1 << 63) - 1, 10**300, "NaN"]),
    ("call", [None, "0", 0.0, -1, False, 10**9, 1_000_001]),
    ("phase", [None, "", "test", 0, ["train"], "TRAIN"]),
    (
        "value",
        [None, True, "0.5", "nan", "inf", "", [[0.5]], ["x"], [None], [True], {"a": {}}, {"a": "x"}, {"a": [[]]}],
    ),
    ("value", [10**400, [10**400]]),
]


@pytest.mark.parametrize(("field", "values"), WRONG)
def test_fields_of_wrong_types(field: str, values: list[Any], tmp_path: Path) -> None:
    for value in values:
        lines = [HEAD, json.dumps(LINE), json.dumps({**LINE, field: value}), json.dumps(LINE)]
        refused(tmp_path / "run.jsonl", "\n".join(lines) + "\n", "line 3: ")


@pytest.mark.parametrize(
    "line",
    [
        "", "{}", "[]", "null", "3", '"text"', "{", '{"module": ', json.dumps(LINE) + "x", json.dumps(LINE) * 2, HEAD,
        json.dumps({**LINE, "extra": 1}), json.dumps({**LINE, "__class__": "x"}),
        json.dumps(LINE)[:-1] + ', "step": 1}', json.dumps(LINE).replace('"m"', '"\x00"'),
        json.dumps(LINE).replace("0.5", "NaN"), json.dumps(LINE).replace("0.5", "-Infinity"), "[" * 100_000,
        json.dumps(LINE).replace("0.5", "1e999"), json.dumps(LINE).replace("0.5", "[1e999]"), '{"a":' * 100_000,
        json.dumps(LINE).replace("0.5", "1" * 10_000), json.dumps(LINE).replace("0.5", "0x10"), "\0" * 10, "\ud800",
        json.dumps(LINE).replace("0.5", '{"a": 1, "a": 2}'), json.dumps(LINE).replace("0.5", "[" * 300 + "]" * 300),
        *(json.dumps({k: v for k, v in LINE.items() if k != name}) for name in list(LINE)[:4]),
    ],
)  # fmt: skip
def test_lines_that_no_sink_writes(line: str, tmp_path: Path) -> None:
    refused(tmp_path / "run.jsonl", "\n".join([HEAD, json.dumps(LINE), line, json.dumps(LINE)]) + "\n", "line 3: ")


def test_a_call_and_a_phase_may_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(f'{HEAD}\r\n{{"step": 1, "metric": "M", "module": "m", "value": 2}}\r\n')
    assert list(load_recording(path).readings()) == [Reading("m", "M", 1, 2.0)]


@pytest.mark.parametrize(
    "line",
    [
        "", ",,,,,", "m,M,0,0.5,0", "m,M,0,0.5,0,train,", "m,M,0,0.5,0,test", "m,M,0,,0,train", "m,M,x,0.5,0,train",
        "m,M,0.0,0.5,0,train", "m,M,1_0,0.5,0,train", "m,M, 1,0.5,0,train", "m,M,٣,0.5,0,train", "m,M,0,nan,0,train",
        "m,M,0,1_0,0,train", "m,M,0,0.5,-1,train", "m,M,0,0.5,1000000000,train", "m,M,99999999999999999999,1,0,train",
        "m,M,9999999999999999999,1,0,train", 'm,M,0,"[1,2",0,train', 'm,M,0,"0.5,0,train', 'm"m,M,0,0.5,0,train',
        '"m"x,M,0,0.5,0,train', '"""\\x""",M,0,0.5,0,train', '"""a",M,0,0.5,0,train', "m,M,0,null,0,train", '"' * 99,
        '"' * 100_000, "," * 100_000, "m,M,0,true,0,train", 'm,M,0,"""0.5""",0,train', COLUMNS, "\0",
    ],
)  # fmt: skip
def test_rows_that_no_sink_writes(line: str, tmp_path: Path) -> None:
    row = "m,M,0,0.5,0,train"
    refused(tmp_path / "run.csv", f"{COLUMNS}\n{row}\n{line}\n{row}\n", "line 3: ")


@pytest.mark.parametrize("head", ["", "a,b", COLUMNS.upper(), "\ufeff" + COLUMNS, HEAD, COLUMNS + ",x", "\0" * 50])
def test_columns_of_something_else(head: str, tmp_path: Path) -> None:
    refused(tmp_path / "run.csv", head, "line 1: it does not begin|empty")


def test_what_is_no_file_of_ours(kind: str, tmp_path: Path) -> None:
    (tmp_path / f"folder{kind}").mkdir()
    os.mkfifo(tmp_path / f"pipe{kind}")
    (tmp_path / f"zero{kind}").symlink_to("/dev/zero")
    for name in ("folder", "pipe", "zero", "absent", "nul\0", "x" * 300):
        for act in (load_recording, lambda path: continue_file(path, 0)):
            with pytest.raises(RecordingError):
                act(tmp_path / f"{name}{kind}")
    for other in (3, None, b"run.jsonl", "run", "run.txt", "events.out.tfevents", ""):
        with pytest.raises(RecordingError, match=r"file|extension"):
            load_recording(other)  # type: ignore[arg-type]


def test_huge_lines_are_refused_in_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huge = tmp_path / "huge.jsonl"
    with huge.open("wb") as file:
        file.write(HEAD.encode() + b"\n")
        file.truncate(4 << 30)  # zeros that take no place
    lists = tmp_path / "lists.jsonl"
    lists.write_text(HEAD + "\n" + json.dumps(LINE).replace("0.5", "[" + "[]," * 2_000_000 + "[]]") + "\n")
    tracemalloc.start()
    try:
        for path, where in (
            (huge, "line 2: it is longer than 32 MB"),
            (lists, "line 2: it has more than 100,000 lists"),
        ):
            begin = time.process_time()
            with pytest.raises(RecordingError, match=where):
                load_recording(path)
            assert time.process_time() - begin < 2
        assert tracemalloc.get_traced_memory()[1] < 200e6
    finally:
        tracemalloc.stop()
    monkeypatch.setattr(module, "MAX_SLOTS", 100)
    names = [Reading(f"m{at}", "M", 0, 0.5) for at in range(101)]
    with pytest.raises(RecordingError, match="more than 100 different values"):
        load_recording(record(tmp_path / "names.jsonl", names))


def test_nothing_in_a_file_is_run(tmp_path: Path) -> None:
    for text in ("__import__('os').system('touch x')", "!!python/object:os.system", "{{7*7}}", "\x80\x04."):
        path = record(tmp_path / "run.jsonl", [Reading(text, text, 0, {text: 1.0})], text)
        recording = load_recording(path)
        assert recording.name == text
        assert recording.get_output() == {text: {text: {0: {text: 1.0}}}}
