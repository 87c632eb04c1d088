"""Residual blocks `x + f(x)` in the data flow, and the model without some of them.

Read additions.py, then blocks.py, module_removal.py with stand_ins.py, shared_modules.py and layer_counters.py (what
follows), removal_trial.py (does it run, and compute the rest as before), and removable_blocks.py.
"""
