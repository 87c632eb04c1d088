"""What can be passed as a sink, and which files a sink writes over."""

from __future__ import annotations

import io
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import RecordingError, UnknownNameError
from modulekg_widgets.engine.monitoring.readings import Reading
from modulekg_widgets.engine.monitoring.sinks.line_files import LineSink
from modulekg_widgets.engine.monitoring.sinks.loggers import ObjectSink, TensorBoardSink
from modulekg_widgets.engine.monitoring.sinks.parquet_sink import ParquetSink
from modulekg_widgets.engine.monitoring.sinks.recording import load_recording
from modulekg_widgets.engine.monitoring.sinks.sink_targets import open_sink
from modulekg_widgets.engine.monitoring.sinks.sink_thread import Sink
from monitoring.sinks.samples import KINDS, assert_same, record, scalars


class Own:
    def write(self, readings: list[Reading]) -> None: ...

    def close(self) -> None: ...


def nothing(*args: Any, **kwargs: Any) -> None: ...


@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize(
    ("name", "kind"),
    [("run.jsonl", LineSink), ("run.csv", LineSink), ("RUN.CSV", LineSink), ("a.b.parquet", ParquetSink)],
)
def test_a_path_goes_by_its_extension(name: str, kind: type, as_text: bool, tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / name
    sink = open_sink(str(path) if as_text else path)
    assert type(sink) is kind
    sink.close()
    assert path.is_file()


def test_an_object_goes_by_what_it_can_do() -> None:
    own = Own()
    assert open_sink(own) is own
    assert isinstance(open_sink(SimpleNamespace(log=nothing)), ObjectSink)
    assert isinstance(open_sink(SimpleNamespace(log=nothing, finish=nothing, close=nothing)), ObjectSink)
    writer = SimpleNamespace(add_scalar=nothing, add_histogram=nothing, close=nothing)
    assert isinstance(open_sink(writer), TensorBoardSink)
    assert isinstance(open_sink(SimpleNamespace(log=nothing)), Sink)


@pytest.mark.parametrize(
    "target",
    [
        None, 3, [], b"run.jsonl", "run", "run.txt", "run.jsonl.gz", "runs/experiment", "", Path("run.json"), Own,
        ObjectSink, io.StringIO(), logging.getLogger("x"), SimpleNamespace(log=3), SimpleNamespace(write=nothing),
    ],
)  # fmt: skip
def test_anything_else_is_told_what_can_be_passed(target: Any) -> None:
    with pytest.raises(UnknownNameError) as caught:
        open_sink(target)
    assert isinstance(caught.value, mk.ModuleKGError)
    for known in (".jsonl", ".csv", ".parquet", "SummaryWriter", "log(values", "write(readings)"):
        assert known in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_recording_is_replaced(kind: str, tmp_path: Path) -> None:
    path = record(tmp_path / f"run{kind}", scalars(50))
    record(path, scalars(2))
    assert_same(load_recording(path).readings(None), scalars(2))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("append", [True, False])
def test_a_file_of_something_else_stays_as_it_is(kind: str, append: bool, tmp_path: Path) -> None:
    path = tmp_path / f"thesis{kind}"
    for content in (
        b"name,value\nx,1\n",
        b"PAR1" * 10,
        b"\xff\xfe",
        b'{"format": "modulekg-run", "version": 2}\n',
        b"x",
    ):
        path.write_bytes(content)
        with pytest.raises(RecordingError, match="another path"):
            open_sink(path, append=append)
        assert path.read_bytes() == content
        assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_written_is_said_at_once(kind: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / f"folder{kind}").mkdir()
    for name in (f"file/run{kind}", f"folder{kind}", f"nul\0{kind}", "x" * 300 + kind):
        with pytest.raises(RecordingError, match=str(tmp_path)):
            open_sink(tmp_path / name)


@pytest.mark.parametrize("kind", KINDS)
def test_two_sinks_of_one_path_leave_a_whole_file(kind: str, tmp_path: Path) -> None:
    first, second = open_sink(tmp_path / f"run{kind}"), open_sink(tmp_path / f"run{kind}")
    for reading in scalars(5):
        first.write([reading])
        second.write([reading])
    second.close()
    first.close()
    assert {path.name for path in tmp_path.iterdir()} == {f"run{kind}"}
    assert set(load_recording(tmp_path / f"run{kind}").readings()) == set(scalars(5))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("content", [None, b""])
def test_to_append_to_nothing_is_to_begin(kind: str, content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / f"run{kind}"
    if content is not None:
        path.write_bytes(content)
    sink = open_sink(path, "first", append=True)
    sink.write(scalars(3))
    sink.close()
    assert_same(load_recording(path).readings(None), scalars(3))


@pytest.mark.parametrize("kind", KINDS)
def test_appending_keeps_what_is_there(kind: str, tmp_path: Path) -> None:
    path = record(tmp_path / f"run{kind}", scalars(3), "first")
    name = load_recording(path).name
    for start in (3, 5):
        sink = open_sink(path, "second", append=True)
        sink.write(scalars(start + 2)[start * 3 :])
        sink.close()
        sink.close()
    assert_same(load_recording(path).readings(None), scalars(7))
    assert load_recording(path).name == name
