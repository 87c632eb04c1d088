"""The database of a graph: opened with checks, read in snapshots, written in one transaction at a time."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, create_engine, inspect
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from modulekg_widgets.engine.errors import MissingPackageError, StoreError, printable
from modulekg_widgets.engine.knowledge.store.schema import (
    APPLICATION_ID,
    SCHEMA_VERSION,
    create_tables,
    meta,
    migrate,
    read_meta,
    write_meta,
)
from modulekg_widgets.engine.knowledge.store.sqlite_file import check_file, file_engine, memory_engine

Location = str | os.PathLike[str]
# what a database's message means for the user
_REMEDIES = {
    "readonly": ": this file or its folder may only be read here; copy it to write",
    "disk is full": ": nothing was written, make room and try again",
    "disk I/O error": ": nothing was written, the disk is full or missing",
    "database is locked": ": another process has been writing for a minute, try again",
    "interrupted": ": checking it takes longer than a sound file of its size does, use a copy",
    "Connection refused": ": is the server running there?",
}
_SECONDS_TO_CONNECT = 10  # to a server
_POSTGRES_LOCK = 0x4D4B4731  # one writer at a time, as in SQLite: what nobody uses is removed by looking at all


class Store:
    """A database of nodes and edges: in memory, in an SQLite file, or on a PostgreSQL server.

    `location` is None, a path, or a URL `sqlite:///zoo.db` or `postgresql://user@host/database`. Raises `StoreError`
    for what cannot be opened, and then has written nothing. Usable from several threads and after a fork.
    """

    def __init__(self, location: Location | None = None, scheme: str | None = None) -> None:
        self.url = None if location is None else url_of(location)
        self._engine: Engine | None = None
        self._process = os.getpid()
        self._memory_lock = threading.RLock()  # a database in memory is one connection
        self._file: tuple[int, int] | None = None  # which file it is, should another take its place
        try:
            with self._errors():
                self.scheme = self._open(scheme)
        except BaseException:
            self.close()
            raise
        self._file = self._file_identity()

    @property
    def in_memory(self) -> bool:
        return self.url is None

    @property
    def path(self) -> Path | None:
        """The file, where it is one."""
        return Path(self.url.database or "") if self.url is not None and self.dialect == "sqlite" else None

    @property
    def dialect(self) -> str:
        return "sqlite" if self.url is None else self.url.get_backend_name()

    # -------------------------------------------------------------- transactions

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection that sees the store as it was when it began."""
        self._check_file()
        with self._errors(), self._memory_locked(), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Opens the one writing connection; all is committed at the end of the block, nothing if it raises."""
        self._check_file()
        with self._errors(), self._memory_locked(), self._write_transaction() as connection:
            self._check_version(connection)
            yield connection
            write_meta(connection, "revision", str(self.revision_in(connection) + 1))

    def _check_file(self) -> None:
        """Raises `StoreError` if the file was moved or replaced since it was opened."""
        if self._file_identity() != self._file:
            raise StoreError(f"{self} was moved, removed or replaced: open it where it is now")

    def _check_version(self, connection: Connection) -> None:
        """Raises `StoreError` if another process has changed the schema version."""
        if (version := read_meta(connection, "schema_version")) != str(SCHEMA_VERSION):
            raise StoreError(
                f"{self} was changed to schema version {printable(str(version))}: upgrade modulekg-widgets"
            )

    def _file_identity(self) -> tuple[int, int] | None:
        if self.path is None:
            return None
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    @staticmethod
    def revision_in(connection: Connection) -> int:
        """Returns the revision that a transaction sees."""
        text = read_meta(connection, "revision") or ""
        if not (text.isascii() and text.isdecimal() and len(text) < 19):
            raise StoreError(f"the store's revision is {printable(text)!r}, no number: it is damaged")
        return int(text)

    def close(self) -> None:
        """Give the connections back; the next call opens new ones. A store in memory stays as long as it is in use."""
        if self._engine is not None and not self.in_memory:
            _dispose(self._engine, self._process)
            self._engine = None

    # -------------------------------------------------------------- opening

    @property
    def engine(self) -> Engine:
        """The engine of this process: connections do not survive a fork."""
        if self._process != os.getpid():
            self._after_fork()
        if self._engine is None:
            self._engine = self._new_engine()
            weakref.finalize(self, _dispose, self._engine, self._process)
        return self._engine

    def _after_fork(self) -> None:
        """Renews lock and connections, which do not survive a fork."""
        self._memory_lock = threading.RLock()
        self.close()
        self._process = os.getpid()
        if self._engine is not None:
            connection = self._engine.raw_connection()
            connection.rollback()
            connection.close()

    def _new_engine(self) -> Engine:
        if self.url is None:
            return memory_engine()
        if self.path is not None:
            return file_engine(self.path, may_create=self._file is None)
        return _server_engine(self.url)

    def _open(self, scheme: str | None) -> str:
        """Check or make the tables; returns the scheme of the store."""
        with self.engine.connect() as connection, connection.begin():
            self._check(connection)
            names = inspect(connection).get_table_names()
        if meta.name not in names:
            self._create(scheme or "structure")
        return self._checked_scheme(scheme)

    def _check(self, connection: Connection) -> None:
        driver = connection.connection.driver_connection
        if self.path is None or not isinstance(driver, sqlite3.Connection):
            return
        names = inspect(connection).get_table_names()
        if names and meta.name not in names:
            raise StoreError(f"{printable(str(self.path))!r} is the database of another program: name another file")
        if names:
            check_file(driver, self.path)

    def _create(self, scheme: str) -> None:
        with self._write_transaction() as connection:
            if meta.name not in inspect(connection).get_table_names():  # nobody else was faster
                create_tables(connection, scheme)
                if self.path is not None:
                    connection.exec_driver_sql(f"PRAGMA application_id={APPLICATION_ID}")
        self.close()  # new connections know the file as ours and set its journal
        self._file = self._file_identity()

    def _checked_scheme(self, scheme: str | None) -> str:
        with self.engine.connect() as connection, connection.begin():
            version, found = read_meta(connection, "schema_version") or "", read_meta(connection, "scheme")
        if not (version.isascii() and version.isdecimal() and int(version[:10]) > 0):
            raise StoreError(f"{self} has the schema version {printable(version)!r}, no number: it is damaged")
        if int(version) > SCHEMA_VERSION:
            raise StoreError(
                f"{self} has schema version {version}, this package knows {SCHEMA_VERSION}: upgrade modulekg-widgets"
            )
        if found not in ("structure", "seed"):
            raise StoreError(f"{self} merges by {printable(str(found))!r}, which is not a scheme: it is damaged")
        if scheme is not None and scheme != found:
            raise StoreError(f"{self} merges by scheme={found!r}, asked for {scheme!r}: open it without a scheme")
        if int(version) < SCHEMA_VERSION:
            self._migrate()
        return found

    def _migrate(self) -> None:
        with self._write_transaction() as connection:
            version = int(read_meta(connection, "schema_version") or SCHEMA_VERSION)
            if version < SCHEMA_VERSION:  # nobody else was faster
                migrate(connection, version)

    # -------------------------------------------------------------- locks and errors

    @contextmanager
    def _write_transaction(self) -> Iterator[Connection]:
        """Opens a transaction that excludes other writers."""
        with self.engine.connect() as connection:
            connection = connection.execution_options(writes=True)
            if self.dialect == "postgresql":  # what the writer before did is seen once the lock is there
                connection = connection.execution_options(isolation_level="READ COMMITTED")
            with connection.begin():
                if self.dialect == "postgresql":
                    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_POSTGRES_LOCK})")
                yield connection

    @contextmanager
    def _memory_locked(self) -> Iterator[None]:
        if self.in_memory:
            _ = self.engine  # after a fork with a lock of its own
            with self._memory_lock:
                yield
        else:
            yield

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Converts errors of the database to `StoreError`."""
        try:
            yield
        except SQLAlchemyError as error:
            raise self._store_error(getattr(error, "orig", None) or error) from error
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._store_error(error) from error

    def _store_error(self, cause: object) -> StoreError:
        reason = str(cause).strip() or type(cause).__name__
        remedy = next((remedy for sign, remedy in _REMEDIES.items() if sign in reason), "")
        return StoreError(f"{self}: {printable(reason, 300)}{remedy}")

    def __str__(self) -> str:
        if self.url is None:
            return "the store in memory"
        if self.path is not None:
            return f"the store {printable(str(self.path), 200)!r}"
        return f"the store {printable(self.url.render_as_string(hide_password=True), 200)!r}"


