"""Registries that a test may add to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from modulekg_widgets.engine.axes import attributes
from modulekg_widgets.engine.axes.call import rules
from modulekg_widgets.engine.knowledge.exchange import exporters
from modulekg_widgets.engine.monitoring.metrics import METRICS
from modulekg_widgets.engine.operators import user_operators as operators
from modulekg_widgets.engine.pruning.importance.importance import criteria


@pytest.fixture
def open_registries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is gone behind it."""
    for registry in (rules, criteria, METRICS, exporters):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    for table in (attributes._adapters, attributes._homes, operators.user_operators):
        for key in table:
            monkeypatch.setitem(table, key, table[key])
    before = [(table, set(table)) for table in (attributes._adapters, attributes._homes, operators.user_operators)]
    yield
    for table, keys in before:
        for key in set(table) - keys:
            del table[key]
