"""Time of a model on its device; nothing is measured unless asked for, and copies of the model run.

timing.py has runs that take turns, profile.py the time of each module and the table of all.
"""