def url_of(location: Location) -> URL:
    """The database's URL for a path or URL; raises `StoreError` for kinds of databases that are not served."""
    text = os.fspath(location) if isinstance(location, (str, os.PathLike)) else location
    if not isinstance(text, str) or not text:
        raise StoreError(f"a store is a path or a URL, got {printable(repr(location))}")
    if "\0" in text:
        raise StoreError(f"a path holds no NUL: {printable(text)!r}")
    scheme, separator, _ = text.partition("://")
    if not separator:
        return _file_url(text)
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        raise StoreError(f"{printable(scheme)!r}://… is not a URL of a database: {printable(str(error))}") from None
    if url.get_backend_name() == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    if url.drivername != "sqlite":
        raise StoreError(
            f"{printable(url.drivername)!r} is not a kind of store: use sqlite:///file.db or postgresql://…"
        )
    if url.query:
        raise StoreError(f"a file takes no {printable(next(iter(url.query)))!r}: write sqlite:///file.db alone")
    return _file_url(url.database or "")


def checked_existing(location: Location) -> Location:
    """Returns `location` if there is a store; raises `StoreError`, so that reading creates no file."""
    url = url_of(location)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        raise StoreError(
            f"there is no store {printable(str(location))!r}: a graph in a file, zoo.db, is made by opening it"
        )
    return location


def _file_url(path: str) -> URL:
    """Returns the URL of a file, independent of the working directory."""
    if path in ("", ":memory:"):
        raise StoreError("a store in memory has no name: leave `store` out")
    return URL.create("sqlite", database=os.path.abspath(path))


def _dispose(engine: Engine, process: int) -> None:
    """Close the connections, unless they are those of the process that this one was forked from."""
    engine.dispose(close=process == os.getpid())


def _server_engine(url: URL) -> Engine:
    """An engine whose reads see one moment of the database; raises `MissingPackageError` without the driver."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise MissingPackageError("PostgreSQL needs psycopg: pip install 'modulekg-widgets[postgres]'") from error
    options = {"connect_timeout": _SECONDS_TO_CONNECT}
    return create_engine(url, pool_pre_ping=True, isolation_level="REPEATABLE READ", connect_args=options)
