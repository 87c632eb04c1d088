"""The choice of tests for a run: the gate of CI takes a part of the large batteries, the nightly run takes all.

`pytest` alone runs all that is not nightly. With `MODULEKG_GATE=<commit>`, as `.ci/run` sets it, a run leaves out
- of each battery, which is a parametrised test of many cases, two thirds of the cases: which third runs is drawn by the
  commit's hash, and each case belongs to one third by its own name, so that all of them run over some landings;
- of the other tests marked `slow`, five sixths in the same manner;
- of the tests that drive a browser or need the built documentation, all but those marked `gate`: one for each widget
  and each host.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parent
PARTS = 3  # of batteries
SLOW_PARTS = 6
BATTERY = 12  # cases of one test
WHOLE = [TESTS / "architecture"]  # folders whose tests all run, as each holds for one file
EXPENSIVE = {"browser", "site"}  # fixtures that drive Chromium or build the documentation


def sampled(cases: Iterable[Any], in_ci: Collection[Any]) -> list[Any]:
    """All cases for `pytest.mark.parametrize`, of which those that are not in `in_ci` are nightly."""
    cases = list(cases)
    unknown = [case for case in in_ci if case not in cases]
    assert not unknown, f"no such cases: {unknown}"
    return [case if case in in_ci else pytest.param(case, marks=pytest.mark.nightly) for case in cases]


def gate_commit() -> str | None:
    """The commit whose gate this run is; None where a run is no gate and takes everything."""
    return os.environ.get("MODULEKG_GATE") or None


def part_of(text: str, parts: int) -> int:
    """The part, of so many, that a case belongs to by its name."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % parts


def drawn_part(commit: str, parts: int) -> int:
    """The part that the gate of a commit runs."""
    return int(commit[:12], 16) % parts


def outside_the_gate(items: Sequence[pytest.Item], commit: str) -> list[pytest.Item]:
    """The tests that the gate of a commit leaves to the nightly run."""
    cases = Counter(map(_test_of, items))
    return [item for item in items if not _is_in_gate(item, cases[_test_of(item)], commit)]


def _test_of(item: pytest.Item) -> tuple[Path, str]:
    """A test without its parameters."""
    return item.path, item.nodeid.partition("[")[0]


def _is_in_gate(item: pytest.Item, cases: int, commit: str) -> bool:
    if item.get_closest_marker("gate"):
        return True
    if EXPENSIVE.intersection(getattr(item, "fixturenames", ())):
        return False
    if any(folder in item.path.parents for folder in WHOLE):
        return True
    parts = PARTS if cases >= BATTERY else SLOW_PARTS if item.get_closest_marker("slow") is not None else 1
    return part_of(item.nodeid.rpartition("tests/")[2], parts) == drawn_part(commit, parts)
