"""Files are written whole or not at all, with the mode that a new file has, and read within bounds."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine import safe_files
from modulekg_widgets.engine.errors import UnknownPathError, UnwritableFileError
from modulekg_widgets.engine.safe_files import AtomicFile, atomic_writer, parse_json, read_bounded, write_atomic

ROOT = Path(mk.__file__).parent
OLD, NEW = b"what was there before", b"new"


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 3))


def dependencies(path: Path) -> None:
    mk.trace(net(), torch.zeros(2, 4)).channel_dependency().to_csv(path)


def masks(path: Path) -> None:
    graph = mk.trace(net(), torch.zeros(2, 4))
    mk.pruning.infer_masks(graph, {"0": {"weight": torch.ones(12, 4)}}).save(path)


def recording(path: Path) -> None:
    with mk.Monitor(net(), {"0": "WeightNorm"}) as monitor:
        monitor.add_sink(path)
        monitor.track(0)


def stored(path: Path) -> None:
    kg = mk.KnowledgeGraph()
    kg.add_model(net(), name="net")
    kg.export(path)


WRITERS: dict[str, Callable[[Path], object]] = {
    "plan.json": lambda path: mk.plan(mk.trace(net(), torch.zeros(2, 4)), ratio=0.5).save(path),
    "graph.graphml": stored,
    "graph.csv": stored,
    "model.html": lambda path: mk.ModelGraph(net()).export(path),
    "model.svg": lambda path: mk.ModelGraph(net()).export(path),
    "page.html": lambda path: mk.save_html(mk.ModelGraph(net()), path),
    "sets.csv": dependencies,
    "masks.pt": masks,
    "run.parquet": recording,
}


@pytest.fixture(params=WRITERS)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Callable[[Path], object], Path]:
    return WRITERS[request.param], tmp_path / request.param


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_a_new_file_has_the_mode_that_the_umask_leaves(
    written: tuple[Callable[[Path], object], Path], umask: int
) -> None:
    write, path = written
    before = os.umask(umask)
    try:
        write(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_no_writer_touches_the_umask_or_writes_in_place(
    written: tuple[Callable[[Path], object], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write, path = written
    write(path)
    before, number = path.read_bytes(), path.stat().st_ino
    path.chmod(0o640)

    def refuse(*_: object) -> None:
        raise AssertionError("the umask is that of all threads")

    synced: list[int] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "umask", refuse)
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(os.fstat(handle).st_ino), fsync(handle)))
    with path.open("rb") as reader:
        write(path)
        assert reader.read() == before  # who reads goes on with the file as it was
    assert path.stat().st_ino != number
    assert path.stat().st_ino in synced
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_there_is_one_atomic_writer() -> None:
    """Beside it, a training appends to files (sinks/lines.py), a folder that was written through it is renamed as a
    whole (saving/folder.py), and plan_folder only asks what the system has."""
    pattern = re.compile(
        r"os\.(umask|replace|rename|link)\b|NamedTemporaryFile|mkstemp|\.write_(text|bytes)\(|savefig\([^bf]"
        r"|open\([^)]*[\"'](?:[wax]b?\+?|r\+|rb\+)[\"']"
    )
    found = {
        path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if pattern.search(path.read_text("utf-8"))
    }
    assert found == {
        "engine/safe_files.py",
        "engine/pruning/plan/saved/plan_file.py",
        "engine/pruning/saving/model_folder.py",
        "engine/monitoring/sinks/line_files.py",
    }


# ----------------------------------------------------------------- wholly or not


class Fuse:
    """A trace function that raises at line `left` of the code of the writer."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        return self.line if frame.f_code.co_filename == safe_files.__file__ else None

    def line(self, frame: FrameType, event: str, _: Any) -> Any:
        self.left -= event == "line"
        if self.left < 0:
            self.left = sys.maxsize  # what is broken off may still tidy up
            raise KeyboardInterrupt
        return self.line


@pytest.mark.parametrize("old", [OLD, None])
def test_a_fault_at_every_line_leaves_the_old_file_or_the_new_one(tmp_path: Path, old: bytes | None) -> None:
    path, seen = tmp_path / "a", set()
    previous = sys.gettrace()
    for at in range(1000):
        path.unlink(missing_ok=True)
        if old is not None:
            path.write_bytes(old)
        sys.settrace(Fuse(at))
        try:
            write_atomic(path, NEW)
        except KeyboardInterrupt:
            broken = True
        else:
            broken = False
        finally:
            sys.settrace(previous)
        assert set(os.listdir(tmp_path)) <= {"a"}, f"line {at}"
        seen.add(path.read_bytes() if path.exists() else None)
        if not broken:
            break
    assert seen == {old, NEW}
    assert at > 20


