"""How fast each axis gives what a target takes where the scope is "local": slower where many weights run along it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from modulekg_widgets.engine.axes.axis import Axes, Axis
from modulekg_widgets.engine.pruning.importance.votes import weights_along
from modulekg_widgets.engine.pruning.plan.counts import Floats

PACE = 0.5


def local_paces(axes: Axes, chosen: Sequence[Axis]) -> Floats:
    """Per axis the power to which it keeps what the common ratio leaves: the root of 2 over its weights, 1 at most.

    One weight makes and one reads an axis inside of a block: it keeps what the ratio leaves. One that many weights run
    along keeps more, as the docstring of `mk.plan` says; of powers of 2 over the weights the root serves best.
    """
    weights = weights_along(axes)
    return np.array([min(1.0, 2 / max(weights[axis.term], 1)) ** PACE for axis in chosen])
