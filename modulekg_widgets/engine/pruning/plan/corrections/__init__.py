"""Corrections of a plan: demands of the code on sizes beyond the data flow, found by dry runs.

Reading order: candidate.py (a plan on trial), correction_kinds.py (the three kinds), constraint_solver.py (sizes that
are tied), failed_dry_run.py (the operator where one stopped), correction_proposals.py (which may help there),
correction_cache.py (which helped before), repair_loop.py (until it runs and is verified), compile_edits.py (slices and
attributes). line_attributes.py and dim_locations.py look into code and modules.
"""
