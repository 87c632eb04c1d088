"""Running a model without touching it: a copy that may be run and changed.

Read sandbox.py first (a run on an isolated copy), then shadow.py with instances.py, callables.py and captured_state.py
(how the copy is made), state_guard.py (what is saved and restored) and attribute_writes.py (attributes that forward may
assign); progress.py tells how far a run is, and ends it where the user cancels.
"""
