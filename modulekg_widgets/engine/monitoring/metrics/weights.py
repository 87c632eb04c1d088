"""Changes of weights: sign flips between samples, and the relative size of updates."""

from __future__ import annotations

import torch

from modulekg_widgets.engine.monitoring.metric import metric
from modulekg_widgets.engine.monitoring.metrics.statistics import norm


@metric(
    "WeightParamJump", needs="Weight", ranks="sum", keeps="the signs of the weight at the previous sample, a byte each"
)
class WeightParamJump:
    """The number of weights whose sign differs from that at the previous sample, 0 counting as a third sign.

    The first sample has no value; neither has one after the weight changed its shape.
    """

    def __init__(self) -> None:
        self._signs: torch.Tensor | None = None

    def compute(self, w: torch.Tensor) -> torch.Tensor | None:
        previous, self._signs = self._signs, torch.sign(w).to(torch.int8)
        if previous is None or previous.shape != w.shape:
            return None
        return torch.count_nonzero(previous != self._signs)


@metric("UpdateRatio", needs="Weight", keeps="the weight at the step before a scheduled one", before=True)
class UpdateRatio:
    """The norm of the weight's last update over the norm of the weight; about 1e-3 in a healthy training.

    No value where the step before was not seen, or the weight changed its shape.
    """

    def __init__(self) -> None:
        self._before: torch.Tensor | None = None

    def observe(self, w: torch.Tensor) -> None:
        self._before = w.clone()

    def compute(self, w: torch.Tensor) -> torch.Tensor | float | None:
        before, self._before = self._before, None
        if before is None or before.shape != w.shape:
            return None
        wide = torch.promote_types(w.dtype, torch.float32)
        return norm(w.to(wide) - before.to(wide)) / norm(w)
