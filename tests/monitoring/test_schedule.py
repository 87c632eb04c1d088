"""The grammar of schedules, and the steps that each stands for."""

import math
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.monitoring.schedule import (
    GRAMMAR,
    OnEvent,
    Schedule,
    ScheduleError,
    is_schedule_text,
    schedule,
)

WHOLE = st.integers(0, 10_000)


def due(text: str, stop: int = 40) -> list[int]:
    found = schedule(text)
    return [step for step in range(stop) if found.due(step)]


def watched(found: Schedule, stop: int = 40) -> list[int]:
    return [step for step in range(stop) if found.watches(step)]


# ------------------------------------------------------------------ what is read


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("linear()", list(range(40))),
        ("linear(0)", list(range(40))),
        ("linear(1)", list(range(40))),
        ("linear(0,0)", list(range(40))),
        ("linear(0, 37)", [37, 38, 39]),
        ("linear(5,2)", [2, 7, 12, 17, 22, 27, 32, 37]),
        ("linear(7)", [0, 7, 14, 21, 28, 35]),
        ("linear(100)", [0]),
        ("linear(100,39)", [39]),
        ("linear(3,100)", []),
        ("logarithmic(1,16,5)", [1, 2, 4, 8, 16]),
        ("logarithmic(1,1000,4)", [1, 10]),
        ("logarithmic(0,16,5)", [0, 1, 2, 4, 8, 16]),
        ("logarithmic(3,3,1)", [3]),
        ("logarithmic(3,3,9)", [3]),
        ("logarithmic(0,0,1)", [0]),
        ("logarithmic(5,20,1)", [5]),
        ("logarithmic(1,2,50)", [1, 2]),
        ("steps(3)", [3]),
        ("steps(9, 1, 9, 4)", [1, 4, 9]),
        ("steps(0)", [0]),
        ("range(3,7)", [3, 4, 5, 6]),
        ("range(3,9,2)", [3, 5, 7]),
        ("range(3,3)", []),
        ("range(9,3)", []),
        ("range(0,40,13)", [0, 13, 26, 39]),
        ("window(4)", [3, 7, 11, 15, 19, 23, 27, 31, 35, 39]),
        ("window(1)", list(range(40))),
        ("window(3,10)", [2, 12, 22, 32]),
        ("window(10,10)", [9, 19, 29, 39]),
        ("window(2,0)", list(range(1, 40, 2))),
        ("on(WeightNorm, above, 3)", []),
        ("  linear (\t5 ,\n2 ) ", [2, 7, 12, 17, 22, 27, 32, 37]),
    ],
)
def test_the_steps_of_a_schedule(text: str, steps: list[int]) -> None:
    assert due(text) == steps


