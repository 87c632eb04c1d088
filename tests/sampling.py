"""Which cases of a test run in CI; the others wait for the night."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], in_ci: Collection[Any]) -> list[Any]:
    """All cases for `pytest.mark.parametrize`, of which those that are not in `in_ci` are nightly."""
    cases = list(cases)
    unknown = [case for case in in_ci if case not in cases]
    assert not unknown, f"no such cases: {unknown}"
    return [case if case in in_ci else pytest.param(case, marks=pytest.mark.nightly) for case in cases]
