"""Names on their way out warn, are documented, and are gone when they were to go."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from packaging.version import Version

import modulekg_widgets as mk
from modulekg_widgets.engine.deprecation import DEPRECATED, ModuleKGDeprecationWarning, deprecated


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    before = list(DEPRECATED)
    yield
    DEPRECATED[:] = before


def old(value: int, *, twice: bool = False) -> int:
    """Gives a number back.

    Or twice of it.
    """
    return value * (1 + twice)


def test_a_call_warns_where_it_is_written_and_works() -> None:
    marked = deprecated("mk.old", since="0.2.0", removed_in="0.4.0", instead="mk.new(value)")(old)
    with pytest.warns(
        ModuleKGDeprecationWarning, match=r"mk\.old .* 0\.2\.0 .* will be removed in version 0\.4\.0: write mk\.new"
    ) as seen:
        assert marked(2, twice=True) == 4
    assert seen[0].filename == __file__
    assert issubclass(ModuleKGDeprecationWarning, FutureWarning)  # that users see, unlike a DeprecationWarning


def test_the_docstring_says_so() -> None:
    marked = deprecated("mk.old", since="0.2.0", removed_in="0.4.0", instead="mk.new")(old)
    lines = (marked.__doc__ or "").splitlines()
    assert lines[0] == "Gives a number back."
    assert lines[2] == ".. deprecated:: 0.2.0"
    assert "Or twice of it." in lines
    assert marked.__name__ == "old"


def overdue(version: str) -> list[str]:
    return [each.name for each in DEPRECATED if Version(each.removed_in) <= Version(version)]


def test_nothing_stays_beyond_the_version_that_it_names() -> None:
    assert overdue(mk.__version__) == []


def test_what_stays_too_long_is_found() -> None:
    with warnings.catch_warnings():
        deprecated("mk.old", since="0.0.1", removed_in=mk.__version__, instead="mk.new")(old)
    assert overdue(mk.__version__) == ["mk.old"]
