"""SQLite as a store: connections, and checks of a file before it is used."""

from __future__ import annotations

import os
import re
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.engine import Engine
from sqlalchemy.pool import QueuePool, StaticPool

from modulekg_widgets.engine.errors import StoreError, printable
from modulekg_widgets.engine.knowledge.store.schema import APPLICATION_ID, SCHEMA_VERSION, metadata

MAGIC = b"SQLite format 3\0"
MAX_VALUE_BYTES = 256 << 20  # bytes of one value, far above what a model's description takes
CACHE_KIB = 128 << 10  # KiB at most: what is written in no order, as the index of fingerprints is, must fit
LOCK_TIMEOUT = 60.0  # seconds for another writer to finish
CHECK_SECONDS = 1.5  # of computing, for a file of up to 64 MiB, and as long again for each further 64
MAX_FOREIGN_BYTES = 4 << 30  # bytes of another program's file
FOREIGN_LOCK_TIMEOUT = 5.0  # seconds for its writer
_WAL_VERSION = 2  # what the header of a file with a write-ahead log says
_STEPS_PER_CHECK = 2000  # of SQLite's virtual machine between two looks at the clock


def memory_engine() -> Engine:
    """A database in memory, one connection for all threads (the store holds a lock)."""
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    return _control_transactions(engine)


def file_engine(path: Path, may_create: bool) -> Engine:
    """The engine of a checked file, or of one that does not exist yet; raises `StoreError` for anything else."""
    check_header(path)
    writable = os.access(path.parent, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))
    address = f"file:{quote(str(path))}?{_mode(path, writable, may_create)}"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(address, uri=True, timeout=LOCK_TIMEOUT, check_same_thread=False)

    engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool, pool_size=5, max_overflow=20)
    _control_transactions(engine)
    _use_write_ahead_log(engine, writable)
    return engine


def _mode(path: Path, writable: bool, may_create: bool) -> str:
    if writable:
        return "mode=rwc" if may_create else "mode=rw"
    log = path.with_name(f"{path.name}-wal")
    # whoever may not write has no place to lock the log in; without a log there is nobody who writes
    return "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"


def check_header(path: Path) -> None:
    """Raises `StoreError` for a file that is no store, before SQLite opens it."""
    try:
        head = _read_header(path)
    except OSError as error:
        raise StoreError(f"{printable(str(path))!r} cannot be read: {error.strerror}") from error
    if head and (len(head) < 100 or not head.startswith(MAGIC)):
        raise StoreError(f"{printable(str(path))!r} is not a SQLite file: it was not changed; name another file")
    if head and int.from_bytes(head[68:72], "big") not in (APPLICATION_ID, 0):
        raise StoreError(
            f"{printable(str(path))!r} is the database of another program: it was not changed; name another file"
        )


def _read_header(path: Path) -> bytes:
    """The header of the file, empty for one that is not there."""
    if path.is_dir():
        raise StoreError(f"{printable(str(path))!r} is a folder: name a file in it, such as 'zoo.db'")
    if not path.parent.is_dir():
        raise StoreError(f"there is no folder {printable(str(path.parent))!r}: make it first")
    if not path.exists():
        return b""
    with path.open("rb") as file:
        return file.read(100)


def _control_transactions(engine: Engine) -> Engine:
    """Controls transactions: a writer takes its lock at the beginning, so that two cannot block each other."""

    @event.listens_for(engine, "connect")
    def _connected(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None
        _protect(connection)

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _protect(connection: sqlite3.Connection) -> None:
    """Disables code in the schema and oversized cells."""
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA cell_size_check=ON")
    if sys.version_info >= (3, 11):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)


