"""Stores to test with: in memory, an SQLite file, and a real PostgreSQL server."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from knowledge.postgres_server import PostgresServer, programs

STORES = ("memory", "sqlite", "postgres")


@pytest.fixture(scope="session")
def postgres(require: Callable[..., None]) -> Iterator[PostgresServer]:
    require("psycopg", *([] if programs() else ["$initdb"]))  # Debian's server is not on the path
    server = PostgresServer()
    yield server
    server.stop()


def location_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> str | None:
    if kind == "memory":
        return None
    return str(folder / "graph.db") if kind == "sqlite" else request.getfixturevalue("postgres").new_database()


@pytest.fixture(params=STORES)
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    """Where a graph may be kept."""
    return location_of(request.param, request, tmp_path)


@pytest.fixture(params=STORES[1:])
def lasting(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a graph outlives its process."""
    location = location_of(request.param, request, tmp_path)
    assert location is not None
    return location
