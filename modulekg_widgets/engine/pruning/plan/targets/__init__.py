"""Targets in parameters, FLOPs, bytes or milliseconds: the number of indices to remove for them.

Reading order: ranking.py (which axis pays), target_solution.py (a candidate and its distance from the goals),
size_search.py (numbers by formula), latency_search.py (by measured times), target_solver.py (with dry runs),
infeasible.py (why a target cannot be met).
"""
