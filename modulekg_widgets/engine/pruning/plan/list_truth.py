"""Whether a model without some elements of lists is the one whose routers cannot choose them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from modulekg_widgets.engine.axes.axis import Axes, Axis
from modulekg_widgets.engine.axes.cut_analysis import Keeps
from modulekg_widgets.engine.axes.precision import State, rescaled
from modulekg_widgets.engine.axes.router_offsets import RouterOffsets, router_weights
from modulekg_widgets.engine.axes.verify import distance, largest
from modulekg_widgets.engine.errors import ModuleKGError
from modulekg_widgets.engine.identity.walk import Walk
from modulekg_widgets.engine.pruning.cut.edits import Edits
from modulekg_widgets.engine.pruning.plan.reference import EXACT, cut_outputs
from modulekg_widgets.engine.residuals.removal import NOTHING_REMOVED
from modulekg_widgets.engine.tracing.held import held_tensors

Tensor = torch.Tensor
log = logging.getLogger("modulekg_widgets")
SINGLE = 1e-4  # relative, where an operator of the model knows no float64
SEEDS = (0, 1)  # of weights: a router that has others leads to other elements


def is_never_chosen(axes: Axes, keeps: Keeps, edits: Edits) -> bool:
    """Whether the model cut by `edits` gives what it gives whole when what goes from `keeps` has no chance.

    `edits` are of these axes alone. Where the model cannot be run so, it is not known, and no.
    """
    for dtype, limit in ((torch.float64, EXACT), (torch.float32, SINGLE)):
        try:
            return all(_agrees(axes, keeps, edits, dtype, seed, limit) for seed in SEEDS)
        except ModuleKGError:
            raise
        except Exception:  # code of the user's, on numbers that it may not take
            log.debug("the cut model, or the whole one, stopped in %s", dtype, exc_info=True)
    return False


def _agrees(axes: Axes, keeps: Keeps, edits: Edits, dtype: torch.dtype, seed: int, limit: float) -> bool:
    state = rescaled(list(dict.fromkeys(axes.graph.state.values())), seed)
    cut = _but_losses(cut_outputs(axes, edits, state, dtype))
    gone = {axes.of(term): torch.from_numpy(np.flatnonzero(~flags)) for term, flags in keeps.items()}
    for hides_vectors in (False, True):  # where a correction is added to what a router gives, that has to be hidden
        whole = _but_losses(_without_chance(axes, gone, state, dtype, hides_vectors))
        if distance(cut, whole) < limit * max(largest(whole), 1e-300):
            return True
    return False


def _but_losses(outputs: Sequence[Tensor]) -> list[Tensor]:
    """Without single numbers, as a loss of the router, which goes by how many elements there are."""
    return [each for each in outputs if each.dim()] or list(outputs)


def _without_chance(
    axes: Axes, gone: Mapping[Axis, Tensor], state: State, dtype: torch.dtype, hides_vectors: bool
) -> list[Tensor]:
    changed = dict(state)
    for axis, indices in gone.items() if hides_vectors else ():
        for node, _ in axis.places:
            if node.dim() == 1:
                changed[node.label] = state[node.label].index_fill(0, indices, -torch.inf)

    @contextmanager
    def around(copied: Walk) -> Iterator[None]:
        every = {each.name: each.tensor for each in held_tensors(copied, copied.places())}  # by the names of before
        offsets = []
        for axis, indices in gone.items():
            offset = torch.zeros(axis.size, dtype=dtype).index_fill(0, indices, -torch.inf)
            offsets += [(every[node.label], offset) for node, _ in router_weights(axis)]
        with RouterOffsets(offsets):
            yield

    return cut_outputs(axes, Edits((), {}, axes.graph.removal or NOTHING_REMOVED), changed, dtype, around)
