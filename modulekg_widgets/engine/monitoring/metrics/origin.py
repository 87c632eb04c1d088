"""Where NaN and infinity come from."""

from __future__ import annotations

import torch

from modulekg_widgets.engine.monitoring.measures import moments
from modulekg_widgets.engine.monitoring.metric import metric


@metric("NonFiniteOrigin", needs=("ForwardInputMoments", "ForwardOutputMoments"), ranks="max")
def non_finite_origin(x: moments.Moments, y: moments.Moments) -> torch.Tensor:
    """1 where a finite input gave NaN or infinity in the output, else 0; the first such module is the guilty one."""
    return (x.finite & ~y.finite).float()
