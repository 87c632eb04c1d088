"""Models for a task: known models ranked by prediction, and new models generated from them.

Read candidates.py first (results of a search, heads with another number of classes, forward runs on meta tensors), then
known_models.py with costs.py and build_check.py (known models within a budget). mutations.py has the changes that keep
a model valid, resizing.py those of widths; generation.py searches with them, and costs.py picks the
Pareto front.
"""
