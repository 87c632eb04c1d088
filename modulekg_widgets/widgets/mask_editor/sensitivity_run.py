"""Sensitivities of a mask editor, computed between cells, and importances from the user's batches and loss.

`Editor` is the interface by which the parts of an editor reach it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from modulekg_widgets.engine.pruning.importance.activations import Activation
from modulekg_widgets.engine.pruning.importance.expert_usage import ExpertUsage
from modulekg_widgets.engine.pruning.importance.loss_criteria import Hessian, Taylor
from modulekg_widgets.engine.pruning.session import SENSITIVITY, PruningSession
from modulekg_widgets.engine.pruning.user_data import Evaluation, Progress
from modulekg_widgets.engine.views.mask_payload import offers_payload
from modulekg_widgets.engine.views.payload import text
from modulekg_widgets.widgets.shared.base import is_main_thread
from modulekg_widgets.widgets.shared.sliced_work import SlicedWork

if TYPE_CHECKING:
    from modulekg_widgets.engine.pruning.plan.saved.plan_file import PlanFolder
    from modulekg_widgets.engine.pruning.plan.saved.pruning_plan import PruningPlan

BATCH_IMPORTANCES = {"activation": Activation, "expert_usage": ExpertUsage}  # importances that run the model on batches
LOSS_IMPORTANCES = {"taylor": Taylor, "hessian": Hessian}  # and read a loss there


class Editor(Protocol):
    """Interface of a mask editor to its parts."""

    _plans: PlanFolder
    _pruning: PruningSession

    importance: Any  # this and the following are traits, which checkers take for their values and for themselves
    measured: Any
    path: Any
    scores: Any

    @property
    def comm(self) -> object: ...
    @property
    def plan(self) -> PruningPlan | None: ...
    @plan.setter
    def plan(self, plan: PruningPlan | None) -> None: ...
    def set_trait(self, name: str, value: object) -> None: ...
    def set_state(self, sync_data: dict[str, object]) -> None: ...
    def send(self, content: dict[str, object]) -> None: ...
    def send_state(self, key: str) -> None: ...
    def mask(self) -> None: ...
    def cut(self) -> None: ...
    def undo(self) -> None: ...
    def recalibrate(self) -> None: ...
    def _evaluated(self) -> Evaluation: ...
    def _cancel(self) -> None: ...
    def _check(self) -> PruningPlan | None: ...
    def _show_work(self, title: str) -> AbstractContextManager[None]: ...
    def _required_plan(self) -> PruningPlan: ...
    def _show_draft(self, by: str = "", revision: int = -1) -> None: ...
    def _show_increases(self) -> None: ...
    def _show_scores(self) -> None: ...


class SensitivityRun:
    """Computes the sensitivities of an editor between cells; an editor has one, which runs again after changes."""

    def __init__(self, editor: Editor) -> None:
        self._editor = editor
        self._work: SlicedWork[Progress] | None = None
        self._reports_end = True
        self.is_choice_pending = False  # the importance is to be the sensitivity as soon as it is known

    @property
    def is_running(self) -> bool:
        return self._work is not None

    def is_deferred(self, importance: str) -> bool:
        """True if an importance is set later: it runs the model, or is not computed yet."""
        # a choice that comes in another thread comes beside a running cell
        is_later = not is_main_thread() or self._editor._pruning.needs_sensitivity_run(importance)
        if not is_later:
            self.is_choice_pending = False  # the last choice counts
        return is_later

    def choose(self, importance: str) -> None:
        """Set a deferred importance, once the sensitivities that it needs are known."""
        if self._editor.comm is None:
            return
        if self._editor._pruning.needs_sensitivity_run(importance):
            self.start(is_choice_pending=True)
        else:
            self._editor.set_state({"importance": importance})

    def start(self, is_choice_pending: bool = False, reports_end: bool = True) -> None:
        """Compute the sensitivities between cells, or continue a running computation.

        `reports_end`: the page says when it has come to its end; after a cut it goes on saying what that has come to.
        """
        self.is_choice_pending, self._reports_end = self.is_choice_pending or is_choice_pending, reports_end
        if self._work is None:
            work: SlicedWork[Progress] = SlicedWork(
                self._editor._pruning.compute_sensitivity(),
                lambda step: self._progress(work, step),
                lambda why: self._finish(work, why),
            )
            self._work = work
            self._editor.set_trait("sensing", {"done": 0, "total": None})
            work.start()

    def cancel(self) -> None:
        """Stop the computation; from any thread, also beside a running cell."""
        if self._work is not None:
            self._work.cancel()
            self._editor.set_trait("sensing", {})

    def abort(self, why: str) -> None:
        """Stop the computation and leave an importance that is not available any more."""
        work, self._work, self.is_choice_pending = self._work, None, False
        if work is None:
            return
        work.cancel()
        editor, pruning = self._editor, self._editor._pruning
        editor.set_trait("sensing", {})
        if pruning.needs_sensitivity_run(editor.importance):
            known = next(name for name in pruning.importances if not pruning.needs_sensitivity_run(name))
            editor.set_trait("importance", known)
        editor.send_state("importance")  # a page may have chosen what does not come
        editor.send({"type": "failed", "action": "sense", "text": text(f"Sensitivity: {why}")})

    def _progress(self, work: SlicedWork[Progress], step: Progress) -> None:
        if work is self._work:
            self._editor.set_trait("sensing", {"done": step[0], "total": step[1]})

    def _finish(self, work: SlicedWork[Progress], why: str) -> None:
        """Handle the end of the computation; `why` is the reason of a failure."""
        editor = self._editor
        if work is not self._work or editor.comm is None:
            return
        if why:
            self.abort(why)
            return
        is_awaited, self._work, self.is_choice_pending = self.is_choice_pending, None, False
        editor.set_trait("sensing", {})
        editor._show_increases()
        if is_awaited and editor.importance == SENSITIVITY:
            editor._show_scores()
        elif is_awaited:
            editor.set_state({"importance": SENSITIVITY})
        if self._reports_end:
            editor.send({"type": "done", "action": "sense", "text": "Sensitivity: computed"})


def add_data_importances(pruning: PruningSession) -> PruningSession:
    """Returns the session with the importances that read the user's batches and loss."""
    batches, loss = pruning.data.batches, pruning.data.loss
    if batches is not None:
        pruning.importances |= {name: criterion(batches) for name, criterion in BATCH_IMPORTANCES.items()}
    if batches is not None and loss is not None:
        pruning.importances |= {name: criterion(batches, loss) for name, criterion in LOSS_IMPORTANCES.items()}
    return pruning


def data_offers(pruning: PruningSession) -> dict[str, object]:
    """Returns the features of the page that the user's data enable."""
    offers, draft = offers_payload(pruning), pruning.draft
    sources = {name: pruning.importances.get(name) for name in (*BATCH_IMPORTANCES, *LOSS_IMPORTANCES)}
    return {
        **offers,
        "recalibrate": offers["recalibrate"] and draft.has_statistics,
        "statistics": draft.has_statistics,
        "on_batches": [name for name, own in sources.items() if not isinstance(own, str)],
        "inputs": ["×".join(map(str, shape)) for shape in draft.input_shapes],
    }
