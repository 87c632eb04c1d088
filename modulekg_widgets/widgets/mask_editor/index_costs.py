"""Costs of indices in a mask editor: importances and sensitivities from the user's batches and loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from traitlets import Bool, Bytes, Dict, Unicode, observe, validate

from modulekg_widgets.engine.errors import CutError
from modulekg_widgets.engine.pruning.importance.activations import Activation
from modulekg_widgets.engine.pruning.importance.expert_usage import ExpertUsage
from modulekg_widgets.engine.pruning.importance.loss_criteria import Hessian, Taylor
from modulekg_widgets.engine.pruning.session import SENSITIVITY, PruningSession
from modulekg_widgets.engine.pruning.user_data import Evaluation, Progress
from modulekg_widgets.engine.views.mask_payload import offers_payload, trial_payload
from modulekg_widgets.engine.views.payload import text
from modulekg_widgets.widgets.shared.base import is_main_thread
from modulekg_widgets.widgets.shared.model_widget import ModelWidget
from modulekg_widgets.widgets.shared.sliced_work import SlicedWork

if TYPE_CHECKING:
    import pandas as pd

KERNEL_TRAITS = frozenset({"increases", "comparable", "offers", "sensing", "trial", "measured"})
BATCH_IMPORTANCES = {"activation": Activation, "expert_usage": ExpertUsage}  # importances that run the model on batches
LOSS_IMPORTANCES = {"taylor": Taylor, "hessian": Hessian}  # and read a loss there


class EditorCosts(ModelWidget):
    """Part of a mask editor that uses batches, a loss and an evaluation function."""

    increases = Bytes().tag(sync=True)  # of the loss, without each index: float64 of all axes in turn; or nothing
    comparable = Bool(False).tag(sync=True)  # whether scores of different axes have one unit
    offers = Dict().tag(sync=True)
    sensing = Dict().tag(sync=True)  # how far the computation of `increases` has come, while it goes on
    trial = Dict().tag(sync=True)
    recalibrating = Bool(False).tag(sync=True)
    importance = Unicode("l2").tag(sync=True, to_json=lambda v, w: text(v))
    scores = Bytes().tag(sync=True)

    payload: Any
    _pruning: PruningSession
    _work: SlicedWork[Progress] | None = None
    _reports_end = True
    _is_choice_pending = False  # the importance is to be the sensitivity as soon as it is known

    @property
    def sensitivity(self) -> pd.DataFrame | None:
        """The loss increase without each index: `axis`, `index`, `increase`; None until computed.

        It is computed where "sensitivity" is chosen as the importance, in the page or by `editor.importance`, and
        known for the model as it is: training and cuts make it unknown, until they are undone.
        """
        found = self._pruning.sensitivity_result
        return None if found is None else found.table.copy()

    def rank_by(self, importance: Any) -> None:
        """Shade and rank indices by another importance, which is added to those on the page.

        Parameters
        ----------
        importance : str or callable
            A registered name, a criterion, or a function of a group.

        Raises
        ------
        CutError
            Where it cannot rank the indices of this model.
        UnknownNameError
            For a name that is not registered.
        """
        name = self._pruning.select_importance(importance)
        self.payload = {**self.payload, "importances": [text(each) for each in self._pruning.importances]}
        self.importance, self.scores = name, self._pruning.scores(name)

    def evaluate(self) -> dict[str, float]:
        """Run the evaluation function on the present model, and show the result on the page.

        The model is in eval mode for that, and gradients are off.

        Returns
        -------
        dict
            Numbers by name.

        Raises
        ------
        CutError
            Where no function was passed, and where it fails.
        """
        found = self._evaluated()
        if found.error:
            raise CutError(found.error)
        return dict(found.values)

    def recalibrate(self) -> None:
        """Recompute the running statistics of the model after a cut from the batches; `undo` reverts both.

        Raises
        ------
        CutError
            Where no cut was last or the model was trained since, without batches, and for batches that do not fit.
        """
        try:
            self._pruning.recalibrate()
        finally:
            self._show_trial()

    def _cost_state(self) -> dict[str, Any]:
        """Returns the initial values of these traits."""
        pruning = self._pruning
        offers = self._offers()
        return {"offers": offers, "trial": trial_payload(pruning), "recalibrating": offers["recalibrate"]}

    def _offers(self) -> dict[str, Any]:
        pruning = self._pruning
        offers, draft = offers_payload(pruning), pruning.draft
        sources = {name: pruning.importances.get(name) for name in (*BATCH_IMPORTANCES, *LOSS_IMPORTANCES)}
        return {
            **offers,
            "recalibrate": offers["recalibrate"] and draft.has_statistics,
            "statistics": draft.has_statistics,
            "on_batches": [name for name, own in sources.items() if not isinstance(own, str)],
            "inputs": ["×".join(map(str, shape)) for shape in draft.input_shapes],
        }

    def _evaluated(self) -> Evaluation:
        found = self._pruning.evaluate()
        self._show_trial()
        return found

    def _show_trial(self) -> None:
        self.trial = trial_payload(self._pruning)

    def _show_increases(self) -> None:
        found = self._pruning.sensitivity_result
        self.increases = b"" if found is None else found.increases

    @validate("recalibrating")
    def _check_recalibrating(self, proposal: Any) -> bool:
        if proposal["value"] and self._pruning.data.batches is None:
            raise CutError("recalibration renews statistics from batches: MaskEditor(model, args, batches=…)")
        if proposal["value"] and not self._pruning.draft.has_statistics:
            raise CutError("the model keeps no running statistics: there is nothing that a recalibration could renew")
        return proposal["value"]

    # ---------------------------------------------------------- importance

    @validate("importance")
    def _check_importance(self, proposal: Any) -> str:
        self._pruning.scores(proposal["value"])  # or it raises
        return proposal["value"]

    @observe("importance")
    def _show_scores(self, change: Any) -> None:
        name, self._is_choice_pending = self.importance, False
        scores, is_comparable = self._pruning.scores(name), self._pruning.is_comparable(name)
        if is_comparable:
            self.increases = scores
        self.comparable, self.scores = is_comparable, scores

    def _is_deferred(self, name: Any) -> bool:
        """True if an importance is set later: it runs the model, or is not computed yet."""
        is_later = not is_main_thread() or self._pruning.needs_sensitivity_run(
            name
        )  # not in the main thread: beside a cell
        if not is_later:
            self._is_choice_pending = False  # the last choice counts
        return is_later

    def _choose(self, name: Any) -> None:
        if self.comm is None:
            return
        if self._pruning.needs_sensitivity_run(name):
            self._sense(is_choice_pending=True)
        else:
            self.set_state({"importance": name})

    # --------------------------------------------------------- sensitivity

    def _sense(self, is_choice_pending: bool = False, reports_end: bool = True) -> None:
        """Compute the sensitivities between cells, or continue a running computation.

        `reports_end`: the page says when it has come to its end; after a cut it goes on saying what that has come to.
        """
        self._is_choice_pending, self._reports_end = self._is_choice_pending or is_choice_pending, reports_end
        if self._work is None:
            work: SlicedWork[Progress] = SlicedWork(
                self._pruning.compute_sensitivity(),
                lambda step: self._progress(work, step),
                lambda why: self._finish_sensitivity(work, why),
            )
            self._work, self.sensing = work, {"done": 0, "total": None}
            work.start()

    def _progress(self, work: SlicedWork[Progress], step: Progress) -> None:
        if work is self._work:
            self.sensing = {"done": step[0], "total": step[1]}

    def _finish_sensitivity(self, work: SlicedWork[Progress], why: str) -> None:
        """Handle the end of the computation; `why` is the reason of a failure."""
        if work is not self._work or self.comm is None:
            return
        if why:
            self._abort_sensitivity(why)
            return
        is_awaited, self._work, self._is_choice_pending = self._is_choice_pending, None, False
        self.sensing = {}
        self._show_increases()
        if is_awaited and self.importance == SENSITIVITY:
            self._show_scores(None)
        elif is_awaited:
            self.set_state({"importance": SENSITIVITY})
        if self._reports_end:
            self.send({"type": "done", "action": "sense", "text": "Sensitivity: computed"})

    def _cancel(self) -> None:
        """Stop the computation; from any thread, also beside a running cell."""
        if self._work is not None:
            self._work.cancel()
            self.sensing = {}

    def _abort_sensitivity(self, why: str) -> None:
        """Stop the computation and leave an importance that is not available any more."""
        work, self._work, self._is_choice_pending = self._work, None, False
        if work is None:
            return
        work.cancel()
        self.sensing = {}
        if self._pruning.needs_sensitivity_run(self.importance):
            self.importance = next(
                name for name in self._pruning.importances if not self._pruning.needs_sensitivity_run(name)
            )
        self.send_state("importance")  # a page may have chosen what does not come
        self.send({"type": "failed", "action": "sense", "text": text(f"Sensitivity: {why}")})


def add_data_importances(pruning: PruningSession) -> PruningSession:
    """Returns the session with the importances that read the user's batches and loss."""
    batches, loss = pruning.data.batches, pruning.data.loss
    if batches is not None:
        pruning.importances |= {name: criterion(batches) for name, criterion in BATCH_IMPORTANCES.items()}
    if batches is not None and loss is not None:
        pruning.importances |= {name: criterion(batches, loss) for name, criterion in LOSS_IMPORTANCES.items()}
    return pruning
