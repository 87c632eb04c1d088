"""Accuracy after a cut: statistics renewed, outputs compensated, distillation.

Reading order: sandbox_runs.py (batches through a model as it would be cut), recalibration.py (running statistics),
uncut_reference.py (which layer reads what), compensation.py (least squares, kept where it helps), recovery.py (all of
it, before the model changes); then distillation.py (a loss towards the uncut model).
"""
