"""Profiles of few passes: what they tell of time is not looked at here."""

import pytest

from modulekg_widgets.engine.profiling import timing


@pytest.fixture(autouse=True)
def few_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "MAX_ROUNDS", 3)
