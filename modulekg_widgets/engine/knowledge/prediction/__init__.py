"""From structure to accuracy: what is published, how it is learnt, and how far it can be trusted.

Read features.py first (what of a model is looked at) and published.py (the values that are known), then regressions.py
(kernels on the structure) and predictor.py, which fits one and tells the uncertainty. datasets.py and transfer.py carry
a value over to another data set; evaluation.py compares the predictors on families that they have not seen, among them
the network of gnn.py.
"""
