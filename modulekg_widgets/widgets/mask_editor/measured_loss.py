"""Measured loss of a draft, and of ratios on a curve, computed between cells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from modulekg_widgets.engine.errors import CutError
from modulekg_widgets.engine.identity.weight_fingerprint import weight_fingerprint
from modulekg_widgets.engine.pruning.sensitivity.sensitivity import DroppedIndices, masked_losses
from modulekg_widgets.engine.pruning.session import MASKED, PruningSession
from modulekg_widgets.engine.pruning.user_data import Progress
from modulekg_widgets.engine.views.payload import text
from modulekg_widgets.widgets.mask_editor.sensitivity_run import Editor, SensitivityRun
from modulekg_widgets.widgets.shared.base import WidgetValueError, when_idle
from modulekg_widgets.widgets.shared.sliced_work import SlicedWork

MAX_POINTS = 12  # of a curve: each is a pass of every batch
MAX_KEY = 64


class Curve(NamedTuple):
    """A curve that a page requests: dropped indices at some ratios, for a ranking with a key."""

    key: str
    ratios: list[float]
    drops: list[DroppedIndices]


class MeasuredLoss:
    """Measures the loss of an editor's drafts between cells, once sensitivities are known.

    The trait `measured` has the loss of the model as it is (`base`), that of the draft at
    `revision` (`loss`), and of the ranking `key` the `points` [ratio, loss]; nothing where it has not begun. A model
    that is masked is not measured: its weights are not those that the draft is for.
    """

    def __init__(self, editor: Editor, sensitivity_run: SensitivityRun) -> None:
        self._editor, self._sensitivity_run = editor, sensitivity_run
        self._work: SlicedWork[Progress] | None = None
        self._curve: Curve | None = None  # that has been asked for and is not measured yet
        self._weights = ""  # a digest of those that were measured

    def measure_curve(self, key: object, points: object) -> None:
        """Measure some ratios, too: `points` are [ratio, [[axis, count], …]], by the present scores."""
        self._curve = self._read_curve(key, points)
        self.measure()

    def measure(self) -> None:
        """Measure the present draft and curve if unknown; a running measurement of an earlier draft is stopped."""
        pruning: PruningSession | None = vars(self._editor).get("_pruning")  # none once it is closed
        if pruning is None or not pruning.data.has_sensitivity or pruning.stage == MASKED:
            return
        if self._sensitivity_run.is_running:
            return
        draft, weights, curve = pruning.draft, weight_fingerprint(pruning.model).hexdigest, self._curve
        known = self._editor.measured if weights == self._weights else {}
        if not draft.removed_paths and known.get("revision") == draft.revision and curve is None:
            return
        self.cancel()
        self._weights = weights
        work: SlicedWork[Progress] = SlicedWork(
            self._steps(pruning, known, curve), lambda step: None, lambda why: self._finish(work, why)
        )
        self._work = work
        work.start()

    def cancel(self) -> None:
        """Stop a running measurement."""
        if self._work is not None:
            self._work.cancel()
            self._work = None

    def clear(self) -> None:
        """Stop a running measurement, and forget what was measured."""
        self.cancel()
        self._curve, self._weights = None, ""
        self._editor.set_trait("measured", {})

    def _steps(self, pruning: PruningSession, known: dict[str, object], curve: Curve | None) -> Iterator[Progress]:
        draft, data = pruning.draft, pruning.data
        revision, own = draft.revision, draft.dropped
        # what is left without a block is another pass: it is not measured
        drops: list[DroppedIndices] = [*([] if draft.removed_paths else [own]), *(curve.drops if curve else [])]
        base, *losses = yield from masked_losses(draft.graph, data.batches or (), data.loss or _no_loss, drops)
        if weight_fingerprint(pruning.model).hexdigest != self._weights:
            raise CutError("the model has changed meanwhile: measure it again")
        found = {**known, "base": base}
        if not draft.removed_paths:
            found |= {"revision": revision, "loss": losses.pop(0)}
        if curve:
            points = [list(pair) for pair in zip(curve.ratios, losses, strict=True)]
            found |= {"key": text(curve.key), "points": points}
            self._curve = None if self._curve is curve else self._curve
        self._editor.set_trait("measured", found)

    def _finish(self, work: SlicedWork[Progress], why: str) -> None:
        editor = self._editor
        if work is not self._work or editor.comm is None:
            return
        self._work = None
        if why:
            self.clear()
            editor.send({"type": "failed", "action": "measure", "text": text(f"Measured loss: {why}")})
        elif editor.measured.get("revision") != editor._pruning.draft.revision or self._curve:
            when_idle(self.measure)  # drawn on meanwhile

    def _read_curve(self, key: object, points: object) -> Curve:
        if not isinstance(key, str) or len(key) > MAX_KEY or not isinstance(points, list):
            raise WidgetValueError("a curve has a key and a list of points")
        if len(points) > MAX_POINTS:
            raise WidgetValueError(f"a curve has at most {MAX_POINTS} points: {len(points)} came")
        draft = self._editor._pruning.draft
        orders = _rankings(self._editor.scores, [axis.size for axis in draft.axes])
        ratios, drops = [], []
        for point in points:
            try:
                ratio, pairs = point
                counts = {int(axis): int(count) for axis, count in pairs}
                ratios.append(float(ratio))
            except (TypeError, ValueError) as error:
                raise WidgetValueError("a point of a curve is a ratio with the counts of axes") from error
            dropped = {**draft.dropped}
            for number, count in counts.items():
                if not (0 <= number < len(orders) and 0 <= count < max(len(orders[number]), 1)):
                    raise WidgetValueError("a point of a curve counts indices of axes that there are, and not all")
                dropped[draft.axes[number].name] = orders[number][:count].tolist()
            drops.append(dropped)
        return Curve(key, ratios, drops)


def _rankings(scores: bytes, sizes: list[int]) -> list[NDArray[np.int64]]:
    """Returns the indices of each axis, least important first; empty without scores."""
    values = np.frombuffer(scores, dtype="<f8")
    if len(values) != sum(sizes):
        return []
    return [np.argsort(part, kind="stable") for part in np.split(values, np.cumsum(sizes)[:-1])]


def _no_loss(*_: object) -> NoReturn:
    raise CutError("the loss is measured on batches: pass batches= and loss=")
