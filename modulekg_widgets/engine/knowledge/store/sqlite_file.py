"""SQLite as a store: its connections, and the checks of a file before anything in it is believed."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import create_engine, event
from sqlalchemy.engine import Engine
from sqlalchemy.pool import QueuePool, StaticPool

from modulekg_widgets.engine.errors import StoreError, shown
from modulekg_widgets.engine.knowledge.store.schema import APPLICATION_ID, SCHEMA_VERSION, tables

MAGIC = b"SQLite format 3\0"
LONGEST_VALUE = 256 << 20  # bytes of one value, far above what a model's description takes
CACHE = 128 << 10  # KiB at most: what is written in no order, as the index of fingerprints is, must fit
WAIT = 60.0  # seconds for another writer to finish
SECONDS_TO_CHECK = 1.5  # for a file of up to 64 MiB, and as long again for each further 64
_STEPS = 2000  # of SQLite's virtual machine between two looks at the clock


def memory_engine() -> Engine:
    """A database in memory, one connection for all threads (the store holds a lock)."""
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    return _with_own_transactions(engine)


def file_engine(path: Path, may_create: bool) -> Engine:
    """The engine of a checked file, or of one that does not exist yet; raises `StoreError` for anything else."""
    check_place(path)
    writable = os.access(path.parent, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))
    address = f"file:{quote(str(path))}?{_mode(path, writable, may_create)}"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(address, uri=True, timeout=WAIT, check_same_thread=False)

    engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool, pool_size=5, max_overflow=20)
    _with_own_transactions(engine)
    _with_log(engine, writable)
    return engine


def _mode(path: Path, writable: bool, may_create: bool) -> str:
    if writable:
        return "mode=rwc" if may_create else "mode=rw"
    log = path.with_name(f"{path.name}-wal")
    # whoever may not write has no place to lock the log in; without a log there is nobody who writes
    return "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"


def check_place(path: Path) -> None:
    """Refuse what is no file of ours before SQLite touches it."""
    try:
        head = _head(path)
    except OSError as error:
        raise StoreError(f"{shown(str(path))!r} cannot be read: {error.strerror}") from error
    if head and (len(head) < 100 or not head.startswith(MAGIC)):
        raise StoreError(f"{shown(str(path))!r} is no SQLite file: it is left as it is, name another")
    if head and int.from_bytes(head[68:72], "big") not in (APPLICATION_ID, 0):
        raise StoreError(f"{shown(str(path))!r} is the database of another program: it is left as it is, name another")


def _head(path: Path) -> bytes:
    """The header of the file, empty for one that is not there."""
    if path.is_dir():
        raise StoreError(f"{shown(str(path))!r} is a folder: name a file in it, such as 'zoo.db'")
    if not path.parent.is_dir():
        raise StoreError(f"there is no folder {shown(str(path.parent))!r}: make it first")
    if not path.exists():
        return b""
    with path.open("rb") as file:
        return file.read(100)


def _with_own_transactions(engine: Engine) -> Engine:
    """Begin transactions ourselves: a writer takes its lock at once, or two that read first would refuse each other."""

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA cell_size_check=ON")
        if sys.version_info >= (3, 11):
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)

    @event.listens_for(engine, "begin")
    def _begun(connection: Any) -> None:
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _with_log(engine: Engine, writable: bool) -> None:
    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _record: Any) -> None:
        connection.execute(f"PRAGMA cache_size=-{CACHE}")
        connection.execute("PRAGMA synchronous=FULL")  # what was acknowledged survives a power cut
        if writable and _is_ours(connection):
            _write_ahead(connection)


def _is_ours(connection: sqlite3.Connection) -> bool:
    """Whether the file is a store already, so that its journal may be changed; reads only."""
    try:
        return connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
    except sqlite3.Error:
        return False  # the checks that follow say what it is


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Readers and a writer at once; the change of mode does not wait for locks by itself."""
    until = time.monotonic() + WAIT
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def check_file(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file whose pages are damaged or whose schema is not ours; never writes, never takes long."""
    name = shown(str(path))
    with _time_limit(connection, path):
        found = {(kind, title): sql for kind, title, sql in connection.execute(_OBJECTS)}
        damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if damage != "ok":
        raise StoreError(f"{name!r} is damaged ({shown(str(damage))}): nothing was written, use a copy of it")
    version = connection.execute("SELECT value FROM modulekg_meta WHERE key = 'schema_version'").fetchone()
    if version == (str(SCHEMA_VERSION),) and found != expected_objects():
        wrong = sorted({title for _, title in set(found) ^ set(expected_objects())}) or ["the columns"]
        raise StoreError(f"{name!r} is no store of ours: {shown(str(wrong[0]))!r} is not as it should be")
    if strange := sorted(title for kind, title in found if kind not in ("table", "index")):
        raise StoreError(f"{name!r} is no store of ours: it holds {shown(str(strange[0]))!r}, no table and no index")


# ANALYZE, which anyone may run, leaves its statistics
_OBJECTS = "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_stat%' ESCAPE '\\'"


@cache
def expected_objects() -> dict[tuple[str, str], str | None]:
    """What SQLite lists of a fresh store of this version."""
    engine = create_engine("sqlite://", poolclass=StaticPool)
    with engine.begin() as connection:
        tables.create_all(connection)
        rows = connection.exec_driver_sql(_OBJECTS).all()
    engine.dispose()
    return {(kind, title): sql for kind, title, sql in rows}


@contextmanager
def _time_limit(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """Stop what takes longer than a sound file of this size needs."""
    size = path.stat().st_size if path.exists() else 0
    until = time.monotonic() + SECONDS_TO_CHECK * (1 + size // (64 << 20))
    connection.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
    try:
        yield
    finally:
        connection.set_progress_handler(None, _STEPS)
