"""Axes: sets of indices that run through a model, found from what its operators do with dimensions.

Read terms/ first (products and sums of axes, and the call that a rule gets), then one file of rules/ (what an
operator says of its dimensions), inference/ (from recorded operators to terms, in one pass; layers, attention, names)
and axis.py (what one looks up). proof/ proves axes by permutation, cut_analysis.py with attributes.py says what
changes together, dependencies/ has the five classic views. graph.py is the public graph of `mk.trace`.
"""
