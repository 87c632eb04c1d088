"""Which positions of the uncut model's values a cut model still has."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from modulekg_widgets.engine.axes.algebra import atoms
from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.cut_analysis import Keeps, resolve
from modulekg_widgets.engine.axes.expression import kept
from modulekg_widgets.engine.errors import CutError, shown
from modulekg_widgets.engine.pruning.cut.edits import Edits
from modulekg_widgets.engine.torch_runtime.structure import tensors
from modulekg_widgets.engine.tracing.dataflow import DataNode

Positions = dict[int, torch.Tensor]  # dimension → the positions that stay


def keeps_of(axes: Axes, edits: Edits) -> Keeps:
    """The indices of each axis that stay, from the slices of the tensors.

    Raises `CutError` where the traced model is not the one that the edits are of.
    """
    keeps: Keeps = {}
    for edit in edits.tensors:
        node = next((axes.graph.state[name] for name in edit.names if name in axes.graph.state), None)
        if node is None:
            continue  # another pass of the model may leave a tensor alone
        if node.shape != edit.shape:
            raise CutError(
                f"{shown(edit.names[0])!r} has the shape {list(node.shape)}, and {list(edit.shape)} before the cut: "
                "pass the uncut model that the receipt came from, as copy.deepcopy(model) before plan.cut(model)"
            )
        for at, positions in edit.kept.items():
            stays = np.zeros(edit.shape[at], dtype=bool)
            stays[positions] = True
            resolve(axes.inference.dims(node)[at], stays, keeps, f"dimension {at} of {shown(edit.names[0])}")
    return keeps


def positions_of(axes: Axes, keeps: Keeps, node: DataNode) -> Positions:
    """Per dimension of a value that loses some the positions that stay."""
    return {
        at: torch.from_numpy(np.flatnonzero(kept(term, keeps)))
        for at, term in enumerate(axes.inference.dims(node))
        if any(atom in keeps for atom in atoms(term))
    }


def selected(value: torch.Tensor, positions: Positions) -> torch.Tensor:
    """What stays of a value."""
    for at, own in positions.items():
        value = value.index_select(at, own.to(value.device))
    return value


def first_float(value: Any) -> torch.Tensor | None:
    """The first tensor of floating-point numbers in what a module gave."""
    return next((tensor for _, tensor in tensors(value) if tensor.is_floating_point()), None)
