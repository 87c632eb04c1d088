"""Messages from the page of a mask editor: drawn drafts and requested actions.

The page sets the trait `draft` once per gesture, to {"generation", "base", "by", "axes", "bits"}: all that it has drawn
on top of revision `base`, where `by` names the page and `as_integers` has the bytes of `axes` one after the other;
the blocks that can go are one more axis, behind the last, with a bit for each. The kernel
answers with its own draft in the same trait, {"revision", "by", "axes", "bits"}. It takes what was drawn on its
revision, or on what the same page had drawn before; a page that has not seen what another has drawn gets to see it,
puts its own on top and sends that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from modulekg_widgets.engine.errors import CutError, ModuleKGError, a_type, pluralize
from modulekg_widgets.engine.playback.steps import error_text
from modulekg_widgets.engine.pruning.plan.saved.pruning_plan import PruningPlan
from modulekg_widgets.engine.pruning.session import CUT, MASKED
from modulekg_widgets.engine.views.payload import text
from modulekg_widgets.widgets.mask_editor.measured_loss import MeasuredLoss
from modulekg_widgets.widgets.mask_editor.sensitivity_run import Editor, SensitivityRun
from modulekg_widgets.widgets.pages.pages import SavedAnswer, saved_answers
from modulekg_widgets.widgets.shared.base import WidgetValueError, is_main_thread, when_idle
from modulekg_widgets.widgets.shared.sliced_work import INTERRUPTED

if TYPE_CHECKING:
    from modulekg_widgets.engine.pruning.draft import Draft

MAX_NAME = 64  # of a page
TITLES = {"check": "Dry run", "evaluate": "Evaluation", "recalibrate": "Recalibration"}  # of actions, as they are shown
Message = Mapping[str, object]


class DraftMessage(NamedTuple):
    """A draft as a page sends it."""

    generation: int
    base: int
    by: str
    bits: dict[int, bytes]


class MaskMessages:
    """Handles the messages of an editor's pages; errors are sent back, too."""

    def __init__(self, editor: Editor, sensitivity_run: SensitivityRun, measured_loss: MeasuredLoss) -> None:
        self._editor, self._sensitivity_run, self._measured_loss = editor, sensitivity_run, measured_loss
        self._by, self._since, self._until = "", -1, -1  # the page that alone has drawn between two revisions
        self.path: str | None = None  # the file that a page has chosen last
        self._actions: dict[str, Callable[[Message], str | None]] = {
            "check": self._check, "mask": self._mask, "cut": self._cut,
            "undo": self._undo, "save": self._save, "load": self._load, "sense": self._sense,
            "evaluate": self._evaluate, "recalibrate": self._recalibrate, "measure": self._measure,
        }  # fmt: skip

    def draw(self, value: object) -> None:
        """Apply a draft from a page, also while a cell runs."""
        editor = self._editor
        if editor.comm is None:
            return
        try:
            self._draw(value)
        except ModuleKGError as error:
            by = value.get("by") if isinstance(value, dict) else None
            name = by if isinstance(by, str) and len(by) <= MAX_NAME else None
            editor.send({"type": "failed", "action": "draw", "by": name, "text": text(str(error))})

    def _draw(self, value: object) -> None:
        editor, pruning = self._editor, self._editor._pruning
        draft, drawing = pruning.draft, _parse_draft(value, pruning.draft)
        if drawing.generation != pruning.generation:
            raise WidgetValueError("the model was cut or restored meanwhile: its channel groups changed. Select again")
        seen = draft.revision
        # what it has drawn itself a page need not have seen confirmed
        is_next = drawing.by == self._by and self._until == seen and drawing.base >= self._since
        if (is_next or drawing.base == seen) and draft.set_bits(drawing.bits, seen):
            self._since = self._since if is_next else seen
            self._by, self._until = drawing.by, seen + 1
            editor._show_draft(drawing.by, seen + 1)
        else:
            editor.send_state("draft")

    def choose_path(self, path: object) -> None:
        """Set the path that a page has chosen for saving."""
        if path != self._editor.path:
            self.path = self._editor._plans.checked_name(path)

    def on_message(self, _widget: object, content: object, buffers: object) -> None:
        """Run the action of a message; actions that use the model wait until no cell runs."""
        content = content if isinstance(content, dict) else {}
        action = content.get("type")
        if action == "cancel" and self._editor.comm is not None:
            self._editor._cancel()  # at once: what is cancelled may wait for a cell
        if not isinstance(action, str) or action not in self._actions:
            return
        if is_main_thread():
            self._do(action, content)
        else:
            if self._editor.comm is not None:
                self._editor.send({"type": "accepted", "action": action})  # its end may be far
            when_idle(lambda: self._do(action, content))

    def _do(self, action: str, content: Message) -> None:
        editor = self._editor
        if editor.comm is None:
            return
        try:
            with editor._show_work(TITLES.get(action, action.capitalize())):
                done: str | None = self._actions[action](content)
        except ModuleKGError as error:
            editor.send({"type": "failed", "action": action, "text": text(str(error))})
        except KeyboardInterrupt:
            editor.send({"type": "failed", "action": action, "text": INTERRUPTED.capitalize()})
        except Exception as error:
            editor.send({"type": "failed", "action": action, "text": text(error_text(error))})
            raise
        else:
            if done is not None:
                editor.send({"type": "done", "action": action, "text": text(done)})

    def _check(self, content: Message) -> str:
        with contextlib.suppress(CutError):  # the report has it
            self._editor._check()
        return ""  # the report says it all, and may be the same as before

    def _mask(self, content: Message) -> str:
        self._editor.mask()
        return _mask_summary(self._editor)

    def _cut(self, content: Message) -> str:
        self._editor.cut()
        return _cut_summary(self._editor)

    def _undo(self, content: Message) -> str:
        last = self._editor._pruning.last_operation
        self._editor.undo()
        sizes = f": parameters {last.plan.params[1]:,} → {last.plan.params[0]:,}" if last and last.stage == CUT else ""
        return f"{'Mask' if last and last.stage == MASKED else 'Cut'} undone{sizes}"

    def _evaluate(self, content: Message) -> str:
        self._editor._evaluated()
        return ""  # it stands beside the button

    def _recalibrate(self, content: Message) -> str:
        self._editor.recalibrate()
        return "Recalibrated: running statistics recomputed from the batches"

    def _sense(self, content: Message) -> None:
        self._sensitivity_run.start()  # says itself when it has come to an end

    def _measure(self, content: Message) -> None:
        self._measured_loss.measure_curve(content.get("key"), content.get("points"))  # it says itself what it finds

    def _save(self, content: Message) -> str:
        path = self._editor._plans.checked_name(content.get("path"))
        self._editor._plans.save(self._editor._required_plan(), path)
        self._name(path)
        return f"Saved as {self._editor.path}"

    def _load(self, content: Message) -> str:
        path = self._editor._plans.checked_name(content.get("path"))
        self._editor.plan = self._editor._plans.load(path)
        self._name(path)
        return f"Loaded {self._editor.path}"

    def _name(self, path: str) -> None:
        self.choose_path(path)
        self._editor.path = path


