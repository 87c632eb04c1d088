"""Progress of long work: a line below the cell from one second on, and a way to cancel it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import CancelledError
from modulekg_widgets.engine.torch_runtime.isolation.progress import has_listener, observe_progress, report_progress
from modulekg_widgets.widgets.shared import progress as shown
from modulekg_widgets.widgets.shared.progress import Progress, display_progress


class Line:
    """A line that is not displayed; `press` is the click on its button."""

    made: list[Line]

    def __init__(self) -> None:
        self.cancel: Callable[[], None] = lambda: None
        self.texts: list[str] = []
        self.closed = False
        self.press_at = -1
        self.made.append(self)

    def show(self, text: str) -> None:
        self.texts.append(text)
        if len(self.texts) == self.press_at:
            self.cancel()

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[Line]:
    """The lines that are shown, without waiting, by a kernel that there is not."""
    Line.made = []
    monkeypatch.setattr(shown, "_ProgressLine", Line)
    monkeypatch.setattr(shown, "main_loop", object)
    monkeypatch.setattr(shown, "SHOWN_AFTER", 0.0)
    monkeypatch.setattr(shown, "EVERY", 0.0)
    return Line.made


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def cancel_at(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    before = Line.__init__

    def made(self: Line) -> None:
        before(self)
        self.press_at = count

    monkeypatch.setattr(Line, "__init__", made)


def test_a_trace_tells_its_operators(lines: list[Line]) -> None:
    mk.ModelGraph(net(), torch.zeros(1, 4)).close()
    assert [line.closed for line in lines] == [True]
    assert lines[0].texts[0].startswith("Trace of Sequential: 1 operators traced")
    assert len(lines[0].texts) >= 3
    assert not has_listener()


def test_short_work_shows_nothing(lines: list[Line], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "SHOWN_AFTER", 60.0)
    mk.ModelGraph(net(), torch.zeros(1, 4)).close()
    assert lines[0].texts == []


def test_a_cancelled_graph_shows_the_hierarchy(lines: list[Line], monkeypatch: pytest.MonkeyPatch) -> None:
    cancel_at(monkeypatch, 2)
    model, x = net(), torch.zeros(1, 4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    graph = mk.ModelGraph(model, x)
    assert graph.error == "Trace of Sequential was cancelled. Run it again to start over"
    assert not graph.payload["flow"]
    assert len(graph.payload["nodes"]["name"]) == 4
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    monkeypatch.undo()
    graph.refresh(model, x)
    assert graph.error is None
    assert graph.payload["flow"]
    graph.close()


@pytest.mark.parametrize("make", [mk.MaskEditor, mk.ForwardPlayer, mk.Workbench])
def test_what_cannot_be_without_a_pass_is_an_error(
    make: type, lines: list[Line], monkeypatch: pytest.MonkeyPatch
) -> None:
    cancel_at(monkeypatch, 1)
    with pytest.raises(CancelledError, match=r"was cancelled\. Run it again to start over"):
        make(net(), torch.zeros(1, 4))
    assert all(line.closed for line in lines)


def test_a_cancelled_refresh_keeps_what_is_shown(lines: list[Line], monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = net(), torch.zeros(1, 4)
    graph = mk.ModelGraph(model, x, view="dataflow")
    payload = graph.payload
    cancel_at(monkeypatch, 1)
    with pytest.raises(CancelledError, match="was cancelled"):
        graph.refresh(model, x)
    assert graph.payload is payload
    assert (graph.view, graph.error) == ("dataflow", None)
    graph.close()


def test_code_of_the_model_does_not_catch_it(lines: list[Line], monkeypatch: pytest.MonkeyPatch) -> None:
    class Careful(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            try:
                return x.relu() + 1
            except Exception:  # noqa: BLE001
                return x

    cancel_at(monkeypatch, 1)
    assert "cancelled" in (mk.ModelGraph(Careful(), torch.zeros(1, 4)).error or "")


def test_a_refresh_tells_the_page_and_hears_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "SHOWN_AFTER", 0.0)
    monkeypatch.setattr(shown, "EVERY", 0.0)
    model = net()
    graph = mk.ModelGraph(model, torch.zeros(1, 4))
    told: list[str] = []
    graph.observe(lambda change: told.append(change["new"]), "progress")
    graph._handle_custom_msg({"kind": "refresh"}, [])
    assert told[0].startswith("Refresh: 1 operators traced")
    assert told[-1] == graph.progress == ""

    graph.observe(lambda _: graph._handle_custom_msg({"kind": "cancel_refresh"}, []), "progress")
    payload = graph.payload
    graph._handle_custom_msg({"kind": "refresh"}, [])
    assert graph.payload is payload
    assert graph.outdated.endswith("Refresh was cancelled. Run it again to start over")
    graph._handle_custom_msg({"kind": "cancel_refresh"}, [])  # nothing runs any more
    graph.set_state({"progress": "from a page"})
    assert graph.progress == ""
    graph.close()


def test_other_threads_are_not_heard() -> None:
    heard: list[str] = []
    with observe_progress(lambda stage, done: heard.append(f"{stage} {done}")):
        thread = threading.Thread(target=report_progress, args=("of another", 1))
        thread.start()
        thread.join()
        report_progress("steps", 2)
        with observe_progress(lambda stage, done: None):
            report_progress("inner", 3)
    report_progress("afterwards", 4)
    assert heard == ["steps 2"]


def test_updates_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    monkeypatch.setattr(shown, "SHOWN_AFTER", 0.0)
    progress = Progress("Work", texts.append)
    with progress.observing():
        for done in range(10_000):
            report_progress("steps", done)
    assert 1 <= len(texts) <= 3


def test_without_a_kernel_nothing_has_listener() -> None:
    with display_progress("Work"):
        assert not has_listener()


class Display:
    """What was displayed, with the updates."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shown: list[Any] = []
        monkeypatch.setattr("IPython.display.display", self)

    def __call__(self, data: object, **options: object) -> Display:
        self.shown.append(data)
        return self

    def update(self, data: object, **options: object) -> None:
        self.shown.append(data)


def test_the_line_is_made_once_and_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown._ProgressLine, "_made", [])
    display = Display(monkeypatch)
    pressed: list[int] = []
    box: Any = None
    for number in range(2):
        line = shown._ProgressLine()
        line.cancel = lambda number=number: pressed.append(number)
        line.show("one")
        line.show("two")
        box, label, button = line._widgets()
        assert (label.value, button.disabled) == ("two", False)
        button.click()
        assert button.disabled
        line.close()
        button.click()  # of a run that has ended: nobody hears it
    assert pressed == [0, 1]
    assert display.shown == [box, shown.BLANK] * 2


def test_in_colab_the_line_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.colab", sys)
    display = Display(monkeypatch)
    line = shown._ProgressLine()
    line.show("one")
    line.show("two")
    line.close()
    assert [data["text/plain"] for data in display.shown] == ["one", "two", ""]
