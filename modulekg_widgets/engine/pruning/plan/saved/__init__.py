"""The plan that users hold, its text and its file: pruning_plan.py, plan_text.py, plan_writing.py, plan_file.py."""
