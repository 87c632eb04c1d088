"""What a row registers is gone behind it, as is what it draws of the random numbers."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from modulekg_widgets.engine.adapters import adapters
from modulekg_widgets.engine.axes.terms.call import rules
from modulekg_widgets.engine.knowledge.exchange import exporters
from modulekg_widgets.engine.monitoring.metrics import METRICS
from modulekg_widgets.engine.operators.user_operators import user_operators
from modulekg_widgets.engine.pruning.importance.importance import criteria
from modulekg_widgets.engine.registry import Registry

OPEN: list[Registry[Any]] = [adapters, user_operators, rules, METRICS, criteria, exporters]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = [registry.entries for registry in OPEN]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield
    for registry, entries in zip(OPEN, before, strict=True):
        registry.entries = entries
