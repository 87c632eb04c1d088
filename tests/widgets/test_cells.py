"""A cell that runs again replaces its widgets; without a notebook nothing is closed."""

from typing import Any

import pytest
from ipywidgets.widgets.widget import _instances
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.widgets.shared import base as _base


@pytest.fixture
def run_cell(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Show a widget as a run of a cell would."""

    def show(widget: Any, cell: str | None, run: str) -> Any:
        monkeypatch.setattr(_base, "_current_run", lambda: (cell, run))
        widget._repr_mimebundle_()
        return widget

    return show


def is_open(widget: Any) -> bool:
    return widget in _instances.values()


def new() -> Any:
    return mk.ModelGraph(nn.Linear(2, 2))


def test_a_second_run_closes_what_the_first_has_shown(run_cell: Any) -> None:
    first, second = run_cell(new(), "a", "1"), run_cell(new(), "a", "2")
    assert not is_open(first)
    assert is_open(second)


def test_one_run_may_show_several(run_cell: Any) -> None:
    both = [run_cell(new(), "a", "1") for _ in range(2)]
    assert all(map(is_open, both))


def test_what_another_cell_shows_too_stays(run_cell: Any) -> None:
    first = run_cell(new(), "a", "1")
    run_cell(first, "b", "2")
    run_cell(new(), "a", "3")
    assert is_open(first)
    run_cell(new(), "b", "4")
    assert not is_open(first)


def test_showing_the_same_widget_again_keeps_it(run_cell: Any) -> None:
    graph = run_cell(new(), "a", "1")
    run_cell(graph, "a", "2")
    assert is_open(graph)


def test_without_cells_nothing_is_closed(run_cell: Any) -> None:
    first = run_cell(new(), None, "1")
    run_cell(new(), None, "2")
    assert is_open(first)
