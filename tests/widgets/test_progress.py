"""Progress of long work: a line below the cell from one second on, and a way to cancel it."""

from __future__ import annotations

import pickle
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import CancelledError
from modulekg_widgets.engine.torch_runtime.isolation import progress as engine_progress
from modulekg_widgets.engine.torch_runtime.isolation.progress import (
    Cancellation,
    display_with,
    has_listener,
    observe_progress,
    report_progress,
    without_cancellation,
)
from modulekg_widgets.engine.torch_runtime.threads import PROGRESS_THREAD
from modulekg_widgets.widgets.shared import base
from modulekg_widgets.widgets.shared import progress as shown
from modulekg_widgets.widgets.shared.model_widget import SIZES_CHANGED
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


def cancel_at(monkeypatch: pytest.MonkeyPatch, count: int, title: str = "") -> None:
    """Cancel at a text of a line, or of those with this title."""
    before = Line.show

    def show(self: Line, text: str) -> None:
        if text.startswith(title):
            self.press_at = count
        before(self, text)

    monkeypatch.setattr(Line, "show", show)


def test_a_trace_tells_its_operators(lines: list[Line]) -> None:
    mk.ModelGraph(net(), torch.zeros(1, 4)).close()
    assert [line.closed for line in lines] == [True]
    assert lines[0].texts[0].startswith("Trace of Sequential: 1 operators traced")
    assert len(lines[0].texts) >= 3
    assert not has_listener()


class Careless(nn.Module):
    """Its first attempt, on tensors without values, ends after some operators; it takes long to begin."""

    seconds = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        for _ in range(20):
            x = x + 1
        return x[: int(x.sum())] * 2


def test_a_count_goes_on_where_an_attempt_begins_anew(lines: list[Line]) -> None:
    graph = mk.ModelGraph(Careless(), torch.zeros(4))
    assert graph.payload["flow"]["on"] == "real"
    counts = [int(text.split(": ")[1].split()[0]) for text in lines[0].texts if "operators traced" in text]
    assert counts == sorted(counts)
    assert counts[-1] > 60  # of three attempts


def test_the_first_line_waits_for_no_operator(lines: list[Line], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "SHOWN_AFTER", 0.2)
    monkeypatch.setattr(shown, "EVERY", 60.0)
    monkeypatch.setattr(Careless, "seconds", 0.5)
    mk.ModelGraph(Careless(), torch.zeros(4))
    assert lines[0].texts[0] == "Trace of Careless: starting, 0 s"
    assert threading.active_count() == len([t for t in threading.enumerate() if t.name != PROGRESS_THREAD])


def test_a_first_line_is_no_thread_that_computes(lines: list[Line], monkeypatch: pytest.MonkeyPatch) -> None:
    class Draws(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            time.sleep(0.1)
            torch.manual_seed(3)
            return x

    def compute(self: Line, text: str) -> None:
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass
        self.texts.append(text)

    monkeypatch.setattr(shown, "SHOWN_AFTER", 0.05)
    monkeypatch.setattr(Line, "show", compute)
    before = torch.get_rng_state()
    mk.ModelGraph(Draws(), torch.zeros(4))
    assert lines[0].texts
    assert torch.equal(torch.get_rng_state(), before)


def test_short_work_shows_nothing(lines: list[Line], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "SHOWN_AFTER", 60.0)
    mk.ModelGraph(net(), torch.zeros(1, 4)).close()
    assert lines[0].texts == []


def test_a_cancelled_graph_shows_the_hierarchy(lines: list[Line], monkeypatch: pytest.MonkeyPatch) -> None:
    cancel_at(monkeypatch, 2)
    model, x = net(), torch.zeros(1, 4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    graph = mk.ModelGraph(model, x)
    assert graph.error == "Trace of Sequential was cancelled. Run it again to start over."
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
    with pytest.raises(CancelledError, match=r"was cancelled\. Run it again to start over\."):
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
    assert graph.outdated == ""  # the model is as it is shown
    model[0] = nn.Linear(4, 8, bias=False)
    graph._handle_custom_msg({"kind": "refresh"}, [])
    assert graph.payload is payload
    assert graph.outdated == f"{SIZES_CHANGED} Refresh was cancelled. Run it again to start over."
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


def test_the_line_is_made_anew_after_all_widgets_were_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown._ProgressLine, "_made", [])
    display = Display(monkeypatch)
    closed = shown._ProgressLine()
    closed.show("one")
    closed.close()
    for widget in closed._widgets():
        widget.close()
    line = shown._ProgressLine()
    line.show("two")
    box, label, _ = line._widgets()
    assert (label.value, display.shown[-1]) == ("two", box)
    assert None not in (box.comm, label.comm)
    line.close()


# ------------------------------------------------------------- what the engine does


@pytest.fixture
def displayed(lines: list[Line], monkeypatch: pytest.MonkeyPatch) -> list[Line]:
    """The lines of long work of the engine, as in a kernel."""
    monkeypatch.setattr(engine_progress, "_displays", [])
    display_with(display_progress)
    return lines


def pruned(model: nn.Module, graph: Any) -> object:
    return mk.plan(graph, ratio=0.5).cut(model, recalibrate=[torch.randn(4, 4) for _ in range(3)])


WORK: dict[str, tuple[Callable[[nn.Module, Any], object], set[str]]] = {
    "Trace": (lambda model, graph: mk.trace(model, torch.zeros(2, 4)), {"operators traced"}),
    "Channel groups": (lambda model, graph: mk.trace(model, torch.zeros(2, 4)).axes, {"operators analyzed"}),
    "Proof of the channel groups": (lambda model, graph: graph.axes.verify(), {"passes run"}),
    "Plan": (lambda model, graph: mk.plan(graph, ratio=0.5), {"operators traced", "passes run"}),
    "Cut": (pruned, {"batches run"}),
}


def batch_norm_net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).eval()


