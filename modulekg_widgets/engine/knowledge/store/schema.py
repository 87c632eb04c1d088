"""Tables of a store, their version, and migrations of older stores."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import BigInteger, Column, Connection, Index, MetaData, Table, Text, UniqueConstraint, insert, select
from sqlalchemy import update as sql_update

SCHEMA_VERSION = 1
APPLICATION_ID = 0x4D4B4731  # "MKG1", in the header of an SQLite file

metadata = MetaData()
meta = Table("modulekg_meta", metadata, Column("key", Text, primary_key=True), Column("value", Text, nullable=False))
nodes = Table(
    "modulekg_nodes",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("type", Text, nullable=False),
    Column("key", Text, nullable=False),  # 32 hex digits: a module's fingerprint, or the digest of a name
    Column("name", Text, nullable=False),
    Column("properties", Text, nullable=False),
    UniqueConstraint("type", "key"),
)
edges = Table(
    "modulekg_edges",
    metadata,
    Column("source", BigInteger, primary_key=True, autoincrement=False),
    Column("type", Text, primary_key=True),
    Column("target", BigInteger, primary_key=True, autoincrement=False),
    Column("owner", BigInteger, primary_key=True, autoincrement=False),  # the model that the edge is of, else 0
    Column("properties", Text, nullable=False),
    Index("modulekg_edges_target", "target"),
    Index("modulekg_edges_owner", "owner"),
    sqlite_with_rowid=False,
)
occurrences = Table(
    "modulekg_occurrences",
    metadata,
    Column("model", BigInteger, primary_key=True, autoincrement=False),
    Column("module", BigInteger, primary_key=True, autoincrement=False),
    Column("level", Text, primary_key=True),
    Column("count", BigInteger, nullable=False),
    Index("modulekg_occurrences_module", "module"),
    sqlite_with_rowid=False,
)

# version -> what makes a store of that version one of the next; each runs inside the transaction that opens the store
MIGRATIONS: dict[int, Callable[[Connection], None]] = {}


def create_tables(connection: Connection, scheme: str) -> None:
    """Make all tables; raises the database's error where another program has tables of these names."""
    metadata.create_all(connection, checkfirst=False)
    first = {"schema_version": str(SCHEMA_VERSION), "scheme": scheme, "revision": "0"}
    connection.execute(insert(meta), [{"key": key, "value": value} for key, value in first.items()])


def migrate(connection: Connection, version: int) -> None:
    """Bring the tables from `version` to `SCHEMA_VERSION`, step by step."""
    for step in range(version, SCHEMA_VERSION):
        MIGRATIONS[step](connection)
    write_meta(connection, "schema_version", str(SCHEMA_VERSION))


def read_meta(connection: Connection, key: str) -> str | None:
    return connection.execute(select(meta.c.value).where(meta.c.key == key)).scalar_one_or_none()


def write_meta(connection: Connection, key: str, value: str) -> None:
    connection.execute(sql_update(meta).where(meta.c.key == key).values(value=value))
