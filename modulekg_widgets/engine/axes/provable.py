"""Axes that can be asked for their proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from modulekg_widgets.engine.axes.axis import Axes, Axis
from modulekg_widgets.engine.axes.verify import TOLERANCE, Verification, verify


class ProvableAxes(Axes):
    __doc__ = Axes.__doc__

    def verify(
        self,
        args: Any = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        seed: int = 0,
        tolerance: float = TOLERANCE,
        bipartitions: int = 8,
        only: Sequence[Axis] | None = None,
    ) -> Verification:
        """Prove the free axes: permuting the indices of one in all its members leaves the output unchanged.

        Parameters
        ----------
        args, kwargs
            Inputs of the shapes of the traced ones, instead of these.
        seed
            For the permutations and for the weights, which are rescaled so that none hides an error.
        tolerance
            The largest change of the output, relative to the largest output, that is rounding.
        bipartitions
            How many random parts of members are permuted alone; the output must change.
        only
            The axes that are asked about, instead of all.

        Returns
        -------
        Verification
            With `.ok`, and the axes `.proved`, `.wrong` and `.not_proved`.

        Raises
        ------
        TraceError
            When the forward pass does not run in float64, or the model was cut since the trace.

        Examples
        --------
        >>> import torch, modulekg_widgets as mk
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        >>> mk.trace(model, torch.randn(2, 3)).axes.verify().ok
        True
        """
        return verify(self, args, kwargs, seed=seed, tolerance=tolerance, bipartitions=bipartitions, only=only)
