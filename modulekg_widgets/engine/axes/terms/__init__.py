"""The terms that dimensions are made of, and the call of an operator in which rules meet them.

Read algebra.py first (atoms, products, sums), then term_positions.py (positions of indices), index_semantics.py
(tensors that hold indices of an axis), literal_sizes.py (sizes written as numbers) and call.py (the view of a call that
a rule gets).
"""
