"""Interactive pruning session behind the mask editor.

A `PruningSession` holds one model and its draft, and applies `mask`, `cut` and `undo` to it.
It ranks indices by registered importances or by the measured sensitivity, and it runs the user's
evaluation before and after each operation. The model changes by `mask`, `cut`, `recalibrate`
and `undo` alone; every operation keeps the receipt that undoes it. It knows no widget: the mask
editor in `widgets/mask_editor` sends its messages here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import pandas as pd
from torch import nn
from tqdm.auto import tqdm

from modulekg_widgets.engine.axes.graph import trace
from modulekg_widgets.engine.errors import CutError, UnknownAxisError, UnknownNameError, closest_match_hint, printable
from modulekg_widgets.engine.identity.hierarchy import hierarchy
from modulekg_widgets.engine.identity.weight_fingerprint import weight_fingerprint
from modulekg_widgets.engine.pruning.blocks.block_scoring import BlockScores, editor_block_scores
from modulekg_widgets.engine.pruning.cut.optimizer_state import Optimizers
from modulekg_widgets.engine.pruning.cut.receipt import Receipt
from modulekg_widgets.engine.pruning.draft import Draft
from modulekg_widgets.engine.pruning.importance.importance import criteria
from modulekg_widgets.engine.pruning.plan.saved.pruning_plan import PruningPlan
from modulekg_widgets.engine.pruning.recover.recovery import recalibrate as renew_statistics
from modulekg_widgets.engine.pruning.recover.sandbox_runs import TracedCall
from modulekg_widgets.engine.pruning.user_data import RECALIBRATED, UNCUT, Evaluation, Evaluations, Progress, UserData

# -------------------- The parameter count of each module before a cut


class OriginalSizes:
    """The own parameters of each module, shared ones counted once."""

    def __init__(self, model: nn.Module) -> None:
        # by identity, as a class of the user's may compare modules its own way; held, so that no other gets the number
        self._counts: dict[int, int] = {}
        self._parents: dict[int, int] = {}
        self._modules: list[nn.Module] = []
        counted: set[int] = set()
        for _, module in model.named_modules():
            own = {id(each): each.numel() for each in module.parameters(recurse=False) if id(each) not in counted}
            counted.update(own)
            self._counts[id(module)] = sum(own.values())
            self._modules.append(module)
            for child in module.children():
                self._parents.setdefault(id(child), id(module))

    def by_path(self, model: nn.Module) -> dict[str, int]:
        """The counts by present module path; those of removed modules count where they were."""
        paths = {id(module): path for path, module in model.named_modules()}
        counts: dict[str, int] = {}
        for number, count in self._counts.items():
            while number not in paths and number in self._parents:
                number = self._parents[number]
            if count and number in paths:
                counts[paths[number]] = counts.get(paths[number], 0) + count
        return counts


# ----------------------------------------


MASKED, CUT = "masked", "cut"
SENSITIVITY = "sensitivity"  # an importance that takes long
MAX_SENSITIVITY_RESULTS = 4  # tables that are kept: a cut that is undone has its own again


class Operation(NamedTuple):
    """One mask or cut that was applied to the model, with its plan and receipt."""

    stage: str
    receipt: Receipt
    plan: PruningPlan
    weights: str = ""  # a digest of them afterwards, where recalibration may follow
    recalibrated: bool = False
    evaluations: int = 0  # how many there were before


class SensitivityResult(NamedTuple):
    """The sensitivity of every index."""

    table: pd.DataFrame
    increases: bytes  # the same as float64 of all axes in turn, NaN where there is none


class PruningSession:
    """A model with its draft; the model changes by `mask`, `cut` and `undo` alone."""

    def __init__(
        self,
        model: nn.Module,
        args: object,
        kwargs: Mapping[str, object] | None,
        optimizer: Optimizers | None,
        data: UserData | None = None,
    ) -> None:
        self.model, self.args, self.kwargs = model, args, kwargs
        self.data = UserData() if data is None else data
        self.title = hierarchy(model).root.class_name
        self.draft = Draft(trace(model, args, kwargs))
        self.generation = 1  # how often the model has been traced: each time its axes may be others
        self.importances: dict[str, object] = {name: name for name in criteria}
        if self.data.has_sensitivity:
            self.importances[SENSITIVITY] = SENSITIVITY
        self._optimizer = optimizer
        self._operations: list[Operation] = []
        self._original_sizes: OriginalSizes | None = None
        self._scores: tuple[str, bytes] = ("", b"")  # of the importance of that name
        self._sensitivity_results: dict[str, SensitivityResult] = {}  # by a digest of the weights
        self._unmasked_digest = ""  # that digest of the model without its mask
        self._evaluations = Evaluations()

    # ----------------------------------------------------------- the model

    @property
    def operations(self) -> int:
        """The number of operations that can be undone."""
        return len(self._operations)

    @property
    def last_operation(self) -> Operation | None:
        """The operation that `undo` takes back."""
        return self._operations[-1] if self._operations else None

    @property
    def stage(self) -> str:
        """The state after the last operation: "masked", "cut", or "" if there was none."""
        return self.last_operation.stage if self.last_operation else ""

    @property
    def original_sizes(self) -> dict[str, int]:
        """The number of own parameters of each module before the first cut; empty if the model is uncut.

        Those of a block that has gone are with what it was in.
        """
        return {} if self._original_sizes is None else self._original_sizes.by_path(self.model)

    def mask(self, plan: PruningPlan) -> None:
        """Set the planned indices to zero; an earlier mask is restored first."""
        if self.stage != MASKED:
            self._unmasked_digest = self._digest() if self._sensitivity_results else ""
        before = self.last_operation if self.stage == MASKED else None
        if before is not None:
            before.receipt.restore()
            self._operations.pop()
        try:
            self._mask(plan)
        except BaseException:
            if before is not None:
                self._mask(before.plan)
            raise

    def cut(self, plan: PruningPlan, recalibrate: bool = False) -> None:
        """Cut the model, and the optimizer's state along; with `recalibrate` its statistics are those of the batches.

        Where there is a function that evaluates, it says what the model was worth before, after, and recalibrated.
        Raises `CutError` before anything has changed.
        """
        before = self._original_sizes or OriginalSizes(self.model)
        if self.data.evaluate is None:
            self._cut(plan, recalibrate)
        else:
            if not self._evaluations.has_values_of(self._digest()):
                self.evaluate()
            self._cut(plan, False)
            try:
                self.evaluate()
                if recalibrate:
                    self.recalibrate()
            except BaseException:  # batches that do not fit, or an interrupt of what may take long
                self.undo()
                raise
        self._original_sizes = before

    def recalibrate(self) -> None:
        """Renew the statistics of the model that was cut last; to undo the cut takes this back too.

        Raises `CutError` where no cut was last, and when the weights are not as it left them.
        """
        last = self.last_operation
        if last is None or last.stage != CUT:
            raise CutError("recalibration follows a cut, and none was last: cut first")
        batches = self._batches
        if self._digest() != last.weights:
            raise CutError(
                "the weights have changed since the cut, for example by training; a recalibration would undo that"
            )
        graph = self.draft.graph
        # the receipt of the cut takes back what was written since, too
        renew_statistics(self.model, last.plan.traced or TracedCall.of(graph.call, graph.training), batches)
        self._operations[-1] = last._replace(recalibrated=True, weights=self._digest())
        if self.data.evaluate is not None:
            self.evaluate()

    def _cut(self, plan: PruningPlan, recalibrate: bool) -> None:
        receipt = plan.cut(self.model, self._optimizer, recalibrate=self._batches if recalibrate else None)
        weights = "" if self.data.batches is None else self._digest()
        count = len(self._evaluations.entries)
        self._operations.append(Operation(CUT, receipt, plan, weights, recalibrate, count))

    @property
    def _batches(self) -> Iterable[object]:
        if self.data.batches is None:
            raise CutError("recalibration renews statistics from batches: pass batches=, a list or a DataLoader")
        return self.data.batches

    def undo(self) -> Operation:
        """Make the model byte for byte as before the last operation, which is returned.

        Raises `CutError` where there was none, or when the model is not as that left it.
        """
        if self.last_operation is None:
            raise CutError("there is nothing to undo: neither mask() nor cut() has changed the model")
        self.last_operation.receipt.undo()
        undone = self._operations.pop()
        self._evaluations.truncate(undone.evaluations)
        if not any(operation.stage == CUT for operation in self._operations):
            self._original_sizes = None
        return undone

    def retrace(self, plan: PruningPlan | None) -> None:
        """Trace the changed model again, and start a draft from `plan`."""
        draft = Draft(trace(self.model, self.args, self.kwargs), self.draft.revision)
        draft.adopt_plan(plan)
        self.draft, self._scores = draft, ("", b"")
        self.generation += 1

    def _mask(self, plan: PruningPlan) -> None:
        count = len(self._evaluations.entries)
        self._operations.append(Operation(MASKED, plan.mask(self.model), plan, evaluations=count))

    # ---------------------------------------------------------- evaluation

    @property
    def evaluations(self) -> list[Evaluation]:
        """The results of the user's evaluation function, from the original to the present model."""
        return self._evaluations.entries

    @property
    def is_recalibrated(self) -> bool:
        """True if the last operation is a cut whose statistics were recalibrated."""
        return self.last_operation is not None and self.last_operation.recalibrated

    def evaluate(self) -> Evaluation:
        """Run the user's evaluation function on the present model; an error is recorded in the result."""
        values, error = self.data.run_evaluation(self.model)
        state = RECALIBRATED if self.is_recalibrated else self.stage or UNCUT
        self._evaluations.add(state, self._digest(), values, error)
        return self.evaluations[-1]

    def _digest(self) -> str:
        return weight_fingerprint(self.model).hexdigest

    # --------------------------------------------------------- sensitivity

    @property
    def sensitivity_result(self) -> SensitivityResult | None:
        """The sensitivity of the present model, masks ignored; None if it is not computed yet."""
        return self._sensitivity_results.get(self._sensitivity_key()) if self._sensitivity_results else None

    def needs_sensitivity_run(self, name: object) -> bool:
        """True if an importance needs a sensitivity run before it can rank."""
        return isinstance(name, str) and self.is_comparable(name) and self.sensitivity_result is None

    def compute_sensitivity(self) -> Iterator[Progress]:
        """Compute the sensitivity step by step; `sensitivity_result` has it at the end."""
        draft, weights = self.draft, self._sensitivity_key()
        table = yield from self.data.sensitivity(draft.graph)
        if draft is not self.draft or weights != self._sensitivity_key():
            raise CutError("the model has changed while its sensitivity was computed: compute it again")
        self._sensitivity_results[weights] = SensitivityResult(table, _packed_increases(table, draft))
        while len(self._sensitivity_results) > MAX_SENSITIVITY_RESULTS:
            del self._sensitivity_results[next(iter(self._sensitivity_results))]

    def _sensitivity_key(self) -> str:
        return (self.stage == MASKED and self._unmasked_digest) or self._digest()

    def _sensitivity_now(self) -> SensitivityResult:
        """The sensitivity, computed at once."""
        result = self.sensitivity_result
        if result is None:
            with tqdm(desc=SENSITIVITY, unit="index", delay=2, leave=False) as bar:
                for done, bar.total in self.compute_sensitivity():
                    bar.update(done - bar.n)
            result = self._sensitivity_results[self._sensitivity_key()]
        return result

    # ---------------------------------------------------------- importance

    def add_importance(self, importance: object) -> str:
        """Add an importance to `importances` and return its name."""
        if isinstance(importance, str):
            return importance
        name = getattr(importance, "__name__", type(importance).__name__)
        self.importances[name] = importance
        return name

    def select_importance(self, importance: object) -> str:
        """Add an importance that can rank the indices and return its name; raises `CutError` if it cannot."""
        known = dict(self.importances)
        name = self.add_importance(importance)
        self._scores = ("", b"")  # another may have had this name
        try:
            self.scores(name)
        except BaseException:
            self.importances = known
            raise
        return name

    def scores(self, name: str) -> bytes:
        """The packed scores of all indices; raises `UnknownNameError`, or `CutError` if it cannot rank."""
        if self.is_comparable(name):
            return self._sensitivity_now().increases
        if self._scores[0] != name:
            if name not in self.importances:
                if name == SENSITIVITY:
                    raise CutError("sensitivity is of a loss on batches: pass batches= and loss= to the editor")
                raise UnknownNameError(
                    f"there is no importance {printable(name)!r}: {closest_match_hint(name, self.importances)}"
                )
            self._scores = (name, self.draft.scores(self.importances[name]))
        return self._scores[1]

    def block_scores(self) -> BlockScores:
        """The score of each removable block, and the importance it comes from."""
        return editor_block_scores(self.draft.graph, self.draft.blocks.blocks, self.data.batches)

    def is_comparable(self, name: str) -> bool:
        """True if the scores of an importance have one unit on all axes."""
        own = self.importances.get(name)
        return isinstance(own, str) and own == SENSITIVITY and self.data.has_sensitivity


def _packed_increases(table: pd.DataFrame, draft: Draft) -> bytes:
    """The increases of a table for all axes of a draft in order: float64, NaN where there is none."""
    increases = [np.full(axis.size, np.nan) for axis in draft.axes]
    for name, part in table.groupby("axis", sort=False)["increase"]:
        with suppress(UnknownAxisError):  # of a pass that is not all of the draft's
            number = draft.axis_number(str(name))
            if len(part) == len(increases[number]) and draft.axes[number].frozen is None:
                increases[number] = part.to_numpy(dtype=np.float64)
    return b"".join(part.astype("<f8").tobytes() for part in increases)
