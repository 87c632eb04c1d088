"""The namespace `mk.pruning`: importances, masks, single-tensor cuts, distillation and sensitivity."""

from __future__ import annotations

from modulekg_widgets.engine.pruning.blocks.influence import BlockInfluence
from modulekg_widgets.engine.pruning.cut.tensor_cuts import cut_tensor, uncut_tensor, unzero_tensor, zero_tensor
from modulekg_widgets.engine.pruning.importance.activations import Activation
from modulekg_widgets.engine.pruning.importance.criteria import FPGM, L1, L2, BNScale, Random
from modulekg_widgets.engine.pruning.importance.expert_usage import ExpertUsage
from modulekg_widgets.engine.pruning.importance.loss_criteria import Hessian, Taylor
from modulekg_widgets.engine.pruning.importance.regularization import GroupLasso, group_lasso
from modulekg_widgets.engine.pruning.nni.conflicts import conflicts, fix_conflicts
from modulekg_widgets.engine.pruning.nni.mask_files import load_masks, read_masks
from modulekg_widgets.engine.pruning.nni.mask_inference import infer_masks
from modulekg_widgets.engine.pruning.recover.distillation import Distillation
from modulekg_widgets.engine.pruning.sensitivity.sensitivity import plot_sensitivity, sensitivity

__all__ = [
    "FPGM",
    "L1",
    "L2",
    "Activation",
    "BNScale",
    "BlockInfluence",
    "Distillation",
    "ExpertUsage",
    "GroupLasso",
    "Hessian",
    "Random",
    "Taylor",
    "conflicts",
    "cut_tensor",
    "fix_conflicts",
    "group_lasso",
    "infer_masks",
    "load_masks",
    "plot_sensitivity",
    "read_masks",
    "sensitivity",
    "uncut_tensor",
    "unzero_tensor",
    "zero_tensor",
]
