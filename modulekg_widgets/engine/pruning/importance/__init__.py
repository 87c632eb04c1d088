"""How important each index of an axis is: criteria on weights, gradients and activations.

Reading order: importance.py (the registry, and scores checked), index_sums.py (from elements of a tensor to indices of
an axis), criteria.py (weights), calibration.py (passes over batches), loss_criteria.py and activations.py (what such
passes tell). regularise.py is for training before a cut.
"""
