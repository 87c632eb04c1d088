"""Inference of the masks of all tensors from those of some, along the axes.

An index of an axis is removed if every path along the axis, from a producing layer to a reading one, passes a mask
that zeroes it. A masked layer so takes its batch norm, a depthwise convolution behind it and the inputs of the next
layer along, and masked readers take what was produced for them alone. Layers that are added or multiplied must all be
masked. Constants of masked channels (biases, shifts of batch norms) are dropped, as in NNI, so the result equals the
masked model where these are zero and no LayerNorm or GroupNorm runs over the axis.
"""

from __future__ import annotations

import io
import os
from functools import cached_property

import torch

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.cut_analysis import Cut, Indices, cut_from_masks
from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.errors import CutError, printable
from modulekg_widgets.engine.pruning.nni.mask_agreement import MaskAgreement
from modulekg_widgets.engine.pruning.nni.mask_files import MaskDict, MaskReading, MaskSource, TensorMask, read_masks
from modulekg_widgets.engine.safe_files import write_atomic
from modulekg_widgets.engine.tracing.dataflow import DataNode, ModuleNode

Tensor = torch.Tensor


class InferredMasks:
    """The masks of a whole model: removed indices of axes, parameters and values, also as tensors."""

    def __init__(self, agreement: MaskAgreement) -> None:
        self.reading: MaskReading = agreement.reading
        self.cut: Cut = cut_from_masks(agreement.axes, agreement.keeps)
        self._agreement = agreement

    @cached_property
    def _fixed_masks(self) -> dict[DataNode, Tensor]:
        """The original masks without their conflicting positions."""
        masks: dict[DataNode, Tensor] = {}
        for mask in self.reading:
            keep, before = self._agreement.fixed_mask(mask), masks.get(mask.node)
            masks[mask.node] = keep if before is None else before & keep
        return masks

    @property
    def axes(self) -> dict[str, list[int]]:
        """The removed indices by axis."""
        return self.cut.indices

    @property
    def parameters(self) -> dict[str, Indices]:
        """The removed positions by parameter or buffer, and dimension."""
        return self.cut.parameters

    @property
    def values(self) -> dict[str, Indices]:
        """The removed positions by value of the forward pass, and dimension."""
        return self.cut.values

    @property
    def modules(self) -> MaskDict:
        """The masks in NNI's layout, float32, zero where an entry is removed or masked.

        {module: {"weight": mask in the weight's shape, "bias": mask or None}}, for the modules that have such zeros.
        """
        masks: MaskDict = {}
        seen: set[int] = set()
        for path, node in self.reading.axes.graph.modules.items():
            if id(node.module) not in seen:
                seen.add(id(node.module))
                own = self._of_module(node)
                if any(mask is not None and not bool(mask.all()) for mask in own.values()):
                    masks[path] = own
        return masks

    def _of_module(self, module: ModuleNode) -> dict[str, Tensor | None]:
        own: dict[str, Tensor | None] = {}
        for name, node in module.params.items():
            if node.is_parameter:
                mask = torch.ones(node.shape, device="cpu")
                self._zero_removed(mask, node)
                if node in self._fixed_masks:
                    mask *= self._fixed_masks[node]
                own[name.removesuffix("_orig")] = mask
        if "weight" in own:
            own.setdefault("bias", None)
        return own

    def _zero_removed(self, mask: Tensor, node: DataNode) -> None:
        for at, positions in self.parameters.get(node.names[0], {}).items():
            mask.index_fill_(at, torch.tensor(positions, device="cpu"), 0)

    @property
    def left(self) -> dict[str, int]:
        """The number of masked entries of each tensor that no cut removes."""
        counts = {}
        for mask in self.reading:
            stays = torch.ones(mask.node.shape, device="cpu")
            if mask.node.names:
                self._zero_removed(stays, mask.node)
                count = int((stays.bool() & ~mask.keep).sum())
                if count:
                    counts[mask.name] = count
        return counts

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `modules` as a dict of tensors, which `torch.load(path, weights_only=True)` and `read_masks` read.

        Raises `UnknownPathError` where there is no folder, `UnwritableFileError` for what cannot be written.
        """
        content = io.BytesIO()
        torch.save(self.modules, content)
        write_atomic(path, content.getvalue())

    def __str__(self) -> str:
        lines = [str(self.cut) if self.axes else "nothing is cut"]
        lines += [f"{printable(name)}: {count} zeros that cannot be cut" for name, count in self.left.items()]
        return "\n".join(lines)


def infer_masks(graph: Axes | DataflowGraph, masks: MaskSource = None, conv_prune_dim: int | None = 0) -> InferredMasks:
    """The masks of all parameters and values that follow from those of some, as NNI's `infer_modules_masks` gave them.

    What cannot go stays, as `mk.pruning.fix_conflicts` would have it: see `mk.pruning.conflicts` for the reasons.

    Parameters
    ----------
    graph : DataflowGraph or Axes
        The traced model.
    masks : dict, path, "prune" or None
        As in `mk.pruning.read_masks`.
    conv_prune_dim : {0, 1, None}, default 0
        Whether output channels (0), input channels (1) or both (None) are pruned.

    Returns
    -------
    InferredMasks
        `.parameters`, `.values`, `.modules` in NNI's layout, and `.cut` for `mk.plan(graph, cuts=[…])`.

    Raises
    ------
    CutError
        For what is not a mask, and when an axis would lose all of its indices.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> graph = mk.trace(model, torch.randn(1, 4))
    >>> mask = torch.ones(3, 4)
    >>> mask[1] = 0
    >>> mk.pruning.infer_masks(graph, {"0": {"weight": mask}}).axes
    {'0.out': [1]}
    """
    return InferredMasks(checked_agreement(read_masks(graph, masks, conv_prune_dim), conv_prune_dim))


def checked_agreement(reading: MaskReading, conv_prune_dim: int | None) -> MaskAgreement:
    """The agreement of the masks; raises `CutError` if an axis would lose all indices."""
    agreement = MaskAgreement(reading, conv_prune_dim)
    if agreement.emptied_axes:
        axis = agreement.axes.of(agreement.emptied_axes[0])
        requesting = dict.fromkeys(request.name for request in agreement.requests if axis.term in request.zeros)
        raise CutError(
            f"the masks of {', '.join(map(printable, list(requesting)[:4]))} zero all {axis.size} indices of "
            f"{printable(axis.name)}: keep at least one, or take the layers out of the model"
        )
    return agreement


def to_source_layout(
    keep: Tensor, mask: TensorMask, reading: MaskReading, source: Tensor, conv_prune_dim: int | None
) -> Tensor:
    """A mask in the shape, dtype and device of its source."""
    if source.shape != keep.shape and mask.node.producer is None and source.dim() == 1:
        layer = next(layer for layer in reading.sides if layer.weight is mask.node)
        keep = torch.from_numpy(reading.sides[layer].unmasked_channels(keep, "into" if conv_prune_dim == 1 else "out"))
    elif source.shape != keep.shape:
        added = keep.dim() - source.dim()
        spread = [at for at in range(keep.dim()) if at < added or source.shape[at - added] != keep.shape[at]]
        keep = keep.amin(spread).reshape(source.shape)
    return keep.to(source.device, source.dtype)
