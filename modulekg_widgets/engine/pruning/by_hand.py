"""A model that is pruned by hand: its draft, the importances that rank its indices, and what was done to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from modulekg_widgets.engine.axes.graph import trace
from modulekg_widgets.engine.errors import CutError, UnknownNameError, nearest, shown
from modulekg_widgets.engine.identity.hierarchy import hierarchy
from modulekg_widgets.engine.pruning.importance.importance import criteria
from modulekg_widgets.engine.pruning.plan.draft import Draft
from modulekg_widgets.engine.pruning.plan.pruning_plan import PruningPlan

MASKED, CUT = "masked", "cut"


class Operation(NamedTuple):
    """What has been done to the model."""

    stage: str
    receipt: Any
    plan: PruningPlan


class HandPruning:
    """A model and the draft for it; the model changes by `mask`, `cut` and `undo` alone."""

    def __init__(self, model: Any, args: Any, kwargs: Mapping[str, Any] | None, optimizer: Any) -> None:
        self.model, self.args, self.kwargs = model, args, kwargs
        self.title = hierarchy(model).root.class_name
        self.draft = Draft(trace(model, args, kwargs))
        self.generation = 1  # how often the model has been traced: each time its axes may be others
        self.importances: dict[str, Any] = {name: name for name in criteria}
        self._optimizer = optimizer
        self._operations: list[Operation] = []
        self._uncut: dict[str, int] = {}
        self._scores: tuple[str, bytes] = ("", b"")  # of the importance of that name

    # ----------------------------------------------------------- the model

    @property
    def operations(self) -> int:
        """How many operations can be undone."""
        return len(self._operations)

    @property
    def last(self) -> Operation | None:
        """The operation that `undo` takes back."""
        return self._operations[-1] if self._operations else None

    @property
    def stage(self) -> str:
        """What the last operation has made of the model: "masked", "cut", or "" where there was none."""
        return self.last.stage if self.last else ""

    @property
    def uncut(self) -> dict[str, int]:
        """How many parameters of its own each module had before the first cut; empty where none stands."""
        return self._uncut

    def mask(self, plan: PruningPlan) -> None:
        """Set what goes to zero; what the mask before had set is put back."""
        before = self.last if self.stage == MASKED else None
        if before is not None:
            before.receipt.restore()
            self._operations.pop()
        try:
            self._mask(plan)
        except BaseException:
            if before is not None:
                self._mask(before.plan)
            raise

    def cut(self, plan: PruningPlan) -> None:
        """Cut the model, and the optimizer's state along."""
        before = self._uncut or _own_params(self.model)
        self._operations.append(Operation(CUT, plan.cut(self.model, self._optimizer), plan))
        self._uncut = before

    def undo(self) -> Operation:
        """Make the model byte for byte as before the last operation, which is returned.

        Raises `CutError` where there was none, or when the model is not as that left it.
        """
        if self.last is None:
            raise CutError("there is nothing to undo: neither mask() nor cut() has changed the model")
        self.last.receipt.undo()
        undone = self._operations.pop()
        if not any(operation.stage == CUT for operation in self._operations):
            self._uncut = {}
        return undone

    def trace_again(self, plan: PruningPlan | None) -> None:
        """Go on with the model as it has become, and with the draft that `plan` says."""
        draft = Draft(trace(self.model, self.args, self.kwargs), self.draft.revision)
        draft.take(plan)
        self.draft, self._scores = draft, ("", b"")
        self.generation += 1

    def _mask(self, plan: PruningPlan) -> None:
        self._operations.append(Operation(MASKED, plan.mask(self.model), plan))

    # ---------------------------------------------------------- importance

    def offer(self, importance: Any) -> str:
        """The name of an importance, which is from now on one of `importances`."""
        if isinstance(importance, str):
            return importance
        name = getattr(importance, "__name__", type(importance).__name__)
        self.importances[name] = importance
        return name

    def rank(self, importance: Any) -> str:
        """The name of an importance that ranks the indices; one that cannot raises `CutError`, and is not offered."""
        known = dict(self.importances)
        name = self.offer(importance)
        self._scores = ("", b"")  # another may have had this name
        try:
            self.scores(name)
        except BaseException:
            self.importances = known
            raise
        return name

    def scores(self, name: str) -> bytes:
        """How important each index is; raises `UnknownNameError`, and `CutError` where this importance cannot rank."""
        if self._scores[0] != name:
            if name not in self.importances:
                raise UnknownNameError(f"there is no importance {shown(name)!r}: {nearest(name, self.importances)}")
            self._scores = (name, self.draft.scores(self.importances[name]))
        return self._scores[1]


def _own_params(model: Any) -> dict[str, int]:
    """By the path of each module; what several share counts where it is first."""
    found: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        path = name.rpartition(".")[0]
        found[path] = found.get(path, 0) + parameter.numel()
    return found
