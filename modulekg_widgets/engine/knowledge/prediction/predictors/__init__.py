"""The predictors: Gaussian processes, boosted trees, a graph network, and the choice among them.

Read gaussian_process.py first (Gaussian processes), then mixture.py (several kernels in one), target_regressor.py (one
target at one place, cross-validated), boosting.py, gnn.py and model_selection.py.
"""
