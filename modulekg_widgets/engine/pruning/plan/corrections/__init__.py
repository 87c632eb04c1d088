"""Corrections of a plan: demands of the code on sizes beyond the data flow, found by dry runs.

Reading order: candidate.py (one choice on trial), compile_edits.py (slices and attributes), repair.py (until it runs),
corrections.py, size_constraints.py and likely_constraints.py (what is corrected), correction_cache.py (what helped
before).
"""
