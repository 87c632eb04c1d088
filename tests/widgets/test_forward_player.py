"""ForwardPlayer in the kernel: traits that go together, errors, pictures on request, and what it leaves behind."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from ipywidgets.widgets.widget import _instances
from torch import nn

import modulekg_widgets as mk
from checks.model_state import unchanged
from modulekg_widgets.engine.playback import player as playback
from modulekg_widgets.engine.views.pictures.svg import svg_text
from modulekg_widgets.widgets import forward_player
from modulekg_widgets.widgets.forward_player import ForwardPlayer
from modulekg_widgets.widgets.shared import base
from widgets.forward_samples import FOLDER, HOSTILE, INPUT, golden_passes, residual, stops


class Sent(list[tuple[dict[str, Any], list[bytes]]]):
    """What a player sends besides its traits."""

    def __call__(self, content: Any, buffers: Any = None) -> None:
        self.append((content, list(buffers or ())))


@pytest.fixture
def player(monkeypatch: pytest.MonkeyPatch) -> Iterator[ForwardPlayer]:
    widget = mk.ForwardPlayer(residual(), INPUT)
    yield widget
    widget.close()


def ask(player: ForwardPlayer, monkeypatch: pytest.MonkeyPatch, **fields: int) -> Sent:
    sent = Sent()
    monkeypatch.setattr(player, "send", sent)
    question = {"kind": "maps", "run": player.payload["run"], "step": 1, "sample": 0, "page": 0, **fields}
    player._handle_custom_msg(question, [])
    return sent


# ------------------------------------------------------------------ traits


@pytest.mark.parametrize("name", ["residual", "stops"])
def test_payload_and_pictures_are_the_golden_ones(name: str) -> None:
    # a wanted change is written with: python tests/widgets/write_golden.py
    made = json.loads(json.dumps(golden_passes()[name], allow_nan=False))
    assert made == json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    json.dumps(made, ensure_ascii=False).encode("utf-8")


def test_state_is_what_the_protocol_says(player: ForwardPlayer) -> None:
    state = player.get_state()
    own = {key: value for key, value in state.items() if key in ForwardPlayer.class_own_traits() and key[0] != "_"}
    assert own.pop("payload") == player.payload
    assert own.pop("pictures") == player.pictures
    assert own == {
        "step": 0,
        "selected": "",
        "playing": False,
        "speed": 2.0,
        "hide_shapes": False,
        "sample": 0,
        "page": 0,
        "quiz": {"asked": 0, "right": 0},
    }
    assert (state["_model_module"], state["_model_name"]) == ("modulekg-widgets", "ForwardPlayerModel")
    assert state["_view_name"] == "ForwardPlayerView"


def test_step_and_selection_go_together(player: ForwardPlayer) -> None:
    player.page = 3
    player.step = 3
    assert (player.selected, player.page) == ("relu", 0)
    player.selected = "relu"
    assert player.step == 3  # it stays at the second call of the module
    player.selected = "conv"
    assert player.step == 1
    player.selected = None
    assert player.step == 1
    later = mk.ForwardPlayer(residual(), INPUT, selected="relu")
    assert (later.step, later.selected) == (2, "relu")
    assert mk.ForwardPlayer(residual(), INPUT, step=3).selected == "relu"


def test_what_the_page_chose_is_not_sent_back(player: ForwardPlayer, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(player, "send_state", lambda key=None: sent.append(key))
    player.set_state({"selected": "conv"})
    assert (player.step, sent) == (1, [])
    player.set_state({"step": 2, "selected": "relu"})
    assert (player.step, player.selected, sent) == (2, "relu", [])
    player.set_state({"step": 0})
    assert (player.step, player.selected, sent) == (0, "", [])
    player.step = 1
    assert sent == ["step", "selected"]


def test_modules_that_are_not_called_can_be_selected() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ModuleList([nn.ReLU()])))
    model[1].forward = lambda x: x
    player = mk.ForwardPlayer(model, torch.ones(1, 2), step=1)
    player.selected = "1.0.0"
    assert (player.step, player.selected) == (1, "1.0.0")


@pytest.mark.parametrize(
    ("trait", "value", "message"),
    [
        ("step", 4, "there is no step 4: they are 0 to 3"),
        ("step", -1, "there is no step -1"),
        ("selected", "cnv", "no module 'cnv': did you mean 'conv'"),
        ("speed", 0, "above 0 and at most 60 steps a second: 0.0 was passed"),
        ("speed", float("nan"), "above 0"),
        ("sample", -1, "sample counts from 0: -1 was passed"),
        ("page", -2, "page counts from 0: -2 was passed"),
        ("quiz", {"asked": 1}, "two counts"),
        ("quiz", {"asked": 1, "right": "1"}, "two counts"),
        ("quiz", {"asked": 1, "right": 2}, "of 1 guesses 2 cannot be right"),
        ("playing", "yes", "playing"),
        ("hide_shapes", None, "hide_shapes"),
    ],
)
def test_wrong_values_are_refused(player: ForwardPlayer, trait: str, value: Any, message: str) -> None:
    before = getattr(player, trait)
    with pytest.raises(mk.ModuleKGError, match=message):
        setattr(player, trait, value)
    assert getattr(player, trait) == before


def test_keywords_are_strict(player: ForwardPlayer) -> None:
    with pytest.raises(TypeError, match="ForwardPlayer takes no keyword 'hide_shape': did you mean 'hide_shapes'"):
        mk.ForwardPlayer(residual(), INPUT, hide_shape=True)  # type: ignore[call-arg]
    with pytest.raises(mk.ModuleKGError, match="no attribute 'stepp': did you mean 'step'"):
        player.stepp = 3  # type: ignore[attr-defined]


def test_what_cannot_run_opens_nothing() -> None:
    before = set(_instances)
    with pytest.raises(mk.ModuleKGError, match="meta device"):
        mk.ForwardPlayer(nn.Linear(2, 2, device="meta"), torch.ones(1, 2))
    assert set(_instances) == before


def test_a_pass_that_stops_is_shown_up_to_there() -> None:
    player = mk.ForwardPlayer(stops(), INPUT)
    assert player.error is not None
    assert player.error.startswith("ValueError: <img")
    assert player.payload["failed"] == 2
    player.step = 2
    assert player.selected == HOSTILE
    player.set_state({"step": 0})
    player.set_state({"selected": player.payload["modules"][2][0]})  # the escape of a name is a name again
    assert player.step == 2


def test_repr_and_picture(player: ForwardPlayer) -> None:
    player.step = 2
    assert repr(player) == "<ForwardPlayer of Residual: step=2 of 4, selected='relu'>"
    picture = player._repr_mimebundle_()["image/svg+xml"]
    assert "2 × 2 × 2 × 2" in picture
    player.hide_shapes = True
    assert "2 × 2 × 2 × 2" not in svg_text(player._static_picture())
    hostile = svg_text(mk.ForwardPlayer(stops(), INPUT)._static_picture())
    assert "<img" not in hostile
    assert "stopped here" in hostile


# ------------------------------------------------------------------ running


def test_another_input(player: ForwardPlayer) -> None:
    player.step, player.quiz = 2, {"asked": 3, "right": 2}
    model = player._model
    with unchanged(model):
        player.run(torch.ones(1, 1, 5, 6))
    assert (player.step, player.payload["run"], player.quiz) == (2, 2, {"asked": 0, "right": 0})
    assert player.payload["shapes"][1][0][1] == [1, 2, 5, 6]
    with torch.no_grad():
        model.conv.weight.mul_(3)
    player.run()
    assert player.payload["steps"]["statistics"][1][1] == 3
    player.run(x=torch.ones(1, 1, 1, 1))
    assert player.payload["run"] == 4
    with pytest.raises(mk.ModuleKGError, match="do not fit forward"):
        player.run(1, 2, 3)
    assert len(player) == 4


def test_a_run_that_goes_another_way_begins_at_its_first_step() -> None:
    player = mk.ForwardPlayer(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.ones(1, 2), step=2, playing=True)
    player.run(torch.ones(1, 3))
    assert (player.step, player.selected, player.playing, len(player)) == (0, "", False, 2)
    assert player.error is not None


@pytest.mark.slow
def test_close_lets_go_of_model_and_inputs() -> None:
    model, x = residual(), INPUT.clone()
    alive = weakref.ref(model)
    player = mk.ForwardPlayer(model, x)
    kept = weakref.ref(player._played.inputs[0][0])
    player.close()
    del model
    gc.collect()
    assert (alive(), kept()) == (None, None)
    with pytest.raises(mk.ModuleKGError, match="this player is closed"):
        player.run(x)


# ------------------------------------------------------------------ pictures


def test_pictures_on_request(player: ForwardPlayer, monkeypatch: pytest.MonkeyPatch) -> None:
    ((content, buffers),) = ask(player, monkeypatch, sample=1)
    golden = json.loads((FOLDER / "residual.json").read_text("utf-8"))
    assert content == golden["reply"]
    assert [list(buffer) for buffer in buffers] == [golden["pixels"]]


def test_pictures_that_come_with_the_steps_are_those_on_request(
    player: ForwardPlayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = player.get_state()["pictures"]
    assert (pictures["run"], pictures["sample"], len(pictures["pixels"])) == (1, 0, 3 * 8)
    assert sorted(step for one in pictures["each"] for step in one["steps"]) == [0, 1, 2, 3]
    at = 0
    for one in pictures["each"]:
        assert one["whole"]
        for step in one["steps"]:
            ((content, (pixels,)),) = ask(player, monkeypatch, step=step)
            assert {**content["maps"], "top": None} == {**one["maps"], "top": None}
            assert pictures["pixels"][at : at + 8] == pixels
        at += 8
    later = mk.ForwardPlayer(residual(), INPUT, sample=1)
    assert later.pictures["sample"] == 1
    assert [one["maps"]["item"] for one in later.pictures["each"]] == [1, 1, 1]
    player.run(torch.ones(1, 1, 5, 6))
    assert player.pictures["run"] == 2
    assert player.pictures["each"][0]["maps"]["sizes"] == [5, 6]
    player.set_state({"pictures": {}})  # of which no page is believed
    assert player.pictures["run"] == 2


def test_pictures_that_come_with_the_steps_have_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coarse ones of all steps, with fewer channels where they are many; fine ones as far as there is room."""
    model = nn.Sequential(*[nn.Conv2d(64, 64, 3, padding=1) for _ in range(20)])
    x = torch.randn(2, 64, 40, 40)
    player = mk.ForwardPlayer(model, x, step=7)
    each = {step: one for one in player.pictures["each"] for step in one["steps"]}
    assert sorted(each) == list(range(21))
    assert playback.MAX_PREVIEW_BYTES // 2 < len(player.pictures["pixels"]) <= playback.MAX_PREVIEW_BYTES
    fine = [step for step, one in each.items() if one["whole"]]
    assert fine[:1] == [7]  # the one that is shown
    assert all(each[step]["maps"]["width"] == 40 for step in fine)
    coarse = [one["maps"] for step, one in each.items() if step not in fine]
    assert {(maps["width"], maps["total"], tuple(maps["sizes"])) for maps in coarse} == {(24, 64, (40, 40))}
    assert {len(maps["ranges"]) for maps in coarse} == {32}
    monkeypatch.setattr(playback, "MAX_PREVIEW_BYTES", 10_000)
    few = mk.ForwardPlayer(model, x, step=7).pictures
    assert [one["steps"] for one in few["each"]] == [[7], [0, 20], [1], [2]]
    assert (len(few["pixels"]), len(few["each"][0]["maps"]["ranges"])) == (4 * 4 * 24 * 24, 4)


