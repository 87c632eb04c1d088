"""The size of a model as a formula in the counts of its axes: parameters, bytes, FLOPs.

size_terms.py makes the terms, size_formula.py evaluates them for many choices at once.
"""
