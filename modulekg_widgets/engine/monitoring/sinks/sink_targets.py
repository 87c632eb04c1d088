"""Targets of sinks: a path, a SummaryWriter or an object with `log`, and the sink for each."""

from __future__ import annotations

import io
import logging
import os
from pathlib import Path
from typing import Any

from modulekg_widgets.engine.errors import RecordingError, UnknownNameError, a_type, printable
from modulekg_widgets.engine.monitoring.sinks.line_files import CSV, JSONL, LineFormat, LineSink
from modulekg_widgets.engine.monitoring.sinks.loggers import ObjectSink, TensorBoardSink
from modulekg_widgets.engine.monitoring.sinks.parquet_sink import ParquetSink
from modulekg_widgets.engine.monitoring.sinks.sink_thread import Sink

LINE_FORMATS: dict[str, LineFormat] = {".jsonl": JSONL, ".csv": CSV}
PARQUET = ".parquet"
EXTENSIONS = (*LINE_FORMATS, PARQUET)
SINK_HINT = (
    "a sink is the path of a .jsonl, .csv or .parquet file, a torch.utils.tensorboard.SummaryWriter, "
    "an object with log(values, step=…) such as wandb or its run, or one with write(readings) and close()"
)


def open_sink(target: Any, name: str | None = None, append: bool = False) -> Sink:
    """Returns the sink of a target: a path by its extension, a `SummaryWriter`, an object with `log`, or a sink.

    `name` is that of the run, the name of the file by default. A recording at the path is replaced, or continued with
    `append`. Raises `UnknownNameError` for anything else, `RecordingError` for a file that cannot be written.
    """
    if isinstance(target, str | os.PathLike):
        return _file_sink(target, name, append)
    if isinstance(target, type | io.IOBase | logging.Logger):  # these have a `log` or `write` that means another thing
        raise UnknownNameError(f"{SINK_HINT}; not {_described(target)}")
    if _has(target, "add_scalar", "add_histogram"):
        return TensorBoardSink(target)
    if _has(target, "log"):
        return ObjectSink(target)
    if _has(target, "write", "close"):
        return target
    raise UnknownNameError(f"{SINK_HINT}; not {_described(target)}")


def _file_sink(target: str | os.PathLike[str], name: str | None, append: bool) -> Sink:
    try:
        path = path_of(target)
    except RecordingError as error:
        raise UnknownNameError(f"{SINK_HINT}; {error}") from error
    name = path.stem if name is None else name
    if path.suffix.lower() == PARQUET:
        return ParquetSink(path, name, append)
    return LineSink(path, LINE_FORMATS[path.suffix.lower()], name, append)


def path_of(target: object) -> Path:
    """Returns the path of a recording; raises `RecordingError` for an unknown extension."""
    if not isinstance(target, str | os.PathLike) or not isinstance(os.fspath(target), str):
        raise RecordingError(f"a recording is named by the path of a file, not {_described(target)}")
    path = Path(target)
    if path.suffix.lower() not in EXTENSIONS:
        raise RecordingError(
            f"a recording is a file with the extension {', '.join(EXTENSIONS)}, not {printable(str(path))!r}"
        )
    return path


def _has(target: object, *names: str) -> bool:
    return all(callable(getattr(target, name, None)) for name in names)


def _described(target: object) -> str:
    if isinstance(target, type):
        return f"the class {printable(target.__name__)}: pass an object of this class"
    if isinstance(target, io.IOBase):
        return "an open file: pass its path"
    return a_type(target)