def test_pictures_are_made_of_outputs_that_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playback, "CACHE_BYTES", 0)
    player = mk.ForwardPlayer(nn.Sequential(*[nn.Conv2d(4, 4, 1) for _ in range(3)]), torch.randn(1, 4, 30, 30))
    each = {step: one for one in player.pictures["each"] for step in one["steps"]}
    assert [(each[step]["maps"]["width"], each[step]["whole"]) for step in (1, 2)] == 2 * [(24, False)]


@pytest.mark.parametrize("fields", [{"step": -1}, {"page": None}, {"sample": "1"}, {"run": True}, {"kind": "other"}])
def test_other_questions_are_left_alone(
    player: ForwardPlayer, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    assert ask(player, monkeypatch, **fields) == []
    player._handle_custom_msg(["<script>"], [])


@pytest.mark.parametrize("fields", [{"step": 99}, {"run": 2}])
def test_the_page_does_not_wait_for_steps_that_are_gone(
    player: ForwardPlayer, monkeypatch: pytest.MonkeyPatch, fields: dict[str, int]
) -> None:
    ((content, _),) = ask(player, monkeypatch, **fields)
    assert content["error"].startswith("this step belongs to an earlier run")


def test_a_model_that_has_changed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playback, "CACHE_BYTES", 0)
    model = residual()
    player = mk.ForwardPlayer(model, INPUT)
    with torch.no_grad():
        model.conv.weight.mul_(2)
    ((content, buffers),) = ask(player, monkeypatch)
    assert "outputs have changed" in content["error"]
    assert buffers == []