@pytest.mark.parametrize("title", WORK)
def test_long_work_is_displayed_and_can_be_cancelled_at_any_report(
    title: str, displayed: list[Line], monkeypatch: pytest.MonkeyPatch
) -> None:
    act, stages = WORK[title]
    model = batch_norm_net()
    graph = mk.trace(model, torch.randn(2, 4))
    assert graph.axes
    displayed.clear()
    act(model, graph)
    texts = [text for line in displayed for text in line.texts if text.startswith(f"{title} of Sequential: ")]
    assert texts
    assert all(any(stage in text for text in texts) for stage in stages)
    assert all(line.closed for line in displayed)
    for count in range(1, len(texts), max(1, len(texts) // 5)):  # a click at the last one is too late
        model = batch_norm_net()
        graph = mk.trace(model, torch.randn(2, 4))
        assert graph.axes
        before = pickle.dumps(model)
        with monkeypatch.context() as patched:
            cancel_at(patched, count, title)
            with pytest.raises(CancelledError, match=rf"^{title} of Sequential was cancelled\. Run it"):
                act(model, graph)
        assert pickle.dumps(model) == before
    act(model, graph)  # nothing is left of what was cancelled


def test_what_must_come_to_its_end_is_not_cancelled() -> None:
    heard: list[int] = []

    def listen(stage: str, done: int) -> None:
        heard.append(done)
        raise Cancellation

    with observe_progress(listen):
        with without_cancellation():
            report_progress("steps", 1)
        with pytest.raises(Cancellation):
            report_progress("steps", 2)
    with without_cancellation():
        report_progress("steps", 3)
    assert heard == [1, 2]


# ------------------------------------------------------------- what a page asks for


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "SHOWN_AFTER", 0.0)
    monkeypatch.setattr(shown, "EVERY", 0.0)


def test_what_a_page_asks_for_is_shown_in_its_widget_alone(displayed: list[Line], soon: None) -> None:
    model = net()
    editor = mk.MaskEditor(model, torch.zeros(1, 4))
    graph = mk.ModelGraph(model, torch.zeros(1, 4))
    mk.link(editor, graph)
    editor.plan = mk.plan(editor.graph, per_axis={"0.out": [1, 5]})
    told: list[str] = []
    editor.observe(lambda change: told.append(change["new"]), "progress")
    displayed.clear()
    editor._messages.on_message(editor, {"type": "cut"}, [])
    assert displayed == []
    assert any(text.startswith("Cut: ") for text in told)
    assert told[-1] == editor.progress == ""
    assert (graph.outdated, model[0].out_features) == ("", 6)
    editor.close()
    graph.close()


def test_nothing_is_displayed_below_the_last_cell(displayed: list[Line], monkeypatch: pytest.MonkeyPatch) -> None:
    due: list[Callable[[], None]] = []

    class Loop:
        add_callback = staticmethod(due.append)

    monkeypatch.setattr(base, "main_loop", Loop)
    base.when_idle(lambda: mk.trace(net(), torch.zeros(1, 4)) and None)
    due.pop()()
    assert displayed == []
    mk.trace(net(), torch.zeros(1, 4))  # as a cell does
    assert len(displayed) == 1


@pytest.mark.parametrize("press_at", range(1, 30, 4))
def test_a_cut_from_the_page_is_cancelled_as_a_whole_or_not_at_all(press_at: int, soon: None) -> None:
    model = net()
    editor = mk.MaskEditor(model, torch.zeros(1, 4))
    graph = mk.ModelGraph(model, torch.zeros(1, 4))
    mk.link(editor, graph)
    editor._draft.adopt_plan(mk.plan(editor.graph, per_axis={"0.out": [1, 5]}))
    before = pickle.dumps(model)
    told: list[str] = []

    def press(change: Any) -> None:
        told.append(change["new"])
        if len(told) == press_at:
            editor._handle_custom_msg({"kind": "cancel_refresh"}, [])

    editor.observe(press, "progress")
    editor._messages.on_message(editor, {"type": "cut"}, [])
    if editor.stage == "cut":
        assert model[0].out_features == 6
        assert editor.graph.modules["0"].module.out_features == 6
        assert editor.outdated == graph.outdated == ""
        editor.undo()
    assert pickle.dumps(model) == before
    assert (editor.outdated, graph.outdated) == ("", "")
    editor.close()
    graph.close()


def test_a_cancelled_refresh_of_an_editor_leaves_no_notice_on_what_is_fresh(soon: None) -> None:
    model = net()
    editor = mk.MaskEditor(model, torch.zeros(1, 4))
    states = set()
    for press_at in range(1, 24):
        model[0] = nn.Linear(4, 8)
        told: list[str] = []

        def press(change: Any, told: list[str] = told, press_at: int = press_at) -> None:
            told.append(change["new"])
            if len(told) == press_at:
                editor._handle_custom_msg({"kind": "cancel_refresh"}, [])

        editor.observe(press, "progress")
        editor._handle_custom_msg({"kind": "refresh"}, [])
        editor.unobserve(press, "progress")
        is_fresh = editor.graph.modules["0"].module is model[0]
        assert (editor.outdated == "") is is_fresh
        states.add(is_fresh)
    assert states == {False, True}
    editor.close()
