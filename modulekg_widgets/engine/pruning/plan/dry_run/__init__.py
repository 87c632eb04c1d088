"""The model's own forward on meta tensors of the planned sizes.

Reading order: dry_run.py, recorded_calls.py (is a call the recorded one), masked_reference.py (what the cut model
must compute, as a masked original).
"""
