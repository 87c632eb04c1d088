"""Registries that a test may add to."""

from __future__ import annotations

import pytest

from modulekg_widgets.engine.adapters import adapters
from modulekg_widgets.engine.axes.terms.call import rules
from modulekg_widgets.engine.knowledge.exchange import exporters
from modulekg_widgets.engine.monitoring.metrics import METRICS
from modulekg_widgets.engine.operators.user_operators import user_operators
from modulekg_widgets.engine.pruning.importance.importance import criteria


@pytest.fixture
def open_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone behind it."""
    for registry in (adapters, rules, criteria, METRICS, exporters, user_operators):
        monkeypatch.setattr(registry, "entries", registry.entries)
