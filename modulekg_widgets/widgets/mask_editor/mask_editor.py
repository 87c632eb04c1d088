"""MaskEditor: interactive pruning of the axes and residual blocks of a model.

For choosing by hand what a plan removes. Indices are brushed out on the page or set by `editor.plan`; the page computes
sizes and FLOPs from a formula in the payload, and a dry run in the kernel corrects and reports the plan. `mask` zeroes
channels, `cut` removes them from the model and the optimizer, `undo` restores the model byte for byte, `save` and
`load` use plan files. With batches, a loss or an evaluation function it also shows sensitivities, the loss of the
draft, and scores before and after.

The model changes by `mask`, `cut` and `undo` alone. State of the page travels as traits (`messages.py`), and all work
that runs the model waits until no cell runs.

    editor = mk.MaskEditor(model, x, optimizer=optimizer)
    editor.plan = mk.plan(editor.graph, ratio=0.3)
    editor.cut()
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipywidgets import widget_serialization
from traitlets import Bool, Bunch, Bytes, Dict, Int, List, TraitError, Unicode, observe, validate

from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.errors import (
    CutError,
    ModuleKGError,
    UnknownNameError,
    UnknownPathError,
    closest_match_hint,
    printable,
)
from modulekg_widgets.engine.pruning.draft import Draft
from modulekg_widgets.engine.pruning.plan.saved.plan_file import PlanFolder, load_plan
from modulekg_widgets.engine.pruning.plan.saved.pruning_plan import PruningPlan
from modulekg_widgets.engine.pruning.session import CUT, PruningSession
from modulekg_widgets.engine.pruning.user_data import Evaluation, UserData
from modulekg_widgets.engine.torch_runtime.isolation.progress import long_work, without_cancellation
from modulekg_widgets.engine.views.mask_payload import (
    draft_payload,
    failed_report,
    mask_payload,
    report_payload,
    trial_payload,
)
from modulekg_widgets.engine.views.payload import number, text
from modulekg_widgets.engine.views.pictures.masks import draw_masks
from modulekg_widgets.engine.views.pictures.shapes import Picture
from modulekg_widgets.engine.views.schema import Payload
from modulekg_widgets.widgets.mask_editor.measured_loss import MeasuredLoss
from modulekg_widgets.widgets.mask_editor.messages import MaskMessages, checked_plan
from modulekg_widgets.widgets.mask_editor.sensitivity_run import SensitivityRun, add_data_importances, data_offers
from modulekg_widgets.widgets.shared.base import check_keywords, when_idle
from modulekg_widgets.widgets.shared.model_widget import ModelWidget
from modulekg_widgets.widgets.shared.progress import display_progress

if TYPE_CHECKING:
    import pandas as pd

    from modulekg_widgets.engine.pruning.cut.optimizer_state import Optimizers
    from modulekg_widgets.engine.torch_runtime.modules import Model

SCOPES = ("local", "global")
KEYWORDS = (
    "args", "kwargs", "optimizer", "plan", "importance", "scope", "locked", "axis", "selected", "path", "folder",
    "batches", "loss", "evaluate",
)  # fmt: skip


class MaskEditor(ModelWidget):
    """Editor for the removal of axis indices and blocks: brush, see the savings, mask or cut.

    Residual blocks that can go as a whole have rows of their own. The model changes by `mask`, `cut` and `undo` alone.

    Parameters
    ----------
    model : torch.nn.Module
        What is pruned.
    args, kwargs : optional
        What its forward takes.
    optimizer : torch.optim.Optimizer, optional
        Its state is cut along.
    plan : PruningPlan, optional
        What the editor starts with.
    importance : str or callable
        What the indices are shaded and chosen by: a registered name, a criterion or a function of a group.
    scope, locked, axis, selected, path : optional
        What the attributes of these names start with.
    folder : str or Path, optional
        The page writes and reads plans below it alone, by names that end in .json. Without it that is the folder of an
        absolute `path`, or else the working folder.
    batches : iterable, optional
        A list or a DataLoader of what the model takes, or of pairs of that and a target. A cut can renew the running
        statistics from them. Few serve best: `sensitivity` takes about half of a forward pass an index and batch.
        The first four tell how important blocks are; "activation" and "expert_usage" are of all.
    loss : callable, optional
        `loss(output, target)` or `loss(output)`, a mean. With it "sensitivity" is one of the importances; once that
        is known, the page measures what goes on the batches, and "taylor" and "hessian" are taken from them anyway.
    evaluate : callable, optional
        `evaluate(model)` gives a number, or a dict of numbers, with the model in eval mode and no gradients: before and
        after each cut, and when the page asks for it. Its errors are shown as text.
    layout : ipywidgets.Layout or dict, optional
        Size and margins in the page.
    **unknown
        Refused: a keyword that there is not.

    Attributes
    ----------
    plan : PruningPlan or None
        What goes, corrected by a dry run; None where nothing goes. This and the following can be set at any time, here
        and in the browser.
    importance : str
        The name of an importance; `rank_by` takes one that has no registered name.
    scope : str
        What a ratio ranks: each axis ("local") or all together ("global").
    locked : list of str
        The axes that gestures leave alone.
    axis : str or None
        A name from `graph.axes`.
    selected : str or None
        The dotted path of a module.
    path : str
        The file that the page offers.
    recalibrating : bool
        Whether a cut renews the running statistics from the batches; from the start where there are both.
    sensitivity : DataFrame or None
        What `mk.pruning.sensitivity` gives, once it has been computed for the model as it is.

    Raises
    ------
    TraceError
        Where the forward pass fails.
    CutError
        For a plan of another model, an importance that cannot rank, and batches, losses and functions that are none.
    UnknownKeywordError, UnknownAxisError, UnknownNameError, UnknownPathError
        For a name that there is not; the message has the nearest one.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> editor = mk.MaskEditor(model, torch.zeros(1, 4))
    >>> editor.plan = mk.plan(editor.graph, per_axis={"0.out": [1, 5]})
    >>> editor
    <MaskEditor of Sequential: 1 axis loses indices, parameters 58 → 44>
    >>> editor.cut()
    >>> model[0]
    Linear(in_features=4, out_features=6, bias=True)
    >>> editor.undo()
    >>> model[0]
    Linear(in_features=4, out_features=8, bias=True)
    """

    kernel_traits = frozenset({
        "payload", "draft", "scores", "report", "stage", "operations", "uncut", "graphs",
        "increases", "comparable", "offers", "sensing", "trial", "measured",
    })  # fmt: skip
    _model_name = Unicode("MaskEditorModel").tag(sync=True)
    _view_name = Unicode("MaskEditorView").tag(sync=True)

    payload = Dict().tag(sync=True)
    draft = Dict().tag(sync=True)  # what goes; the page sets it too, see messages.py
    dropped = Bytes()  # the same, all bits
    revision = Int(0)  # of the draft
    report = Dict().tag(sync=True)
    stage = Unicode("").tag(sync=True)
    operations = Int(0).tag(sync=True)
    uncut = Dict().tag(sync=True)  # parameters of each module before the first cut: linked graphs are colored by them
    importance = Unicode("l2").tag(sync=True, to_json=lambda v, w: text(v))
    scores = Bytes().tag(sync=True)
    comparable = Bool(False).tag(sync=True)  # whether scores of different axes have one unit
    increases = Bytes().tag(sync=True)  # of the loss, without each index: float64 of all axes in turn; or nothing
    sensing = Dict().tag(sync=True)  # how far the computation of `increases` has come, while it goes on
    measured = Dict().tag(sync=True)  # the loss of drafts, see measured_loss.py
    offers = Dict().tag(sync=True)
    trial = Dict().tag(sync=True)
    recalibrating = Bool(False).tag(sync=True)
    scope = Unicode("local").tag(sync=True)
    locked = List(Unicode()).tag(sync=True, to_json=lambda v, w: [text(name) for name in v])
    axis = Unicode(None, allow_none=True).tag(sync=True, to_json=lambda v, w: None if v is None else text(v))
    selected = Unicode(None, allow_none=True).tag(sync=True, to_json=lambda v, w: None if v is None else text(v))
    path = Unicode("plan.modulekg.json").tag(sync=True, to_json=lambda v, w: text(v))
    graphs = List().tag(sync=True, **widget_serialization)

    def __init__(
        self,
        model: Model,
        args: object = (),
        kwargs: Mapping[str, object] | None = None,
        *,
        optimizer: Optimizers | None = None,
        plan: PruningPlan | None = None,
        importance: Any = "l2",
        scope: str = "local",
        locked: Sequence[str] = (),
        axis: str | None = None,
        selected: str | None = None,
        path: str | Path = "plan.modulekg.json",
        folder: str | Path | None = None,
        batches: Iterable[object] | None = None,
        loss: Callable[..., object] | None = None,
        evaluate: Callable[..., object] | None = None,
        layout: object = None,
        **unknown: object,
    ) -> None:
        check_keywords("MaskEditor", unknown, KEYWORDS)
        self._sensitivity_run = SensitivityRun(self)
        self._measured_loss = MeasuredLoss(self, self._sensitivity_run)
        self._messages = MaskMessages(self, self._sensitivity_run, self._measured_loss)
        with display_progress(f"MaskEditor of {printable(type(model).__name__)}"):
            self._pruning = add_data_importances(
                PruningSession(model, args, kwargs, optimizer, UserData(batches, loss, evaluate))
            )
        self._plans = PlanFolder(Path(path).parent if folder is None and Path(path).is_absolute() else folder)
        self._showing = threading.RLock()
        if plan is not None:
            self._draft.adopt_plan(checked_plan(plan))
        name, offers = self._pruning.add_importance(importance), data_offers(self._pruning)
        super().__init__(
            payload=mask_payload(self._pruning),
            **self._draft_traits(),
            offers=offers,
            trial=trial_payload(self._pruning),
            recalibrating=offers["recalibrate"],
            importance=name,
            scope=scope,
            locked=[locked] if isinstance(locked, str) else list(locked),
            axis=axis,
            selected=selected,
            path=str(path),
            **({} if layout is None else {"layout": layout}),
        )
        if plan is not None:
            self._check()
        self.on_msg(self._messages.on_message)
        self._watch(model)

    def __repr__(self) -> str:
        pruning = vars(self).get("_pruning")
        if pruning is None:
            return "<MaskEditor, closed>"
        return f"<MaskEditor of {printable(pruning.title)}: {pruning.draft.summary}{self.stage and f', {self.stage}'}>"

    # ------------------------------------------------------------ the plan

    @property
    def plan(self) -> PruningPlan | None:
        """The draft as a plan, corrected by a dry run; None if empty. Raises `CutError` if no plan runs."""
        return self._check()

    @plan.setter
    def plan(self, plan: PruningPlan | None) -> None:
        self._draft.adopt_plan(None if plan is None else checked_plan(plan))
        self._show_draft()
        self._check()

    @property
    def graph(self) -> DataflowGraph:
        """The traced model in its present form; a cut makes a new one."""
        return self._draft.graph

    @property
    def _draft(self) -> Draft:
        return self._pruning.draft

    def mask(self) -> None:
        """Zero the dropped channels in the model; an earlier mask is undone first. Blocks are refused."""
        plan = self._required_plan()
        self._sensitivity_run.abort("stopped, the model was masked")
        self._pruning.mask(plan)
        self._show_stage()

    def cut(self) -> None:
        """Cut the model and the optimizer's state, and go on with the smaller model.

        Where there is a function that evaluates, the page shows what it finds before, after, and recalibrated.
        """
        plan = self._required_plan()
        self._sensitivity_run.abort("stopped, the model was cut")
        try:
            self._pruning.cut(plan, self.recalibrating)
        finally:
            self._show_trial()
        with without_cancellation():
            self._show_stage()
            self._retrace()

    def undo(self) -> None:
        """Restore the model byte for byte to the state before the last `mask` or `cut`, and its plan.

        Raises `CutError` where there was none, or when the model is not as that left it.
        """
        self._sensitivity_run.abort("stopped, the model was changed")
        with without_cancellation():
            undone = self._pruning.undo()
            self._show_stage()
            if undone.stage == CUT:
                self._retrace(undone.plan)

    def save(self, path: str | Path | None = None) -> None:
        """Write the plan as JSON, for `mk.load_plan`.

        Parameters
        ----------
        path : str or Path, optional
            The file, by default what the attribute `path` says.

        Raises
        ------
        CutError
            Where nothing goes, and when no plan runs.
        PlanFileError
            Where the file cannot be written.
        """
        plan = self._required_plan()
        if path is None and self.path == self._messages.path:
            self._plans.save(plan, self.path)
        else:
            plan.save(self._plans.path(self.path) if path is None else path)

    def load(self, path: str | Path | None = None) -> None:
        """Load a plan that `save` or `plan.save` wrote.

        Parameters
        ----------
        path : str or Path, optional
            The file, by default what the attribute `path` says.

        Raises
        ------
        PlanFileError
            Where the file cannot be read as a plan.
        CutError, UnknownAxisError
            For the plan of another model.
        """
        if path is None and self.path == self._messages.path:
            self.plan = self._plans.load(self.path)
        else:
            self.plan = load_plan(self._plans.path(self.path) if path is None else path)

    # ---------------------------------------------- importances, sensitivities and evaluations

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
            self._accept_own_change()
        finally:
            self._show_trial()

    def _evaluated(self) -> Evaluation:
        found = self._pruning.evaluate()
        self._show_trial()
        return found

    def _cancel(self) -> None:
        """Stop what is computed between cells; from any thread, also beside a running cell."""
        self._sensitivity_run.cancel()
        self._measured_loss.cancel()

    def close(self) -> None:
        """Close the widget with its links, and release the model, its trace and the undo data."""
        if vars(self).pop("_pruning", None) is not None:  # else its constructor has failed, or it is closed
            self._cancel()
        super().close()

    def _required_plan(self) -> PruningPlan:
        plan = self._check()
        if plan is None:
            raise CutError("No channels selected. Select some in the page, or set editor.plan = mk.plan(…)")
        return plan

    def _check(self) -> PruningPlan | None:
        """Returns the plan of the draft after a dry run, and reports it to the page."""
        draft = self._draft
        try:
            with long_work("Dry run", self._pruning.model):
                report = draft.report()
        except CutError as error:
            self.report = failed_report(draft.revision, error)
            raise
        self.report = {} if report is None else report_payload(draft.revision, report, draft.axes)
        return None if report is None else report.plan

    # ----------------------------------------------------------- the state

    def _redraw(self, model: Model) -> None:
        """Trace a model that was changed elsewhere; the draft is kept if it still fits."""
        plan = None
        with suppress(ModuleKGError):
            plan = self._check()
        try:
            self._retrace(plan)
        except ModuleKGError:  # the draft is of axes that there are no longer
            self._retrace()

    def _retrace(self, plan: PruningPlan | None = None) -> None:
        """Trace the changed model, and show it here and in linked graphs."""
        pruning = self._pruning
        pruning.retrace(plan)
        with without_cancellation():
            self._show_retraced(plan)

    def _show_retraced(self, plan: PruningPlan | None) -> None:
        pruning = self._pruning
        self._watch(pruning.model)
        is_slow = pruning.needs_sensitivity_run(self.importance)
        scores = b"" if is_slow else pruning.scores(self.importance)
        known = {axis.name for axis in pruning.draft.axes}
        with self.hold_sync():
            self.locked = [name for name in self.locked if name in known]
            self.axis = self.axis if self.axis in known else None
            self.payload, self.scores, self.report = mask_payload(pruning), scores, {}
            self._show_increases()
            self._show_draft()
        if is_slow:
            self._sensitivity_run.start(is_choice_pending=True, reports_end=False)
        if plan is not None:
            self._check()
        for graph in self.graphs:
            graph.refresh(pruning.model, pruning.args, pruning.kwargs)

    def _draft_traits(self, by: str = "", revision: int = -1) -> dict[str, object]:
        """Returns the draft as traits; `by` is the page that has drawn `revision`."""
        drawn = draft_payload(self._draft)
        by = by if drawn["revision"] == revision else ""
        return {"draft": {**drawn, "by": by}, "dropped": self._draft.packed(), "revision": drawn["revision"]}

    def _show_draft(self, by: str = "", revision: int = -1) -> None:
        with self._showing:  # what another thread draws meanwhile is shown after this, and not before it
            traits = self._draft_traits(by, revision)
            for name, value in traits.items():
                if self.draft.get("revision", -1) <= traits["revision"]:  # an observer may have drawn and shown more
                    self.set_trait(name, value)

    def _show_stage(self) -> None:
        self.stage, self.operations = self._pruning.stage, self._pruning.operations
        self._accept_own_change()
        self._show_trial()
        self.uncut = {text(path): number(count) for path, count in self._pruning.original_sizes.items()}

    def _accept_own_change(self) -> None:
        """Take what the editor itself has done to the model as known, here and in linked graphs."""
        for widget in (self, *self.graphs):
            widget._accept_change(self._pruning.model)

    def _show_trial(self) -> None:
        self.trial = trial_payload(self._pruning)

    def _show_increases(self) -> None:
        found = self._pruning.sensitivity_result
        self.increases = b"" if found is None else found.increases

    @observe("importance")
    def _show_scores(self, change: Bunch | None = None) -> None:
        name, self._sensitivity_run.is_choice_pending = self.importance, False
        scores, is_comparable = self._pruning.scores(name), self._pruning.is_comparable(name)
        if is_comparable:
            self.increases = scores
        self.comparable, self.scores = is_comparable, scores

    @observe("increases", "draft", "stage")
    def _measure_later(self, change: Bunch) -> None:
        if not self.increases:
            self._measured_loss.clear()
        elif change["name"] == "increases" or self.measured:
            when_idle(self._measured_loss.measure)

    @observe("payload")
    def _measure_anew(self, change: Bunch) -> None:
        if isinstance(change["old"], dict) and change["old"].get("generation") != change["new"].get("generation"):
            self._measured_loss.clear()

    def set_state(self, sync_data: Payload) -> None:
        """Apply changes from a page; invalid ones are reverted and reported."""
        wanted = dict(sync_data)
        if "draft" in wanted:
            self._messages.draw(wanted.pop("draft"))
        if "importance" in wanted and self._sensitivity_run.is_deferred(wanted["importance"]):
            name = wanted.pop("importance")
            when_idle(lambda: self._sensitivity_run.choose(name))
        try:
            if "path" in wanted:
                self._messages.choose_path(wanted["path"])
            super().set_state(wanted)
        except (ModuleKGError, TraitError) as error:
            self.send_state([name for name in wanted if name in self.keys])
            self.send({"type": "failed", "action": "set", "text": text(str(error))})

    # -------------------------------------------------------------- checks

    @validate("importance")
    def _check_importance(self, proposal: Bunch) -> str:
        self._pruning.scores(proposal["value"])  # or it raises
        return proposal["value"]

    @validate("recalibrating")
    def _check_recalibrating(self, proposal: Bunch) -> bool:
        if proposal["value"] and self._pruning.data.batches is None:
            raise CutError("recalibration renews statistics from batches: MaskEditor(model, args, batches=…)")
        if proposal["value"] and not self._pruning.draft.has_statistics:
            raise CutError("the model keeps no running statistics: there is nothing that a recalibration could renew")
        return proposal["value"]

    @validate("scope")
    def _check_scope(self, proposal: Bunch) -> str:
        value = proposal["value"]
        if value not in SCOPES:
            raise UnknownNameError(f"there is no scope {printable(value)!r}: {closest_match_hint(value, SCOPES)}")
        return value

    @validate("axis")
    def _check_axis(self, proposal: Bunch) -> str | None:
        return None if proposal["value"] is None else self._known_axis(proposal["value"])

    @validate("locked")
    def _check_locked(self, proposal: Bunch) -> list[str]:
        return [self._known_axis(name) for name in dict.fromkeys(proposal["value"])]

    def _known_axis(self, name: str) -> str:
        draft = self._draft
        escaped = {text(axis.name): axis.name for axis in draft.axes}
        return draft.axes[draft.axis_number(escaped.get(name, name))].name

    @validate("selected")
    def _check_selected(self, proposal: Bunch) -> str | None:
        value = proposal["value"]
        if value is None:
            return None
        modules = self.graph.modules
        known = {text(path): path for path in modules}
        if text(value) not in known:
            raise UnknownPathError(f"there is no module {printable(value)!r}: {closest_match_hint(value, modules)}")
        return known[text(value)]

    def _static_picture(self) -> Picture:
        return draw_masks(self._draft, self._pruning.title)
