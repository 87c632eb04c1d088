"""What goes and what it becomes: from a request through dry runs to a plan, and the plan as a file.

Reading order: request.py (what was asked), choice.py and selection.py (which indices), outcome.py (what that makes of
every tensor), dry_run.py with recorded_calls.py (does it run), repair.py with corrections.py, likely_constraints.py
and size_constraints.py (what the code demands), reference.py (does it compute the same), plan.py (all of these in
order), pruning_plan.py and plan_file.py (the result). draft.py is the same by hand, schedule.py spread over a
training, latency_target.py for a target that is measured.
"""
