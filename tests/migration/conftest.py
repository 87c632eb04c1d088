"""What a row registers is gone behind it, as is what it draws of the random numbers."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from modulekg_widgets.engine.adapters import adapters
from modulekg_widgets.engine.axes.call import rules
from modulekg_widgets.engine.knowledge.exchange import exporters
from modulekg_widgets.engine.monitoring.metrics import METRICS
from modulekg_widgets.engine.operators.user_operators import user_operators
from modulekg_widgets.engine.pruning.importance.importance import criteria

OPEN: list[dict[Any, Any]] = [
    adapters._entries, user_operators._entries, rules._entries, METRICS._entries, criteria._entries, exporters._entries,
]  # fmt: skip


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = [dict(table) for table in OPEN]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield
    for table, entries in zip(OPEN, before, strict=True):
        table.clear()
        table.update(entries)
