"""Measured loss of a draft, and of ratios on a curve, computed between cells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from traitlets import Dict, observe

from modulekg_widgets.engine.errors import CutError
from modulekg_widgets.engine.identity.weights import weight_fingerprint
from modulekg_widgets.engine.pruning.draft import Draft
from modulekg_widgets.engine.pruning.sensitivity.sensitivity import DroppedIndices, masked_losses
from modulekg_widgets.engine.pruning.session import MASKED
from modulekg_widgets.engine.pruning.user_data import Progress
from modulekg_widgets.engine.views.payload import text
from modulekg_widgets.widgets.mask_editor.index_costs import EditorCosts
from modulekg_widgets.widgets.shared.base import WidgetValueError, when_idle
from modulekg_widgets.widgets.shared.sliced_work import SlicedWork

MAX_POINTS = 12  # of a curve: each is a pass of every batch
MAX_KEY = 64


class Curve(NamedTuple):
    """A curve that a page requests: dropped indices at some ratios, for a ranking with a key."""

    key: str
    ratios: list[float]
    drops: list[DroppedIndices]


class EditorMeasuredLoss(EditorCosts):
    """Part of a mask editor that measures the loss of drafts, once sensitivities are known.

    `measured` has the loss of the model as it is (`base`), that of the draft at `revision` (`loss`), and of the ranking
    `key` the `points` [ratio, loss]; nothing where it has not begun. A model that is masked is not measured: its
    weights are not those that the draft is for.
    """

    measured = Dict().tag(sync=True)
    _measuring: SlicedWork[Progress] | None = None
    _curve: Curve | None = None  # that has been asked for and is not measured yet
    _measured_of = ""  # a digest of the weights

    def _measure_curve(self, key: Any, points: Any) -> None:
        """Measure some ratios, too: `points` are [ratio, [[axis, count], …]], by the present scores."""
        self._curve = self._read_curve(key, points)
        self._measure()

    @observe("increases", "draft", "stage")
    def _measure_later(self, change: Any) -> None:
        if not self.increases:
            self._clear_measured()
        elif change["name"] == "increases" or self.measured:
            when_idle(self._measure)

    @observe("payload")
    def _measure_anew(self, change: Any) -> None:
        if isinstance(change["old"], dict) and change["old"].get("generation") != change["new"].get("generation"):
            self._clear_measured()

    def _measure(self) -> None:
        """Measure the present draft and curve if unknown; a running measurement of an earlier draft is stopped."""
        pruning = vars(self).get("_pruning")
        if pruning is None or not pruning.data.has_sensitivity or pruning.stage == MASKED or self._work is not None:
            return
        draft, weights, curve = pruning.draft, weight_fingerprint(pruning.model).hexdigest, self._curve
        known = dict(self.measured) if weights == self._measured_of else {}
        if not draft.removed_paths and known.get("revision") == draft.revision and curve is None:
            return
        self._end_measuring()
        self._measured_of = weights
        work: SlicedWork[Progress] = SlicedWork(
            self._measured_steps(draft, known, curve), lambda step: None, lambda why: self._measured_end(work, why)
        )
        self._measuring = work
        work.start()

    def _measured_steps(self, draft: Draft, known: dict[str, Any], curve: Curve | None) -> Iterator[Progress]:
        pruning, data = self._pruning, self._pruning.data
        revision, own = draft.revision, draft.dropped
        # what is left without a block is another pass: it is not measured
        drops: list[DroppedIndices] = [*([] if draft.removed_paths else [own]), *(curve.drops if curve else [])]
        base, *losses = yield from masked_losses(draft.graph, data.batches or (), data.loss or _no_loss, drops)
        if weight_fingerprint(pruning.model).hexdigest != self._measured_of:
            raise CutError("the model has changed meanwhile: measure it again")
        found = {**known, "base": base}
        if not draft.removed_paths:
            found |= {"revision": revision, "loss": losses.pop(0)}
        if curve:
            points = [list(pair) for pair in zip(curve.ratios, losses, strict=True)]
            found |= {"key": text(curve.key), "points": points}
            self._curve = None if self._curve is curve else self._curve
        self.measured = found

    def _measured_end(self, work: SlicedWork[Progress], why: str) -> None:
        if work is not self._measuring or self.comm is None:
            return
        self._measuring = None
        if why:
            self._clear_measured()
            self.send({"type": "failed", "action": "measure", "text": text(f"Measured loss: {why}")})
        elif self.measured.get("revision") != self._pruning.draft.revision or self._curve:
            when_idle(self._measure)  # drawn on meanwhile

    def _end_measuring(self) -> None:
        if self._measuring is not None:
            self._measuring.cancel()
            self._measuring = None

    def _clear_measured(self) -> None:
        self._end_measuring()
        self._curve, self._measured_of, self.measured = None, "", {}

    def _cancel(self) -> None:
        super()._cancel()
        self._end_measuring()

    def _read_curve(self, key: Any, points: Any) -> Curve:
        if not isinstance(key, str) or len(key) > MAX_KEY or not isinstance(points, list):
            raise WidgetValueError("a curve has a key and a list of points")
        if len(points) > MAX_POINTS:
            raise WidgetValueError(f"a curve has at most {MAX_POINTS} points: {len(points)} came")
        draft = self._pruning.draft
        orders = _rankings(self.scores, [axis.size for axis in draft.axes])
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


def _rankings(scores: bytes, sizes: list[int]) -> list[Any]:
    """Returns the indices of each axis, least important first; empty without scores."""
    values = np.frombuffer(scores, dtype="<f8")
    if len(values) != sum(sizes):
        return []
    return [np.argsort(part, kind="stable") for part in np.split(values, np.cumsum(sizes)[:-1])]


def _no_loss(*_: Any) -> Any:
    raise CutError("the loss is measured on batches: pass batches= and loss=")