def _use_write_ahead_log(engine: Engine, writable: bool) -> None:
    @event.listens_for(engine, "connect")
    def _connected(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
        connection.execute("PRAGMA synchronous=FULL")  # what was acknowledged survives a power cut
        if writable and _is_ours(connection):
            _enable_write_ahead_log(connection)


def _is_ours(connection: sqlite3.Connection) -> bool:
    """True if the file is a store already, so that its journal mode may be changed."""
    try:
        return connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
    except sqlite3.Error:
        return False  # the checks that follow say what it is


def _enable_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Enables the write-ahead log, which allows readers beside a writer."""
    until = time.monotonic() + LOCK_TIMEOUT
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def check_file(connection: sqlite3.Connection, path: Path) -> None:
    """Raises `StoreError` for damaged pages or another schema; never writes, and stops after a time."""
    name = printable(str(path))
    with _time_limit(connection, path):
        found = {(kind, title): sql for kind, title, sql in connection.execute(_OBJECTS)}
    _check_pages(connection, path)
    version = connection.execute("SELECT value FROM modulekg_meta WHERE key = 'schema_version'").fetchone()
    if version == (str(SCHEMA_VERSION),) and found != expected_objects():
        wrong = sorted({title for _, title in set(found) ^ set(expected_objects())}) or ["the columns"]
        raise StoreError(f"{name!r} is not a store of ours: {printable(str(wrong[0]))!r} is not as it should be")
    if strange := sorted(title for kind, title in found if kind not in ("table", "index")):
        raise StoreError(
            f"{name!r} is not a store of ours: it holds {printable(str(strange[0]))!r}, no table and no index"
        )


def _check_pages(connection: sqlite3.Connection, path: Path) -> None:
    with _time_limit(connection, path):
        damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if damage != "ok":
        raise StoreError(
            f"{printable(str(path))!r} is damaged ({printable(str(damage))}): nothing was written, use a copy"
        )


# ANALYZE, which anyone may run, leaves its statistics
_OBJECTS = "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_stat%' ESCAPE '\\'"


@cache
def expected_objects() -> dict[tuple[str, str], str | None]:
    """Returns the schema objects of a new store of this version."""
    engine = create_engine("sqlite://", poolclass=StaticPool)
    with engine.begin() as connection:
        metadata.create_all(connection)
        rows = connection.exec_driver_sql(_OBJECTS).all()
    engine.dispose()
    return {(kind, title): sql for kind, title, sql in rows}


@contextmanager
def _time_limit(connection: sqlite3.Connection, path: Path, seconds: float = CHECK_SECONDS) -> Iterator[None]:
    """Interrupts work that takes longer than a valid file of this size needs.

    Waiting for a slow disk or a busy machine is no sign of damage, and does not count.
    """
    size = path.stat().st_size if path.exists() else 0
    until = time.thread_time() + seconds * (1 + size // (64 << 20))
    connection.set_progress_handler(lambda: time.thread_time() > until, _STEPS_PER_CHECK)
    try:
        yield
    finally:
        connection.set_progress_handler(None, _STEPS_PER_CHECK)


# ------------------------------------------------------------------ databases of other programs


@contextmanager
def foreign_database(path: Path, seconds: float) -> Iterator[sqlite3.Connection]:
    """Opens a checked read-only snapshot of another program's database.

    Raises `StoreError` for what is no sound SQLite file; what SQLite raises passes through.
    """
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?{_foreign_mode(path)}", uri=True, timeout=FOREIGN_LOCK_TIMEOUT
    )
    try:
        connection.isolation_level = None
        _protect(connection)
        connection.execute("PRAGMA query_only=ON")
        _check_pages(connection, path)
        with _time_limit(connection, path, seconds):
            connection.execute("BEGIN")
            yield connection
    finally:
        connection.close()


def _foreign_mode(path: Path) -> str:
    """Returns the open mode that writes nothing, also beside the file."""
    name = printable(str(path))
    if not path.is_file():  # a pipe would wait for its writer
        raise StoreError(f"there is no file {name!r}")
    if path.stat().st_size > MAX_FOREIGN_BYTES:
        raise StoreError(f"{name!r} is larger than {MAX_FOREIGN_BYTES >> 20} MB")
    head = _read_header(path)
    if len(head) < 100 or not head.startswith(MAGIC):
        raise StoreError(f"{name!r} is not a SQLite file")
    return _mode(path, writable=False, may_create=False) if head[18] == _WAL_VERSION else "mode=ro"


def plain_columns(connection: sqlite3.Connection, table: str) -> list[str]:
    """Returns the stored columns of a table, none if it is missing; raises `StoreError` for views."""
    found = connection.execute("SELECT type, rootpage, sql FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
    if found is None:
        return []
    kind, page, sql = found
    if kind != "table" or not page or not re.match(r"(?i)CREATE\s+TABLE\b", str(sql)):
        raise StoreError(f"its {printable(table)!r} is not a table, which would run code of the file's")
    return [row[1] for row in connection.execute(f"PRAGMA table_xinfo({table})") if not row[-1]]  # others are computed
