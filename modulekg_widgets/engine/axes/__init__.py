"""Axes: index sets that run through a model, found from what its operators do with dimensions.

Read algebra.py (terms: products and sums of axes), then call.py and one file of rules/ (what an operator says of its
dimensions), inference.py (from recorded operators to terms, in one pass) and axis.py (what one looks up).
verify.py proves axes by permutation, cut_analysis.py tells what goes together, layers.py and attention.py what layers
and heads are, dependencies/ has the five classic views. module_lists.py finds lists of modules that go with an axis, as
experts with the rows of their router: list_proof.py proves it, leading routers by router_offsets.py, and
list_elements.py tells what lies in one element. graph.py is the public graph, registration.py `mk.axis_rule`.
"""