@pytest.mark.parametrize(
    "text",
    [
        "linear", "linear(", "linear)", "linear(5", "linear 5", "(5)", "()", "linear(5))", "linear((5))", "linear(5)x",
        "linear(a)", "linear(1.5)", "linear(5,)", "linear(,5)", "linear(,)", "linear(1,2,3)", "linear(-1)",
        "linear(5,-2)",
        "linear(nan)", "linear(1e3)", "linear(0x10)", "linear(None)", "linear(5 2)", "linear(interval=5)",
        "logarithmic()", "logarithmic(1,10)", "logarithmic(10,1,3)", "logarithmic(1,10,0)", "logarithmic(1,10,-1)",
        "logarithmic(1,10,3,4)", "logarithmic(-1,10,3)",
        "steps()", "steps(-1)", "steps(1,,2)", "steps(1;2)", "steps(all)",
        "range()", "range(1)", "range(1,2,0)", "range(1,2,3,4)", "range(1,2,-1)",
        "window()", "window(0)", "window(0,5)", "window(5,3)", "window(1,2,3)", "window(-1)",
        "on()", "on(M)", "on(M,above)", "on(M,beside,3)", "on(M,above,)", "on(M,above,x)", "on(M,above,3,4)",
        "on(M,above,nan)",
        "Linear(5)", "linaer(5)", "every(5)", "eval(1)", "__import__(1)", "linear(5); steps(3)", "linear(5)linear(5)",
        "línear(5)", "linear\x00(5)", "\ud800(5)", "linear(\ud800)", "", " ",
    ],
)  # fmt: skip
def test_what_is_no_schedule_is_answered_with_the_grammar(text: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        schedule(text)
    assert GRAMMAR in str(caught.value)
    assert isinstance(caught.value, mk.ModuleKGError)
    assert str(caught.value).isprintable()


def test_a_typo_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(ScheduleError, match="did you mean 'logarithmic'"):
        schedule("logaritmic(1,2,3)")


NINES = "9" * 300


@pytest.mark.parametrize(
    "text",
    [
        f"linear({NINES})",
        f"linear({NINES},{NINES})",
        f"linear({'9' * 100_000})",
        f"logarithmic(1,{NINES},1000000)",
        f"logarithmic(0,{'9' * 4000},1000000)",
        f"logarithmic({NINES},{NINES},1000000)",
        f"logarithmic(1,10,{NINES})",
        f"steps({','.join(map(str, range(100_000)))})",
        f"steps({NINES})",
        f"range({NINES},{NINES}9)",
        f"range(0,{NINES},{NINES})",
        f"window({NINES})",
        f"window(1,{NINES})",
        "on(M,above,1e999)",
        f"on({'M' * 100_000},above,1)",
        "linear(" + " " * 200_000,
        " " * 200_000 + "linear(5)x",
        "a" * 200_000,
        "a" * 200_000 + "(5)",
        "linear(" + "(" * 100_000 + ")" * 100_000,
        "linear(" + "," * 100_000 + ")",
        "linear(5)" * 20_000,
    ],
    ids=lambda text: f"{text[:14]}… {len(text)}",
)
def test_hostile_texts_are_answered_at_once(text: str) -> None:
    begin = time.process_time()
    found, said = None, ""
    try:
        found = schedule(text)
    except ScheduleError as error:
        said = str(error)
    assert len(said) < 1000
    if found is not None:
        assert [found.due(step) in (True, False) for step in (0, 1, 2**62)] == [True] * 3
        assert found.watches(5) in (True, False)
        assert found.begins(5) in (True, False)
    assert time.process_time() - begin < 1.0


@given(st.text(max_size=60))
@settings(deadline=None, max_examples=300)
def test_any_text_is_a_schedule_or_refused(text: str) -> None:
    try:
        schedule(text)
    except ScheduleError:
        return
    assert "(" in text


@given(
    st.sampled_from(["linear", "logarithmic", "steps", "range", "window"]), st.lists(st.integers(-3, 60), max_size=4)
)
@settings(deadline=None, max_examples=300)
def test_numbers_make_a_schedule_or_are_refused(name: str, numbers: list[int]) -> None:
    try:
        found = schedule(f"{name}({', '.join(map(str, numbers))})")
    except ScheduleError:
        return
    assert min(numbers, default=0) >= 0
    for step in range(70):
        assert found.watches(step) or not found.due(step)
        assert found.watches(step) or not found.begins(step)
    assert not found.due(-1)


# ------------------------------------------------------------------ the values


@given(WHOLE, WHOLE, WHOLE)
@settings(deadline=None)
def test_linear_is_what_it_says(interval: int, offset: int, step: int) -> None:
    expected = step >= offset and (step - offset) % (interval or 1) == 0
    assert schedule(f"linear({interval},{offset})").due(step) == expected


@given(st.integers(1, 1000), st.integers(1, 1000), st.integers(1, 30))
@settings(deadline=None)
def test_logarithmic_steps_are_numpys(start: int, more: int, count: int) -> None:
    found = [
        step for step in range(start + more + 1) if schedule(f"logarithmic({start},{start + more},{count})").due(step)
    ]
    exact = np.geomspace(start, start + more, count)
    assert found == sorted(set(np.rint(exact).astype(int).tolist()))


@given(st.integers(1, 20), st.integers(0, 20))
@settings(deadline=None)
def test_a_window_begins_is_watched_and_ends(length: int, gap: int) -> None:
    found = schedule(f"window({length},{length + gap})")
    for start in range(0, 3 * (length + gap), length + gap):
        inside = range(start, start + length)
        between = range(start + length, start + length + gap)
        assert [step for step in (*inside, *between) if found.begins(step)] == [start]
        assert [step for step in (*inside, *between) if found.watches(step)] == list(inside)
        assert [step for step in (*inside, *between) if found.due(step)] == [start + length - 1]


@pytest.mark.parametrize("text", ["linear(5,2)", "steps(1,2,3)", "range(2,9)", "logarithmic(1,30,5)"])
def test_a_schedule_of_single_steps_watches_and_begins_when_it_is_due(text: str) -> None:
    found = schedule(text)
    assert watched(found) == due(text) == [step for step in range(40) if found.begins(step)]


def test_equal_texts_are_equal_schedules() -> None:
    for text in ("linear(5,2)", "logarithmic(1,10,3)", "steps(2,1)", "range(1,9,2)", "window(3,4)"):
        assert schedule(text) == schedule(text.replace(",", " , "))
        assert hash(schedule(text)) == hash(schedule(text))
    assert schedule("on(M,above,1)") != schedule("on(M,above,1)")  # each waits for itself


@pytest.mark.parametrize(
    ("bound", "values", "crossing"),
    [
        ("above, 2", [1, 2, 2.1, math.inf, -math.inf, math.nan], [False, False, True, True, False, True]),
        ("below, 2", [1, 2, 2.1, math.inf, -math.inf, math.nan], [True, False, False, False, True, True]),
        ("above, -1e-3", [0.0, -1.0], [True, False]),
        ("above, inf", [math.inf, math.nan], [False, True]),
    ],
)
def test_an_event_is_a_value_beyond_the_bound(bound: str, values: list[float], crossing: list[bool]) -> None:
    event = schedule(f"on(WeightNorm, {bound})")
    assert isinstance(event, OnEvent)
    assert event.metric == "WeightNorm"
    assert [event.crossed(value) for value in values] == crossing


@pytest.mark.parametrize(
    ("text", "answer"),
    [("linear(5)", True), ("linear", True), (" steps ", True), ("WeightNorm", False), ("Foo(3)", True), ("lin", False)],
)
def test_schedules_are_told_from_metrics(text: str, answer: bool) -> None:
    assert is_schedule_text(text) is answer


# ------------------------------------------------------------------ in a monitor


@pytest.mark.parametrize("metric", ["OutputSndNorm", "WeightNorm", "OutputGradSndNorm", "DeadNeuronFraction"])
@pytest.mark.parametrize("text", ["linear(5,2)", "window(3)", "window(2,5)", "range(3,9,2)", "steps(0,11)"])
def test_values_belong_to_the_steps_that_are_due(metric: str, text: str) -> None:
    model = nn.Linear(3, 3)
    with mk.Monitor(model, {"": [metric, text]}) as monitor:
        for step in range(12):
            model(torch.randn(2, 3)).sum().backward()
            monitor.track(step)
    assert list(monitor.get_output()[""][metric]) == due(text, 12)


def test_an_unknown_event_is_refused_with_the_nearest_name() -> None:
    model = nn.Linear(3, 3)
    with pytest.raises(mk.ModuleKGError, match="WeightNorm"):
        mk.Monitor(model, {"": ["WeightNorm", ["OutputSndNorm", "on(WeightNrom, above, 3)"]]})
