"""How long a model takes on its device; nothing is measured unless somebody asks, and copies of the model run.

timing.py has passes that take turns, module_times.py the time of each module in them, profile.py the table of both.
"""
