"""`mk.pruning`: what one needs beside `mk.plan`: criteria with data, masks, tensors, sparse regularisation."""

from __future__ import annotations

from modulekg_widgets.engine.pruning.activations import Activation
from modulekg_widgets.engine.pruning.conflicts import conflicts, fix_conflicts
from modulekg_widgets.engine.pruning.criteria import FPGM, L1, L2, BNScale, Hessian, Random, Taylor
from modulekg_widgets.engine.pruning.mask_inference import infer_masks
from modulekg_widgets.engine.pruning.masks import load_masks, read_masks
from modulekg_widgets.engine.pruning.regularise import GroupLasso, group_lasso
from modulekg_widgets.engine.pruning.tensors import cut_tensor, uncut_tensor, unzero_tensor, zero_tensor

__all__ = [
    "FPGM",
    "L1",
    "L2",
    "Activation",
    "BNScale",
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
    "read_masks",
    "uncut_tensor",
    "unzero_tensor",
    "zero_tensor",
]
