"""Importance of the indices of axes: criteria on weights, gradients and activations.

Reading order: importance.py (what a criterion is, and the registry), index_sums.py (from elements to indices of an
axis), members.py (which parameters have a say), criteria.py (weights), calibration.py (passes over batches) with
gates.py (factors on indices), loss_criteria.py and activations.py (what such passes tell), scoring.py (any criterion
asked, its answer checked). regularization.py is for training before a cut.
"""

from importlib import import_module

# importing a file registers its criteria, in the order in which menus show them
for _family in ("criteria", "loss_criteria", "activations", "expert_usage"):
    import_module(f"{__name__}.{_family}")