def test_beside_a_running_cell_the_model_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """In another thread only what is kept is drawn; the rest waits for the main thread, where the latest counts."""
    monkeypatch.setattr(playback, "CACHE_BYTES", 0)
    player = mk.ForwardPlayer(residual(), INPUT)
    waiting: list[Any] = []
    monkeypatch.setattr(forward_player, "when_idle", waiting.append)
    sent = Sent()
    monkeypatch.setattr(player, "send", sent)

    def beside(step: int) -> None:
        question = {"kind": "maps", "run": 1, "step": step, "sample": 0, "page": 0}
        thread = threading.Thread(target=player._handle_custom_msg, args=(question, []))
        thread.start()
        thread.join()

    beside(2)
    beside(3)
    beside(1)
    # the page is told at once that the model has to run for this
    assert [(content["step"], content["later"]) for content, _ in sent] == [(2, True), (3, True), (1, True)]
    assert len(waiting) == 1
    sent.clear()
    waiting.pop()()
    assert [content["step"] for content, _ in sent] == [1]
    beside(1)  # which is kept now
    assert [content["step"] for content, _ in sent] == [1, 1]
    assert not any("later" in content for content, _ in sent)
    beside(2)
    player.close()
    waiting.pop()()
    assert len(sent) == 3


def test_the_main_thread_without_a_kernel() -> None:
    done: list[int] = []
    assert base.is_main_thread()
    base.when_idle(lambda: done.append(1))
    assert done == [1]


def test_the_steps_are_there_for_python(player: ForwardPlayer) -> None:
    assert [step.path for step in player.steps] == ["", "conv", "relu", "relu"]
    assert [layout.sizes for layout in player.steps[0].outputs] == [(2, 2, 2, 2), (2, 2, 2, 2)]


def test_it_opens_at_the_first_item_that_is_not_finite() -> None:
    x = torch.zeros(4, 3)
    x[2, 1] = float("nan")
    player = mk.ForwardPlayer(nn.Sequential(nn.Identity(), nn.Linear(3, 2)), x)
    assert (player.sample, player.pictures["sample"]) == (2, 2)
    lines = svg_text(player._static_picture()).splitlines()
    assert [line for line in lines if "NaN or infinite" in line][1].count("0  Identity") == 1
    player.run(torch.zeros(4, 3))
    assert (player.sample, player.pictures["sample"]) == (0, 0)  # nobody had asked for item 2
    player.sample = 1
    player.run(x)
    assert (player.sample, player.pictures["sample"]) == (1, 1)  # this one somebody has
    assert mk.ForwardPlayer(nn.Identity(), x, sample=0).sample == 0
