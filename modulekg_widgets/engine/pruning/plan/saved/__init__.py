"""The plan that users hold, and its file: pruning_plan.py, plan_writing.py, plan_file.py."""
