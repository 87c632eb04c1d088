"""Conflicts of masks: coupled layers that disagree, unequal groups, frozen axes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.axes.terms.algebra import ATOM, Term, atoms, find, flattened_parts
from modulekg_widgets.engine.axes.terms.term_positions import format_term, occurrences
from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.pruning.nni.mask_agreement import MaskAgreement, MaskRequest
from modulekg_widgets.engine.pruning.nni.mask_files import MaskDict, MaskSource, read_masks
from modulekg_widgets.engine.pruning.nni.mask_inference import checked_agreement, to_source_layout
from modulekg_widgets.engine.pruning.nni.weight_channels import grouped_axes

CHANNEL, GROUP, FROZEN, EMPTY = "channel", "group", "frozen", "empty"


@dataclass(frozen=True, slots=True)
class Conflict:
    """Masks that cannot be applied as they are.

    `kind`: "channel" (layers on one axis ask for different indices), "group" (a dimension of groups would lose other
    positions in one group than in another), "frozen" (the axis may not change) or "empty" (it would lose everything).
    `asked` has per layer the indices of the axis, or for groups the positions of the dimension, that it asks for.
    """

    kind: str
    axis: str  # its name; of a group conflict the dimension, as "(conv.groups=2 conv.out=4)"
    asked: dict[str, list[int]]
    agreed: list[int] = field(default_factory=list)  # those of them that go
    reason: str = ""

    @property
    def given_up(self) -> dict[str, list[int]]:
        """The requested indices that stay, by layer."""
        agreed = set(self.agreed)
        return {name: left for name, asked in self.asked.items() if (left := [i for i in asked if i not in agreed])}

    def __str__(self) -> str:
        asked = "; ".join(f"{printable(name)} asks for {_shortened(indices)}" for name, indices in self.asked.items())
        removed = f"{_shortened(self.agreed)} can be removed: {printable(self.reason, 300)}"
        return f"{self.kind} conflict on {printable(self.axis)}: {asked}. {removed}"


class FixedMasks(MaskDict):
    """Masks without conflicts in the original layout; `conflicts` lists the changes."""

    def __init__(self, masks: MaskDict, conflicts: list[Conflict]) -> None:
        super().__init__(masks)
        self.conflicts = conflicts


def conflicts(graph: Axes | DataflowGraph, masks: MaskSource = None, conv_prune_dim: int | None = 0) -> list[Conflict]:
    """The conflicts of masks, in the order of the model; nothing is changed.

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
    list of Conflict
        Each with its `.kind`: "channel", "group", "frozen" or "empty".

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> graph = mk.trace(model, torch.randn(1, 4))
    >>> mask = torch.ones(3, 4)
    >>> mask[1] = 0
    >>> mk.pruning.conflicts(graph, {"0": {"weight": mask}})
    []
    """
    return list(find_conflicts(MaskAgreement(read_masks(graph, masks, conv_prune_dim), conv_prune_dim)))


def fix_conflicts(graph: Axes | DataflowGraph, masks: MaskSource = None, conv_prune_dim: int | None = 0) -> FixedMasks:
    """The masks with ones in the channels that cannot go, as NNI's `fix_mask_conflict` made them; the input stays.

    A channel of coupled layers goes only when all of them mask it, and a channel in groups only when it goes in all
    groups, or with its whole group. (NNI let each group lose other channels, as many as the least of them asked for;
    an axis has one index for all groups, so fewer go here.) A bias follows its weight; zeros that stand in no channel
    that is zero all over stay.

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
    FixedMasks
        The masks in the layout in which they were given; `.conflicts` lists what was given up.

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
    >>> fixed = mk.pruning.fix_conflicts(graph, {"0": {"weight": mask}})
    >>> fixed["0"]["weight"][1].tolist()
    [0.0, 0.0, 0.0, 0.0]
    """
    reading = read_masks(graph, masks, conv_prune_dim)
    agreement = checked_agreement(reading, conv_prune_dim)
    fixed: MaskDict = {path: dict(targets) for path, targets in reading.source.items()}
    for mask in reading:
        mask_before = reading.source[mask.module][mask.target]
        assert mask_before is not None
        keep = agreement.fixed_mask(mask)
        fixed[mask.module][mask.target] = to_source_layout(keep, mask, reading, mask_before, conv_prune_dim)
    return FixedMasks(fixed, list(find_conflicts(agreement)))


def find_conflicts(agreement: MaskAgreement) -> Iterator[Conflict]:
    for atom in sorted(agreement.requested_zeros, key=agreement.axes.rank):
        conflict = _axis_conflict(agreement, atom)
        if conflict is not None:
            yield conflict
    yield from _group_conflicts(agreement)


def _axis_conflict(agreement: MaskAgreement, atom: Term) -> Conflict | None:
    asked = agreement.requested_zeros[atom]
    keep = agreement.keeps.get(atom)
    removed = np.zeros(atom.size, dtype=bool) if keep is None else ~keep
    if not (asked & ~removed).any() and not removed.all():
        return None
    axis = agreement.axes.of(atom)
    by_layer = _requests_by_layer(agreement, atom)
    if atom.frozen is not None:
        return Conflict(FROZEN, axis.name, by_layer, [], str(atom.frozen))
    if removed.all():
        return Conflict(EMPTY, axis.name, by_layer, [], "at least one index must be kept")
    reason = "an index is removed if all layers that write it mask it, or all that read it"
    return Conflict(CHANNEL, axis.name, by_layer, np.flatnonzero(removed).tolist(), reason)


def _requests_by_layer(agreement: MaskAgreement, atom: Term) -> dict[str, list[int]]:
    """The requested indices of each layer and tensor on an axis."""
    by_layer: dict[str, list[int]] = {}
    for layer, sides in agreement.reading.sides.items():
        term = layer.into if agreement.conv_prune_dim == 1 else layer.out
        if atom in set(atoms(term)) and atom not in grouped_axes(sides):
            by_layer[layer.name] = []
    for request in agreement.requests:
        if atom in request.zeros:
            indices = np.flatnonzero(request.zeros[atom]).tolist()
            by_layer[request.name] = sorted({*by_layer.get(request.name, ()), *indices})
    return by_layer


def _group_conflicts(agreement: MaskAgreement) -> Iterator[Conflict]:
    """Group conflicts: a mask zeroes positions that belong to no fully masked index."""
    by_dimension: dict[object, list[MaskRequest]] = {}
    for request in agreement.requests:
        covered = request.alive | agreement.removed_positions(request)
        for atom, index in occurrences(request.term):
            if atom in request.zeros:
                covered |= np.where(index < 0, False, request.zeros[atom][index])
        if not covered.all() and request.term.size > 1:
            by_dimension.setdefault(_dimension_key(request.term), []).append(request)
    for requests in by_dimension.values():
        requested: dict[str, list[int]] = {}
        for request in requests:
            requested[request.name] = sorted(
                {*requested.get(request.name, ()), *np.flatnonzero(~request.alive).tolist()}
            )
        name = format_term(requests[0].term, lambda atom: agreement.axes.of(atom).name)
        removed = np.flatnonzero(agreement.removed_positions(requests[0])).tolist()
        yield Conflict(
            GROUP, name, requested, removed, "each group must lose the same positions, or a whole group is removed"
        )


def _dimension_key(term: Term) -> object:
    """The identity of a dimension."""
    term = find(term)
    return term if term.kind == ATOM else (term.kind, *map(_dimension_key, flattened_parts(term)))


def _shortened(indices: list[int]) -> str:
    if not indices:
        return "none"
    return ", ".join(map(str, indices[:8])) + (f", … ({len(indices)})" if len(indices) > 8 else "")
