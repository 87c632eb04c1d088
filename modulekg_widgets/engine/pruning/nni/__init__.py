"""Masks of NNI and of torch.nn.utils.prune: read, propagated along the axes, and made into a plan.

Reading order: mask_files.py (reading and checking), weight_channels.py (what a mask says of a layer's channels),
mask_agreement.py (what all of them say of an axis), conflicts.py and mask_inference.py (what cannot go, and what
follows), speedup.py (all of it in one call).
"""
