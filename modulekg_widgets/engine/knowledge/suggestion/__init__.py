"""Models for a task: known models ranked by prediction, and new models generated from them.

Read candidates.py first (results of a search, and forward runs on meta tensors), then known_models.py with
requirements.py, costs.py, latencies.py and build_check.py (known models within a budget). mutations.py has the
changes that keep a model valid, resizing.py those of widths, classifier_head.py those of the head; generation.py
searches with them, and pareto.py picks the front.
"""