@pytest.mark.parametrize("step", ["fsync", "replace", "open", "fdopen"])
def test_a_disk_that_fails(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    (tmp_path / "a").write_bytes(OLD)
    monkeypatch.setattr(os, step, fail)
    with pytest.raises(UnwritableFileError, match="Input/output error"):
        write_atomic(tmp_path / "a", NEW)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == OLD


def test_a_reader_never_sees_a_part(tmp_path: Path) -> None:
    path, contents = tmp_path / "a", [bytes([letter]) * 300_000 for letter in range(4)]
    write_atomic(path, contents[0])
    done = threading.Event()

    def write(content: bytes) -> None:
        while not done.is_set():
            write_atomic(path, content)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    seen = {read_bounded(path, 1 << 20) for _ in range(300)}
    done.set()
    for thread in threads:
        thread.join()
    assert seen <= set(contents)
    assert os.listdir(tmp_path) == ["a"]


def test_a_link_stays_and_leads_to_the_new_file(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").write_bytes(OLD)
    (tmp_path / "link").symlink_to("real/a")
    write_atomic(tmp_path / "link", NEW)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "a").read_bytes() == NEW


def test_what_is_no_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    before = sorted(os.listdir(tmp_path))
    for name in ("folder", "pipe", "x" * 300, "nul\0l", "\ud800"):
        with pytest.raises(UnwritableFileError):
            write_atomic(tmp_path / name, NEW)
    with pytest.raises(UnwritableFileError, match="not a regular file"):
        write_atomic("/dev/null", NEW)
    with pytest.raises(UnknownPathError, match="there is no folder"):
        write_atomic(tmp_path / "absent" / "a", NEW)
    assert sorted(os.listdir(tmp_path)) == before
    for name in ("folder", "pipe"):
        with pytest.raises(OSError, match="not a regular file"):
            read_bounded(tmp_path / name, 10)


def test_what_is_read_has_a_bound(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    assert read_bounded(tmp_path / "a", 10) == b"0123456789"
    with pytest.raises(OSError, match="larger than"):
        read_bounded(tmp_path / "a", 9)
    for endless in ("/dev/zero", "/dev/stdin"):
        with pytest.raises(OSError, match="not a regular file"):
            read_bounded(endless, 10)


def test_the_first_file_wins_where_none_was_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    for name in ("links", "no links"):
        new, late = AtomicFile(tmp_path / name), AtomicFile(tmp_path / name)
        for each in (new, late):
            each.open().write(NEW)
        new.commit_new()
        with pytest.raises(FileExistsError):
            late.commit_new()
        for each in (new, late):
            each.discard()
        assert (tmp_path / name).read_bytes() == NEW
        monkeypatch.setattr(os, "link", unsupported)  # as on a memory stick
    assert sorted(os.listdir(tmp_path)) == ["links", "no links"]


def test_a_block_that_raises_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(OLD)

    def half(path: Path) -> None:
        with atomic_writer(path) as file:
            file.write(NEW)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half(tmp_path / "a")
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == OLD


def test_dependencies_are_still_read_as_a_table(tmp_path: Path) -> None:
    dependencies(tmp_path / "a.csv")
    assert "Dependency Set" in pd.read_csv(tmp_path / "a.csv").columns


class RefusedError(ValueError):
    """The error of some format."""


@pytest.mark.parametrize(
    ("text", "kinds", "said"),
    [
        ("[NaN]", {}, "NaN is not a number of JSON"),
        ("-Infinity", {}, "-Infinity is not a number of JSON"),
        ("[[[]]]", {}, "more than 2 lists and objects"),
        ('{"a": 1, "a": 2}', {"unique": True}, "a name stands twice"),
        ("1e999", {"doubles": True}, "no double is as large as 1e999"),
        ("9" * 401, {"doubles": True}, "no double is as large as 999"),
    ],
)
def test_json_beyond_the_bounds_is_the_error_of_the_format(text: str, kinds: dict[str, bool], said: str) -> None:
    for form in (text, text.encode()):
        with pytest.raises(RefusedError, match=said):
            parse_json(form, RefusedError, 2, **kinds)


@pytest.mark.parametrize("text", ["", "{", "[1,]", "\ufeff{}", '"\x01"', "01", "9" * 5000, b"\xff", b"\xed\xa0\x80"])
def test_what_is_no_json_is_a_plain_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"line 1|codec can't decode|4300 digits|UTF-8") as caught:
        parse_json(text, RefusedError, 100)
    assert not isinstance(caught.value, RefusedError)


@pytest.mark.parametrize("text", ["\ufeff{}", b"\xef\xbb\xbf{}"])
def test_a_byte_order_mark_is_named(text: str | bytes) -> None:
    with pytest.raises(ValueError, match="BOM"):
        parse_json(text, RefusedError, 100)


def test_json_nested_too_deep_ends_without_a_crash() -> None:
    with pytest.raises(RecursionError):
        parse_json("[" * 200_000, RefusedError, 1_000_000)


def test_json_within_the_bounds_is_read_as_it_is() -> None:
    assert parse_json(b'{"a": [1, 2.5, "\\ud800"], "a": null}', RefusedError, 2) == {"a": None}
    assert parse_json('[1, 2.5, {"a": "\\ud800"}]', RefusedError, 2, unique=True, doubles=True) == [
        1,
        2.5,
        {"a": "\ud800"},
    ]


def test_a_link_is_read_only_where_links_are_welcome(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(NEW)
    os.symlink(tmp_path / "file", tmp_path / "link")
    assert read_bounded(tmp_path / "link", 100) == NEW
    with pytest.raises(OSError, match="not a regular file"):
        read_bounded(tmp_path / "link", 100, links=False)
