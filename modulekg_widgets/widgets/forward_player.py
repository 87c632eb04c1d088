"""ForwardPlayer: a forward step by step, with pictures of the output of each module."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from traitlets import Bool, Bunch, Dict, Float, Int, Unicode, observe, validate

from modulekg_widgets.engine.errors import ModuleKGError, printable
from modulekg_widgets.engine.playback.player import Playback
from modulekg_widgets.engine.playback.steps import ForwardStep, error_text
from modulekg_widgets.engine.views.forward_payload import forward_payload, maps_message, pictures_payload
from modulekg_widgets.engine.views.payload import text
from modulekg_widgets.engine.views.pictures.forward import draw_forward
from modulekg_widgets.engine.views.pictures.shapes import Picture
from modulekg_widgets.engine.views.schema import Payload
from modulekg_widgets.widgets.pages.pages import SavedAnswer, saved_answers
from modulekg_widgets.widgets.shared.base import (
    WidgetValueError,
    check_keywords,
    is_main_thread,
    when_idle,
)
from modulekg_widgets.widgets.shared.model_widget import ModelWidget
from modulekg_widgets.widgets.shared.progress import display_progress

if TYPE_CHECKING:
    from modulekg_widgets.engine.torch_runtime.modules import Model

MAX_SPEED = 60.0  # steps a second
KEYWORDS = ("args", "kwargs", "step", "selected", "playing", "speed", "hide_shapes", "sample", "page")
MAX_PIXEL_BYTES = 8 << 20  # bytes of pictures in a saved page
MISSING = "This picture is not in the saved page."
NO_FURTHER_PAGE = "Finer pictures of this step are not in the saved page."
EMPTY_QUIZ = {"asked": 0, "right": 0}


class ForwardPlayer(ModelWidget):
    """One forward pass to play, pause and step through, with pictures of what each module gives.

    The pass runs once in the model's own mode, without gradients, and the model stays as it is. Pictures of all steps
    come with the player, up to 512 KiB of them, so that it can be looked at while the kernel runs other cells: fine
    ones of a small model, coarse ones of a large one. Finer ones, those of other items and of further channels come on
    request: from outputs that are kept (up to 64 MiB), else the pass runs again with the same random states, once the
    kernel is idle.

    Parameters
    ----------
    model : torch.nn.Module
        What runs.
    args, kwargs : optional
        What its forward takes. Where it raises, the steps end there and `error` says why.
    step, selected, playing, speed, hide_shapes, sample, page : optional
        What the attributes of these names start with.
    layout : ipywidgets.Layout or dict, optional
        Size and margins in the page.
    **unknown
        Refused: a keyword that there is not.

    Attributes
    ----------
    step : int
        0 to `len(player) - 1`. This and the following can be set at any time, here and in the browser.
    selected : str or None
        A dotted path; setting it goes to the module's first step.
    playing : bool
        Whether it goes on by itself.
    speed : float
        Steps a second.
    hide_shapes : bool
        Whether shapes are asked instead of shown; `quiz` counts the guesses as {"asked": …, "right": …}.
    sample : int
        The item of the batch that is drawn. Unless it is passed, that is the first one in which a value is not finite,
        where there is one.
    page : int
        Which of its channels, 64 each.

    Raises
    ------
    NotAModuleError, UnknownKeywordError, UnknownPathError, TraceError, UninitializedModuleError, WidgetValueError
        For a model that cannot run, for a name that there is not, and for a value of the wrong kind.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> player = mk.ForwardPlayer(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), torch.zeros(1, 4))
    >>> len(player)  # the model itself and its two modules
    3
    >>> player.selected = "1"
    >>> player.step
    2
    """

    _model_name = Unicode("ForwardPlayerModel").tag(sync=True)
    _view_name = Unicode("ForwardPlayerView").tag(sync=True)

    kernel_traits = frozenset({"payload", "pictures"})

    payload = Dict().tag(sync=True)
    pictures = Dict().tag(sync=True)
    step = Int(0).tag(sync=True)
    selected = Unicode(None, allow_none=True).tag(sync=True, to_json=lambda v, w: None if v is None else text(v))
    playing = Bool(False).tag(sync=True)
    speed = Float(2.0).tag(sync=True)
    hide_shapes = Bool(False).tag(sync=True)
    sample = Int(0).tag(sync=True)
    page = Int(0).tag(sync=True)
    quiz = Dict(EMPTY_QUIZ).tag(sync=True)

    def __init__(
        self,
        model: Model,
        args: object = (),
        kwargs: Mapping[str, object] | None = None,
        *,
        step: int = 0,
        selected: str | None = None,
        playing: bool = False,
        speed: float = 2.0,
        hide_shapes: bool = False,
        sample: int | None = None,
        page: int = 0,
        layout: object = None,
        **unknown: object,
    ) -> None:
        check_keywords("ForwardPlayer", unknown, KEYWORDS)
        self._model: Any = model
        self._pending_question: dict[str, int] | None = None
        self._asking = threading.Lock()
        self._runs = 1
        with display_progress(f"Forward pass of {printable(type(model).__name__)}"):
            self._take(Playback(model, args, kwargs, None if sample is None else _sample_index(sample)))
        self._found_sample = None if sample is not None else self._played.sample  # nobody has asked for it
        if selected is not None and step == 0:
            step = self._played.first_step(selected) or 0
        super().__init__(
            payload=forward_payload(self._played, self._runs),
            pictures=pictures_payload(self._played, self._runs, step),
            step=step,
            selected=self._path_of(step) if selected is None else selected,
            playing=playing,
            speed=speed,
            hide_shapes=hide_shapes,
            sample=self._played.sample if sample is None else sample,
            page=page,
            **({} if layout is None else {"layout": layout}),
        )
        self.on_msg(self._on_message)
        self._watch(model)

    def __len__(self) -> int:
        return len(self._played)

    def __repr__(self) -> str:
        where = f"step={self.step} of {len(self)}, selected={self.selected!r}"
        return f"<ForwardPlayer of {printable(self._played.title)}: {where}>"

    @property
    def steps(self) -> tuple[ForwardStep, ...]:
        """The calls in order, with `path`, `inputs` and `outputs` (their `sizes`), `statistics` and `top`."""
        return tuple(self._played.steps)

    @property
    def error(self) -> str | None:
        """The exception of the forward as text; None if it completed."""
        return self._played.error

    # -------------------------------------------------------------- running

    def run(self, *args: object, **kwargs: object) -> None:
        """Run the forward again with another input, or with the same one if none is passed.

        The quiz starts anew; the step stays where the calls are the same.

        Parameters
        ----------
        *args, **kwargs
            What the model's forward takes.

        Raises
        ------
        WidgetValueError
            When the player is closed.
        TraceError, UninitializedModuleError
            When the model cannot run, as for an input on the meta device; the player stays as it is.
        """
        if self._model is None:
            raise WidgetValueError("this player is closed: make a new one")
        before = self._played
        given = (args, kwargs) if args or kwargs else before.inputs
        is_found = self.sample == self._found_sample
        with display_progress(f"Forward pass of {printable(type(self._model).__name__)}"):
            played = Playback(self._model, *given, None if is_found else self.sample)
        self._found_sample = played.sample if is_found else None
        before.close()
        self._take(played)
        self._watch(self._model)
        self._runs += 1
        is_alike = [step.path for step in played.steps] == [step.path for step in before.steps]
        with self.hold_sync():
            self.sample = played.sample
            self.pictures = pictures_payload(played, self._runs, self.step if is_alike else 0)
            self.payload = forward_payload(played, self._runs)
            self.quiz = EMPTY_QUIZ
            if not is_alike:
                self.playing = False
                self.step = self.page = 0
                self.selected = self._path_of(0)

    def close(self) -> None:
        """Close the widget, and release the model and its inputs."""
        played = vars(self).get("_played")  # a constructor that raised has none
        if played is not None:
            played.close()
        self._model = None
        super().close()

    def _redraw(self, model: Model) -> None:
        self.run()

    def _take(self, played: Playback) -> None:
        self._played = played
        # a path with a lone surrogate comes back from the browser as its escape
        self._escaped = {text(step.path): step.path for step in played.steps if text(step.path) != step.path}

    # -------------------------------------------------------------- checks

    @validate("step")
    def _check_step(self, proposal: Bunch) -> int:
        value = proposal["value"]
        if not 0 <= value < max(1, len(self)):
            raise WidgetValueError(f"there is no step {value}: they are 0 to {len(self) - 1}")
        return value

    @validate("selected")
    def _check_selected(self, proposal: Bunch) -> str | None:
        value: str | None = proposal["value"]
        return None if value is None else self._played.canonical_path(self._escaped.get(value) or value)

    @validate("speed")
    def _check_speed(self, proposal: Bunch) -> float:
        value = proposal["value"]
        if not 0 < value <= MAX_SPEED:
            raise WidgetValueError(f"the speed is above 0 and at most {MAX_SPEED:g} steps a second: {value} was passed")
        return value

    @validate("sample", "page")
    def _check_count(self, proposal: Bunch) -> int:
        if proposal["value"] < 0:
            raise WidgetValueError(f"{proposal['trait'].name} counts from 0: {proposal['value']} was passed")
        return proposal["value"]

    @validate("quiz")
    def _check_quiz(self, proposal: Bunch) -> dict[str, int]:
        value = proposal["value"]
        if set(value) != set(EMPTY_QUIZ) or not all(type(count) is int for count in value.values()):
            raise WidgetValueError('the quiz is {"asked": …, "right": …}, two counts')
        if not 0 <= value["right"] <= value["asked"]:
            raise WidgetValueError(f"of {value['asked']} guesses {value['right']} cannot be right")
        return dict(value)

    # -------------------------------------------- step and selection go together

    @observe("step")
    def _step_changed(self, change: Bunch) -> None:
        self._set_linked_trait(change, "selected", self._path_of(change["new"]))
        self._set_linked_trait(change, "page", 0)

    @observe("selected")
    def _selected_changed(self, change: Bunch) -> None:
        path = change["new"]
        if path is None or path == self._path_of(self.step):
            return
        first = self._played.first_step(path)
        if first is not None:
            self._set_linked_trait(change, "step", first)

    def _set_linked_trait(self, change: Bunch, name: str, value: object) -> None:
        """Set a trait that depends on another one; changes from a page are left to that page."""
        if change["name"] in self._property_lock:
            if name in self._property_lock:
                return
            self._property_lock[name] = text(value) if isinstance(value, str) else value
        self.set_trait(name, value)

    def _path_of(self, step: int) -> str | None:
        return self._played.steps[step].path if step < len(self) else None

    # -------------------------------------------------------------- pictures

    def _on_message(self, widget: object, content: object, buffers: object) -> None:
        """Handle a request for pictures; only the latest one is answered.

        Messages are heard beside a running cell, in a subshell: the model runs in the main thread alone, between cells.
        """
        question = _question(content)
        if question is None:
            return
        if not self._answer(question, may_run=is_main_thread()):
            self.send({"kind": "maps", **question, "later": True})  # the page says what it waits for
            with self._asking:
                is_waiting, self._pending_question = self._pending_question is not None, question
            if not is_waiting:
                when_idle(self._answer_waiting)

    def _answer_waiting(self) -> None:
        with self._asking:
            question, self._pending_question = self._pending_question, None
        if question is not None and self.comm is not None:
            self._answer(question, may_run=True)

    def _answer(self, question: dict[str, int], may_run: bool) -> bool:
        """Send the pictures; False if the model would have to run and may not."""
        reply: dict[str, object] = {"kind": "maps", **question}
        pixels: list[bytes] = []
        if question["run"] != self._runs or question["step"] >= len(self):
            self.send({**reply, "error": "this step belongs to an earlier run. Show the player again"})
            return True
        try:
            found = self._played.picture(question["step"], question["sample"], question["page"], may_run)
            if found is None:
                return False
            maps, pixels = maps_message(*found)
            reply["maps"] = maps
        except ModuleKGError as error:
            reply["error"] = text(str(error))
        except KeyboardInterrupt:
            reply["error"] = "Forward pass interrupted. Select the step again."
        except Exception as error:  # noqa: BLE001 - the page waits for an answer
            reply["error"] = text(error_text(error))
        self.send(reply, pixels)
        return True

    def _static_picture(self) -> Picture:
        return draw_forward(self._played, self.step, self.hide_shapes)


def _sample_index(sample: object) -> int:
    """Returns the batch index for pictures; 0 for an invalid value, which the trait refuses."""
    return sample if type(sample) is int and sample >= 0 else 0


def _question(content: object) -> dict[str, int] | None:
    """Returns the numbers of a request for pictures; None for other messages."""
    if not isinstance(content, Mapping) or content.get("kind") != "maps":
        return None
    numbers = {name: content.get(name) for name in ("run", "step", "sample", "page")}
    is_right = all(type(value) is int and value >= 0 for value in numbers.values())
    return numbers if is_right else None  # type: ignore[return-value]


# ------------------------------------------------------------------ a saved page


@saved_answers.register("ForwardPlayer")
def _pictures(player: ForwardPlayer) -> Iterator[SavedAnswer]:
    """Yields the saved answers: the first page of each step, then further ones within the size limit.

    What comes with the steps is not asked for; where it is coarse and there is no room for more, that is said.
    """
    room = MAX_PIXEL_BYTES
    come = player.pictures["each"] if player.pictures["sample"] == player.sample else []
    known = {step: one["maps"] for one in come if one["whole"] for step in one["steps"]}
    coarse = {step for one in come if not one["whole"] for step in one["steps"]}
    waiting = [(step, 0) for step in range(len(player)) if step not in known]
    waiting += [(step, 1) for step, maps in known.items() if _has_more(maps)]
    for step, page in waiting:  # grows
        question = {"kind": "maps", "run": player._runs, "step": step, "sample": player.sample, "page": page}
        content, pixels, has_more = _picture(player, step, page)
        room -= sum(map(len, pixels))
        if room < 0:
            break
        if content:
            yield SavedAnswer(question, content, pixels)
            coarse.discard(step)
        if has_more:
            waiting.append((step, page + 1))
    for step in sorted(coarse):
        yield SavedAnswer({"kind": "maps", "step": step, "page": 0}, {"error": NO_FURTHER_PAGE})
    yield SavedAnswer({"kind": "maps"}, {"error": MISSING})


def _picture(player: ForwardPlayer, step: int, page: int) -> tuple[dict[str, object], list[bytes], bool]:
    """Returns the content of an answer, its pixels, and True if there is a further page."""
    try:
        found = player._played.picture(step, player.sample, page, is_main_thread())
    except ModuleKGError as error:
        return {"error": text(str(error))}, [], False
    if found is None:
        return {}, [], False
    maps, pixels = maps_message(*found)
    return {"maps": maps}, pixels, _has_more(maps)


def _has_more(maps: Payload) -> bool:
    """True if there is a further page."""
    shown = {"channels": len(maps["ranges"]), "strip": maps["width"] * maps["height"]}.get(maps["form"], maps["total"])
    return maps["first"] + shown < maps["total"]
