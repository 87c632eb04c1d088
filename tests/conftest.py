"""What all tests share: the nightly marker of the benchmarks, and skips that CI turns into failures."""

import importlib.util
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

# `pythonpath` in pyproject.toml makes tests/ the place to import from; the asserts there shall explain themselves, too
pytest.register_assert_rewrite("browser.page", "browser.graph", "browser.hostile")

from browser.fixtures import browser, jupyterlab, notebook, plugin, shared_page  # noqa: E402
from knowledge.fixtures import anywhere, lasting, postgres  # noqa: E402
from sampling import gate_commit, outside_the_gate  # noqa: E402

__all__ = ["anywhere", "browser", "jupyterlab", "lasting", "notebook", "plugin", "postgres", "require", "shared_page"]

BENCHMARKS = Path(__file__).resolve().parent / "benchmarks"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Everything in tests/benchmarks is nightly; the gate of CI leaves out what sampling.py says."""
    for item in items:
        if BENCHMARKS in item.path.parents:
            item.add_marker("nightly")
    commit = gate_commit()
    if commit is not None:
        left_out = set(outside_the_gate(items, commit))
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def require() -> Callable[..., None]:
    """Skip the test unless each name is an importable module or, written as "$dot", a program.

    With MODULEKG_REQUIRE_ALL=1, as in CI, what is missing is a failure.
    """
    return require_all if os.environ.get("MODULEKG_REQUIRE_ALL") == "1" else skip_unless_there


def require_all(*names: str) -> None:
    if absent := missing(names):
        pytest.fail(absent)


def skip_unless_there(*names: str) -> None:
    if absent := missing(names):
        pytest.skip(absent)


def missing(names: tuple[str, ...]) -> str:
    """What is not there, as a text; empty when everything is."""
    absent = [name for name in names if not is_there(name)]
    return f"not installed: {', '.join(absent)}" if absent else ""


def is_there(name: str) -> bool:
    if name.startswith("$"):
        return shutil.which(name[1:]) is not None
    return importlib.util.find_spec(name) is not None
