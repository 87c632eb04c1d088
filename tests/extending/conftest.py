"""Registries that a test may add to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from modulekg_widgets.engine.adapters import adapters
from modulekg_widgets.engine.axes.call import rules
from modulekg_widgets.engine.knowledge.exchange import exporters
from modulekg_widgets.engine.monitoring.metrics import METRICS
from modulekg_widgets.engine.operators import user_operators as operators
from modulekg_widgets.engine.pruning.importance.importance import criteria


@pytest.fixture
def open_registries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is gone behind it."""
    for registry in (adapters, rules, criteria, METRICS, exporters):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    for key in operators.user_operators:
        monkeypatch.setitem(operators.user_operators, key, operators.user_operators[key])
    before = set(operators.user_operators)
    yield
    for key in set(operators.user_operators) - before:
        del operators.user_operators[key]
