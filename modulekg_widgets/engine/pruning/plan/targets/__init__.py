"""Targets in parameters, FLOPs, bytes or milliseconds: the number of indices to remove for them.

Reading order: ranking.py (which axis pays), size_search.py (numbers by formula), target_solver.py (with dry runs),
latency_target.py (measured targets), infeasible.py (why a target cannot be met).
"""
