"""`mk.speedup`: removes masked channels from a model in one call.

| NNI | here |
|---|---|
| `ModelSpeedup(model, dummy_input, masks).speedup_model()` | `mk.speedup(model, masks, dummy_input)` |
| `ModelSpeedup(..., masks_file)`, a path | the path; it is loaded with `weights_only=True` |
| `speedup.infer_modules_masks()` | `infer_masks(graph, masks)`: `.modules` in NNI's layout, `.save(path)` |
| `fix_mask_conflict(masks, model, dummy_input)` | `fix_conflicts(graph, masks)`; `conflicts(graph, masks)` lists them |
| `ChannelMaskConflict`, `GroupMaskConflict` | `conflicts(...)`: kinds "channel" and "group" |
| `detect_mask_prune_dim`, `conv_prune_dim` | `conv_prune_dim=0` outputs, `1` inputs, `None` both |
| `speedup.replace_compressed_modules()` | `mk.plan(graph, cuts=[infer_masks(graph, masks).cut]).cut(model)` |
| `torch.nn.utils.prune` before it | `mk.speedup(model, args=...)`: the masks are found on the model |
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from torch import nn

from modulekg_widgets.engine.axes.graph import DataflowGraph, trace
from modulekg_widgets.engine.errors import CutError, printable
from modulekg_widgets.engine.keywords import explain_keywords
from modulekg_widgets.engine.pruning.cut.optimizer_state import Optimizers
from modulekg_widgets.engine.pruning.cut.receipt import Receipt
from modulekg_widgets.engine.pruning.nni.conflicts import find_conflicts
from modulekg_widgets.engine.pruning.nni.mask_files import MaskSource, read_masks
from modulekg_widgets.engine.pruning.nni.mask_inference import InferredMasks, checked_agreement
from modulekg_widgets.engine.pruning.plan.plan import plan
from modulekg_widgets.engine.pruning.plan.saved.pruning_plan import PruningPlan

log = logging.getLogger("modulekg_widgets")


@explain_keywords("mk.speedup")
def speedup(
    model: nn.Module,
    masks: MaskSource = None,
    args: object = (),
    kwargs: Mapping[str, object] | None = None,
    *,
    conv_prune_dim: int | None = 0,
    optimizer: Optimizers | None = None,
) -> Receipt:
    """Cut from `model`, in place, the channels that masks zero.

    Conflicts are resolved as by `mk.pruning.fix_conflicts`, with a warning in the log of what is given up. What goes
    is gone with its bias, its batch norm's shift and other constants, as with NNI: the result equals the masked model
    where these are zero. What stays keeps its numbers: a mask in a dict is not applied to them (NNI's pruners had
    done that), while those of `torch.nn.utils.prune` stay on the model, cut like the weights, and go on until
    `prune.remove`.

    Parameters
    ----------
    model : nn.Module
        The model.
    masks : dict, path, "prune" or None
        NNI's dict `{"layer": {"weight": zeros and ones, "bias": …}}`, the path of a file of it, or None or `"prune"`
        for what `torch.nn.utils.prune` left on the model.
    args : tensor or tuple
        What forward takes.
    kwargs : mapping, optional
        What forward takes by name.
    conv_prune_dim : {0, 1, None}, default 0
        Whether output channels (0), input channels (1) or both (None) are pruned.
    optimizer : torch.optim.Optimizer or list of them, optional
        Its state is cut alike.

    Returns
    -------
    Receipt
        The way back.

    Raises
    ------
    CutError
        When the masks do not fit, or nothing of them can be cut; the model is then as it was.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> mask = torch.ones(3, 4)
    >>> mask[1] = 0
    >>> receipt = mk.speedup(model, {"0": {"weight": mask}}, torch.randn(1, 4))
    >>> model[2]
    Linear(in_features=2, out_features=2, bias=True)
    >>> receipt.undo()
    """
    graph = trace(model, args, kwargs)
    agreement = checked_agreement(read_masks(graph, masks, conv_prune_dim), conv_prune_dim)
    inferred, every_conflict = InferredMasks(agreement), list(find_conflicts(agreement))
    if not inferred.axes:
        reasons = [*map(str, every_conflict), *str(agreement.reading).splitlines()[1:]]
        raise CutError(
            f"nothing of these masks can be cut: {printable('; '.join(reasons[:3]), 400) or 'they have no zeros'}. "
            "Mask "
            "whole channels, in all layers that are added or multiplied"
        )
    found_plan = _plan_from_masks(graph, inferred)
    for message in (*every_conflict, *found_plan.changes):
        log.warning("%s", message)
    return found_plan.cut(model, optimizer)


def _plan_from_masks(graph: DataflowGraph, inferred: InferredMasks) -> PruningPlan:
    """The plan that removes the masked indices; raises `CutError` if the code prevents it."""
    made = plan(graph, cuts=[inferred.cut])
    reasons = "; ".join(map(str, made.changes[:3]))
    if not made.axes:
        raise CutError(f"nothing of these masks can be cut, because of sizes in the code: {printable(reasons, 400)}")
    for axis in made.axes:
        more = set(axis.dropped).difference(inferred.axes.get(axis.name, ()))
        if more:
            raise CutError(
                f"{printable(axis.name)} would lose {len(more)} indices that no mask zeroes, because of sizes in the "
                "code: "
                f"{printable(reasons, 400)}. Mask as many channels in each of these"
            )
    return made
