"""From a request through dry runs to a plan, and the plan as a file.

Reading order: selection/ (what was asked, and which indices), dry_run/ (does it run), corrections/ (what the code
demands), sizes/ (the size of a model as a formula), targets/ (how many indices reach a target), saved/ (the plan),
planner.py (all of these in order) and plan.py, which is `mk.plan`. block_removal.py plans whole blocks,
uniform_plan.py for `layers="uniform"`, as a configuration can say it, config_plan.py for a wanted configuration, both
by configured_model.py, the model that one builds. unused_parameters.py cuts what the traced pass does not read.
"""
