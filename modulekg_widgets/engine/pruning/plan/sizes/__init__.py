"""The size of a model in the counts of its axes: parameters, bytes, FLOPs and time.

Reading order: expressions.py (sizes of dimensions, and sums of products of them), operator_costs.py (FLOPs of one
operator as products), size_model.py (the terms of a model, evaluated for many choices), planned_sizes.py (before and
after a plan).
"""
