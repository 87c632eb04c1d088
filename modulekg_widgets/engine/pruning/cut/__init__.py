"""A cut in place, wholly or not at all: what changes, the writes, and the way back.

Reading order: edits.py (what changes, by name), transaction.py (writes that can be taken back), tensor_cuts.py (one
tensor), receipt_parts.py and optimizer_state.py (all of a model's), cut.py and masking.py (a plan on a model),
receipt.py (undo). copy_cuts.py cuts averages of weights alike, derived_state.py renews what is computed of a weight,
distributed_models.py refuses wrapped models, notes.py marks the configuration of a cut model.
"""