@saved_answers.register("MaskEditor")
def _saved_answers(editor: Editor) -> Iterator[SavedAnswer]:
    """Saved answers: a saved page has no dry run and keeps its report."""
    yield SavedAnswer({"type": "check"}, {"type": "done", "action": "check", "text": ""})


def _cut_summary(editor: Editor) -> str:
    """Text on the sizes, and on what was removed."""
    last = editor._pruning.last_operation
    if last is None:
        return ""
    plan = last.plan
    (params, fewer), (flops, less) = plan.params, plan.flops
    groups = pluralize(len(plan.axes), "group", "groups")
    removed = [f"{_channels(plan)} in {groups}"] if plan.axes else []
    removed += [pluralize(len(plan.blocks), "block", "blocks")] if plan.blocks else []
    sizes = f"parameters {params:,} → {fewer:,}, FLOPs {flops:,} → {less:,}"
    return f"Cut: {sizes}; {' and '.join(removed)} removed"


def _channels(plan: PruningPlan) -> str:
    return pluralize(sum(len(axis.dropped) for axis in plan.axes), "channel", "channels")


def _mask_summary(editor: Editor) -> str:
    """Text on the count of zeroed channels."""
    last = editor._pruning.last_operation
    if last is None:
        return ""
    left = f"a cut would leave {last.plan.params[1]:,} parameters"
    return f"Masked: {_channels(last.plan)} set to zero; sizes unchanged ({left})"


def _parse_draft(value: object, draft: Draft) -> DraftMessage:
    """Parses a draft from a page; raises `WidgetValueError` for an invalid one."""
    fields = value if isinstance(value, dict) else {}
    by, axes, bits = fields.get("by"), fields.get("axes"), fields.get("bits")
    if not (isinstance(by, str) and 0 < len(by) <= MAX_NAME):
        raise WidgetValueError("a drawing has the name of its page")
    if not (isinstance(axes, list) and isinstance(bits, bytes | bytearray | memoryview)):
        raise WidgetValueError("a drawing has a list of axes, and their bits")
    numbers = [_number(axis) for axis in axes]
    if any(number >= draft.entry_count for number in numbers) or len(set(numbers)) != len(numbers):
        raise WidgetValueError(f"a drawing names each axis once: there are {len(draft.axes)}")
    content, found, start = bytes(bits), {}, 0
    for number in numbers:
        stop = start + draft.byte_width(number)
        found[number] = content[start:stop]
        start = stop
    if start != len(content):
        raise WidgetValueError(f"the axes of a drawing have {start} bytes of bits: {len(content)} came")
    return DraftMessage(_number(fields.get("generation")), _number(fields.get("base")), by, found)


def _number(value: object) -> int:
    if type(value) is not int or value < 0:
        raise WidgetValueError("the generation, the base and the axes of a drawing are numbers from 0")
    return value


def checked_plan(plan: object) -> PruningPlan:
    """Returns `plan` if it is a PruningPlan; raises `WidgetValueError` otherwise."""
    if not isinstance(plan, PruningPlan):
        raise WidgetValueError(f"the plan is a PruningPlan or None: {a_type(plan)} was passed")
    return plan
