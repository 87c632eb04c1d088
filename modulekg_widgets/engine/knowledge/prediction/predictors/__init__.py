"""The predictors: Gaussian processes, boosted trees, a graph network, and the choice among them.

Read gaussian_process.py first (Gaussian processes), then cross_validation.py (errors on families left out),
mixture.py (several kernels in one), target_regressor.py (one target at one place), boosting.py, gnn.py and
model_selection.py.
"""
