"""From a request through dry runs to a plan, and the plan as a file.

Reading order: selection/ (what was asked, and which indices), dry_run/ (does it run), corrections/ (what the code
demands), sizes/ (the size of a model as a formula), targets/ (how many indices reach a target), saved/ (the plan),
planner.py (all of these in order) and plan.py, which is `mk.plan`. block_removal.py plans whole blocks,
config_constrained.py keeps to what a configuration can say, config_plan.py plans for a wanted one,
unused_parameters.py keeps to what the traced pass does not read.
"""
