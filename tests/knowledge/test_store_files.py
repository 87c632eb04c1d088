"""Files from elsewhere: foreign, damaged, forged or newer ones are refused by name, and nothing is written to them."""

import gc
import itertools
import math
import os
import pickle
import random
import resource
import shutil
import sqlite3
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, text
from torch import nn

import modulekg_widgets as mk
from knowledge.postgres_server import PostgresServer
from modulekg_widgets.engine.errors import StoreError
from modulekg_widgets.engine.knowledge.store import schema, sqlite_file

SECONDS, MEGABYTES = 2, 500  # of one file


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "graph.db"
    graph = mk.KnowledgeGraph(path)
    for width in range(1, 40):
        graph.add_model(nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.5)), name=f"model{width}")
        graph.add_job(model=f"model{width}", history=[0.1, 0.5, 0.9])
    graph.close()
    return path


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(sound, tmp_path / "graph.db"))


def run_sql(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.executescript(statement)
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def refused(path: Path | str, message: str) -> None:
    """That opening or reading is refused with this message, and leaves the bytes as they were."""
    file = Path(path)
    before = file.read_bytes() if file.is_file() else None
    with pytest.raises(mk.ModuleKGError, match=message):
        mk.KnowledgeGraph(path).contents()
    assert (file.read_bytes() if file.is_file() else None) == before


FOREIGN: dict[str, Callable[[Path], object]] = {
    "text": lambda path: path.write_text("hello\n" * 100),
    "short": lambda path: path.write_bytes(b"SQLite format 3\0"),
    "picture": lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(500)),
    "other program": lambda path: run_sql(path, "CREATE TABLE notes (x); INSERT INTO notes VALUES (1)"),
    "other kind": lambda path: run_sql(path, "PRAGMA application_id=77; CREATE TABLE notes (x)"),
    "zeros": lambda path: path.write_bytes(bytes(8192)),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_file_is_left_as_it_is(kind: str, tmp_path: Path) -> None:
    FOREIGN[kind](tmp_path / "file")
    refused(tmp_path / "file", "another program|not a SQLite file")


def test_a_folder_or_no_folder_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, "is a folder")
    refused(tmp_path / "missing" / "graph.db", "there is no folder")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("mysql://root@localhost/x", "not a kind of store"),
        ("sqlite://", "leave `store` out"),
        ("sqlite:///:memory:", "leave `store` out"),
        ("postgresql://nobody@127.0.0.1:1/x", "Connection refused|connection failed"),
        ("", "a path or a URL"),
        ("a\0b", "no NUL"),
        ("sqlite:///x?mode=memory&uri=true&vfs=evil", "takes no 'mode'"),
    ],
)
def test_other_places_are_refused(location: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused(location, message)
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_no_file_may_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(mk.ModuleKGError, match="name too long"):
        mk.KnowledgeGraph(tmp_path / ("x" * 300))


def test_a_password_is_not_told() -> None:
    with pytest.raises(mk.ModuleKGError) as caught:
        mk.KnowledgeGraph("postgresql://nobody:geheim@127.0.0.1:1/x")
    assert "geheim" not in str(caught.value)
    assert "127.0.0.1" in str(caught.value)


def test_a_newer_version_is_refused(copy: Path) -> None:
    run_sql(copy, "UPDATE modulekg_meta SET value = '99' WHERE key = 'schema_version'")
    refused(copy, "schema version 99.*upgrade")


def test_a_newer_version_on_a_server_is_refused(lasting: str) -> None:
    graph = mk.KnowledgeGraph(lasting)
    with graph.repository.store.write() as connection:
        connection.execute(text("UPDATE modulekg_meta SET value = '99' WHERE key = 'schema_version'"))
    with pytest.raises(mk.ModuleKGError, match="schema version 99"):
        mk.KnowledgeGraph(lasting)


def test_an_older_version_is_brought_up_once(lasting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mk.KnowledgeGraph(lasting).add_user("ada")
    steps: list[int] = []
    monkeypatch.setattr(schema, "SCHEMA_VERSION", 3)
    monkeypatch.setattr("modulekg_widgets.engine.knowledge.store.database.SCHEMA_VERSION", 3)
    monkeypatch.setitem(schema.MIGRATIONS, 1, lambda connection: steps.append(1))
    add_note = text("ALTER TABLE modulekg_nodes ADD COLUMN note TEXT")
    monkeypatch.setitem(schema.MIGRATIONS, 2, lambda connection: steps.append(2) or connection.execute(add_note))
    with mk.KnowledgeGraph(lasting).repository.store.read() as connection:
        assert connection.execute(text("SELECT name, note FROM modulekg_nodes")).all() == [("ada", None)]
    mk.KnowledgeGraph(lasting)
    assert steps == [1, 2]


def test_a_step_that_fails_leaves_the_older_version(lasting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mk.KnowledgeGraph(lasting).add_user("ada")

    def fails(connection: object) -> None:
        connection.execute(text("ALTER TABLE modulekg_nodes ADD COLUMN note TEXT"))  # type: ignore[attr-defined]
        connection.execute(text("SELECT x FROM nowhere"))  # type: ignore[attr-defined]

    with monkeypatch.context() as newer:
        newer.setattr(schema, "SCHEMA_VERSION", 2)
        newer.setattr("modulekg_widgets.engine.knowledge.store.database.SCHEMA_VERSION", 2)
        newer.setitem(schema.MIGRATIONS, 1, fails)
        with pytest.raises(mk.ModuleKGError, match="nowhere"):
            mk.KnowledgeGraph(lasting)
    graph = mk.KnowledgeGraph(lasting)
    graph.add_user("eve")
    assert graph.users == ["ada", "eve"]


FORGED = {
    "trigger": "CREATE TRIGGER t AFTER INSERT ON modulekg_nodes BEGIN DELETE FROM modulekg_edges; END",
    "view": "CREATE VIEW v AS SELECT 1",
    "more columns": "ALTER TABLE modulekg_nodes ADD COLUMN x TEXT",
    "another table": "CREATE TABLE x (y)",
    "no edges": "DROP TABLE modulekg_edges",
    "edges are a view": "DROP TABLE modulekg_edges; CREATE VIEW modulekg_edges AS SELECT 1 AS source",
    "no meta": "DELETE FROM modulekg_meta",
    "version": "UPDATE modulekg_meta SET value = 'x' WHERE key = 'schema_version'",
    "version 0": "UPDATE modulekg_meta SET value = '0' WHERE key = 'schema_version'",
    "far time": "UPDATE modulekg_nodes SET properties = replace(properties, 'started\":', 'started\":9999')",
    "scheme": "UPDATE modulekg_meta SET value = 'x' WHERE key = 'scheme'",
    "revision": "UPDATE modulekg_meta SET value = '-1' WHERE key = 'revision'",
    "blob": "UPDATE modulekg_nodes SET properties = x'ff00' WHERE type = 'Module'",
    "number": "UPDATE modulekg_nodes SET properties = 5",
    "no text": "UPDATE modulekg_nodes SET properties = 'x'",
    "list": "UPDATE modulekg_nodes SET properties = '[]'",
    "deep": f"UPDATE modulekg_nodes SET properties = '{'[' * 100_000}'",
    "missing": "UPDATE modulekg_nodes SET properties = '{}'",
    "name": "UPDATE modulekg_nodes SET name = '\\q'",
    "bytes as name": "UPDATE modulekg_nodes SET name = x'ff'",
    "type": "UPDATE modulekg_nodes SET type = 'Evil' WHERE id = 1",
    "edge type": "UPDATE modulekg_edges SET type = 'evil'",
    "edge to nothing": "UPDATE modulekg_edges SET target = target + 100000",
    "edge from text": "UPDATE modulekg_edges SET source = 'x' || source WHERE owner = 0",
    "slots": "UPDATE modulekg_edges SET properties = '[[0, 5]]' WHERE type = 'contains'",
    "far slot": "UPDATE modulekg_edges SET properties = '[[1000000000000, \"x\"]]' WHERE type = 'contains'",
    "count": "UPDATE modulekg_occurrences SET count = -1",
    "count as text": "UPDATE modulekg_occurrences SET count = 'x'",
    "level": "UPDATE modulekg_occurrences SET level = 'x'",
    "root": "UPDATE modulekg_nodes SET properties = replace(properties, 'root', 'roof') WHERE type = 'Model'",
    "other name": "UPDATE modulekg_nodes SET key = '0' || key WHERE type = 'Model'",
    "key": "UPDATE modulekg_nodes SET key = 'x' WHERE type = 'Module' AND id = 1",
}


@pytest.mark.parametrize("how", FORGED)
def test_a_forged_file_is_refused(how: str, copy: Path) -> None:
    run_sql(copy, FORGED[how])
    refused(copy, "store|another program")


def test_a_file_that_may_only_be_read_is_read(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modulekg_widgets.engine.knowledge.store.sqlite_file.os.access", lambda path, mode: False)
    graph = mk.KnowledgeGraph(copy)
    assert len(graph.models) == 39
    with pytest.raises(mk.ModuleKGError, match="readonly"):
        graph.add_user("ada")
    assert [path.name for path in copy.parent.iterdir()] == ["graph.db"]


def test_a_reader_without_the_right_to_write_sees_what_is_in_the_log(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = mk.KnowledgeGraph(copy)
    writer.add_user("ada")
    assert copy.with_name("graph.db-wal").stat().st_size > 0
    monkeypatch.setattr("modulekg_widgets.engine.knowledge.store.sqlite_file.os.access", lambda path, mode: False)
    assert mk.KnowledgeGraph(copy).users == ["ada"]


def test_statistics_for_the_planner_are_no_forgery(copy: Path) -> None:
    run_sql(copy, "ANALYZE")
    assert len(mk.KnowledgeGraph(copy).models) == 39


def test_a_file_that_was_moved_or_replaced_takes_nothing_more(copy: Path) -> None:
    graph = mk.KnowledgeGraph(copy)
    graph.add_user("ada")
    copy.rename(copy.with_name("moved.db"))
    with pytest.raises(mk.ModuleKGError, match="moved, removed or replaced"):
        graph.add_user("eve")
    graph.close()
    with pytest.raises(mk.ModuleKGError, match="moved, removed or replaced"):
        graph.add_user("eve")
    assert not copy.exists()
    shutil.copy(copy.with_name("moved.db"), copy)
    with pytest.raises(mk.ModuleKGError, match="moved, removed or replaced"):
        _ = graph.models


def test_a_path_is_that_of_the_folder_in_which_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    graph = mk.KnowledgeGraph("graph.db")
    graph.add_user("ada")
    graph.close()
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert graph.users == ["ada"]
    assert pickle.loads(pickle.dumps(graph)).users == ["ada"]
    assert list((tmp_path / "other").iterdir()) == []


def test_a_store_that_another_raised_to_a_newer_version_takes_nothing_more(lasting: str) -> None:
    graph = mk.KnowledgeGraph(lasting)
    with graph.repository.store.write() as connection:
        connection.execute(text("UPDATE modulekg_meta SET value = '2' WHERE key = 'schema_version'"))
    with pytest.raises(mk.ModuleKGError, match="schema version 2"):
        graph.add_user("ada")
    assert graph.users == []


def test_a_table_of_another_program_is_left_alone(postgres: PostgresServer) -> None:
    location = postgres.new_database()
    engine = create_engine(location)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE modulekg_nodes (x int)"))
    with pytest.raises(mk.ModuleKGError, match="already exists"):
        mk.KnowledgeGraph(location)
    with engine.connect() as connection:
        assert inspect(connection).get_table_names() == ["modulekg_nodes"]
    engine.dispose()


@pytest.mark.slow
def test_a_graph_that_is_dropped_closes_its_connections(lasting: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        with mk.KnowledgeGraph(lasting) as graph:
            graph.add_user("ada")
        graph = mk.KnowledgeGraph(lasting)
        assert graph.users == ["ada"]
        opened = len(os.listdir("/proc/self/fd"))
        del graph
        gc.collect()
    assert len(os.listdir("/proc/self/fd")) < opened


def fuzzed(original: bytes, rng: random.Random) -> bytes:
    """`original` with some of its bytes changed, moved, cut or doubled."""
    data = bytearray(original)
    for _ in range(rng.choice((1, 1, 4, 30))):
        at = rng.randrange(len(data))
        match rng.randrange(5):
            case 0:
                data[at] = rng.randrange(256)
            case 1:
                data[at : at + 4] = rng.randbytes(4)
            case 2:
                del data[at : at + rng.randrange(1, 5000)]
            case 3:
                page = at // 4096 * 4096
                data[page : page + 4096] = data[:4096] if rng.random() < 0.2 else bytes(4096)
            case _:
                data[at:at] = data[at : at + rng.randrange(1, 5000)]
        if not data:
            return bytes(data)
    return bytes(data)


def read_all(path: Path) -> str:
    """What becomes of reading the whole file: "read", or the error's type."""
    try:
        graph = mk.KnowledgeGraph(path)
        graph.contents()
        for name in graph.models:
            graph.tree(name)
    except mk.ModuleKGError as error:
        return type(error).__name__
    finally:
        for rest in path.parent.glob(f"{path.name}-*"):
            rest.unlink(missing_ok=True)  # a graph that is dropped removes its log itself
    return "read"


@pytest.mark.parametrize(("clock", "is_refused"), [("monotonic", False), ("thread_time", True)])
def test_what_computes_long_is_refused_and_a_slow_disk_is_not(
    copy: Path, monkeypatch: pytest.MonkeyPatch, clock: str, is_refused: bool
) -> None:
    """Each look at that clock is an hour after the one before, and every step of SQLite's looks."""
    monkeypatch.setattr(sqlite_file, "_STEPS_PER_CHECK", 1)
    monkeypatch.setattr(time, clock, itertools.count(0, 3600).__next__)
    if is_refused:
        with pytest.raises(StoreError, match="takes longer than a sound file"):
            mk.KnowledgeGraph(copy)
    else:
        assert len(mk.KnowledgeGraph(copy).models) == 39


def check_fuzzed(sound: Path, folder: Path, count: int) -> None:
    original, rng = sound.read_bytes(), random.Random(7)
    path, outcomes = folder / "fuzzed.db", set()
    for _ in range(count):
        path.write_bytes(fuzzed(original, rng))
        begun = time.perf_counter()
        outcomes.add(read_all(path))
        assert time.perf_counter() - begun < SECONDS
    # a damaged index may say that a name is not there
    assert {"read", "StoreError"} <= outcomes <= {"read", "StoreError", "UnknownPathError"}


@pytest.mark.slow
def test_fuzzed_files_are_read_or_refused(sound: Path, tmp_path: Path) -> None:
    check_fuzzed(sound, tmp_path, 200)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_ten_thousand_fuzzed_files(sound: Path, tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        grown = math.inf
        try:
            used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            check_fuzzed(sound, tmp_path, 10_000)
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used) / 1024
        finally:
            os._exit(0 if grown < MEGABYTES else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
