"""Corrections of a plan: demands of the code on sizes beyond the data flow, found by dry runs.

Reading order: candidate.py (a plan on trial), corrections.py (what may be corrected), size_constraints.py (sizes that
are tied), size_conflict.py (where a dry run stopped), proposals.py (which corrections may help there),
correction_cache.py (which helped before), repair.py (until it runs and is verified), compile_edits.py (slices and
attributes). line_attributes.py and dim_locations.py look into code and modules.
"""
