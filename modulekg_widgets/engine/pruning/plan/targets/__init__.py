"""How many indices to remove for a target in parameters, FLOPs, bytes or milliseconds.

Reading order: ranking.py (which axis pays), search.py (numbers by formula), target_solver.py (with dry runs),
latency.py (measured targets), infeasible.py (why a target cannot be met).
"""
