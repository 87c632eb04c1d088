"""The store: a database that is opened with care, read in snapshots and written one transaction after the other."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, inspect
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from modulekg_widgets.engine.errors import StoreError, shown
from modulekg_widgets.engine.knowledge.store.schema import (
    APPLICATION_ID,
    SCHEMA_VERSION,
    create,
    meta,
    migrate,
    read_meta,
    write_meta,
)
from modulekg_widgets.engine.knowledge.store.sqlite_file import check_file, file_engine, memory_engine

Location = str | os.PathLike[str]
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
        with self._errors():
            self.scheme = self._opened(scheme)

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
        with self._errors(), self._held(), self.engine.connect() as connection:
            if self.dialect == "postgresql":  # one moment for all statements, as SQLite has it
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """The one connection that writes; all of it is kept when the block ends, nothing when it raises."""
        with self._errors(), self._held(), self.engine.connect() as connection:
            connection = connection.execution_options(writes=True)
            with connection.begin():
                self._lock(connection)
                yield connection
                write_meta(connection, "revision", str(self.revision_in(connection) + 1))

    @property
    def revision(self) -> int:
        """A number that grows with every transaction that writes, whoever wrote."""
        with self.read() as connection:
            return self.revision_in(connection)

    @staticmethod
    def revision_in(connection: Connection) -> int:
        """The revision that a transaction sees."""
        text = read_meta(connection, "revision") or ""
        if not (text.isascii() and text.isdecimal() and len(text) < 19):
            raise StoreError(f"the store's revision is {shown(text)!r}, no number: it is damaged")
        return int(text)

    def close(self) -> None:
        """Give the connections back; the next call opens new ones. A store in memory stays as long as it is in use."""
        if self._engine is not None and not self.in_memory:
            self._engine.dispose()
            self._engine = None

    # -------------------------------------------------------------- opening

    @property
    def engine(self) -> Engine:
        """The engine of this process: connections do not survive a fork."""
        if self._engine is not None and self._process != os.getpid() and not self.in_memory:
            self._engine.dispose(close=False)
            self._engine = None
        if self._engine is None:
            self._engine, self._process = self._new_engine(), os.getpid()
        return self._engine

    def _new_engine(self) -> Engine:
        if self.url is None:
            return memory_engine()
        if self.path is not None:
            return file_engine(self.path)
        from modulekg_widgets.engine.knowledge.store.postgres import server_engine

        return server_engine(self.url)

    def _opened(self, scheme: str | None) -> str:
        """Check or make the tables; returns the scheme of the store."""
        with self.engine.connect() as connection, connection.begin():
            self._check(connection)
            names = inspect(connection).get_table_names()
        if meta.name not in names:
            self._create(scheme or "structure")
        return self._settled(scheme)

    def _check(self, connection: Connection) -> None:
        driver = connection.connection.driver_connection
        if self.path is None or not isinstance(driver, sqlite3.Connection):
            return
        names = inspect(connection).get_table_names()
        if names and meta.name not in names:
            raise StoreError(f"{shown(str(self.path))!r} is the database of another program: name another file")
        if names:
            check_file(driver, self.path)

    def _create(self, scheme: str) -> None:
        with self.engine.connect() as connection:
            connection = connection.execution_options(writes=True)
            with connection.begin():
                self._lock(connection)
                if meta.name not in inspect(connection).get_table_names():  # nobody else was faster
                    create(connection, scheme)
                    if self.path is not None:
                        connection.exec_driver_sql(f"PRAGMA application_id={APPLICATION_ID}")
        self.close()  # new connections know the file as ours and set its journal

    def _settled(self, scheme: str | None) -> str:
        with self.engine.connect() as connection, connection.begin():
            version, found = read_meta(connection, "schema_version") or "", read_meta(connection, "scheme")
        if not (version.isascii() and version.isdecimal() and len(version) < 10):
            raise StoreError(f"{self} has the schema version {shown(version)!r}, no number: it is damaged")
        if int(version) > SCHEMA_VERSION:
            raise StoreError(
                f"{self} has schema version {version}, this package knows {SCHEMA_VERSION}: upgrade modulekg-widgets"
            )
        if found not in ("structure", "seed"):
            raise StoreError(f"{self} merges by {shown(str(found))!r}, which is no scheme: it is damaged")
        if scheme is not None and scheme != found:
            raise StoreError(f"{self} merges by scheme={found!r}, asked for {scheme!r}: open it without a scheme")
        if int(version) < SCHEMA_VERSION:
            self._migrate()
        return found

    def _migrate(self) -> None:
        with self.engine.connect() as connection:
            connection = connection.execution_options(writes=True)
            with connection.begin():
                self._lock(connection)
                version = int(read_meta(connection, "schema_version") or SCHEMA_VERSION)
                if version < SCHEMA_VERSION:  # nobody else was faster
                    migrate(connection, version)

    # -------------------------------------------------------------- locks and errors

    def _lock(self, connection: Connection) -> None:
        if self.dialect == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_POSTGRES_LOCK})")

    @contextmanager
    def _held(self) -> Iterator[None]:
        if self.in_memory:
            with self._memory_lock:
                yield
        else:
            yield

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """What the database reports, as our own error."""
        try:
            yield
        except SQLAlchemyError as error:
            cause = getattr(error, "orig", None) or error
            raise StoreError(f"{self}: {shown(str(cause).strip() or type(cause).__name__, 300)}") from error
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise StoreError(f"{self} cannot be read: {shown(str(error), 300)}") from error

    def __str__(self) -> str:
        if self.url is None:
            return "the store in memory"
        if self.path is not None:
            return f"the store {shown(str(self.path), 200)!r}"
        return f"the store {shown(self.url.render_as_string(hide_password=True), 200)!r}"


def url_of(location: Location) -> URL:
    """The database's URL for a path or URL; raises `StoreError` for kinds of databases that are not served."""
    text = os.fspath(location)
    if not isinstance(text, str) or not text:
        raise StoreError(f"a store is a path or a URL, got {shown(repr(location))}")
    if "\0" in text:
        raise StoreError(f"a path holds no NUL: {shown(text)!r}")
    scheme, separator, _ = text.partition("://")
    if not separator:
        return URL.create("sqlite", database=text)
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        raise StoreError(f"{shown(scheme)!r}://… is no URL of a database: {shown(str(error))}") from None
    if url.get_backend_name() == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    if url.drivername != "sqlite":
        raise StoreError(f"{shown(url.drivername)!r} is no kind of store: use sqlite:///file.db or postgresql://…")
    if not url.database or url.database == ":memory:":
        raise StoreError("a store in memory has no URL: leave `store` out")
    return URL.create("sqlite", database=url.database)
