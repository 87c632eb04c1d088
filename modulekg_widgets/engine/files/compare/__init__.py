"""Differences between two models of which one or both are files.

comparable.py brings files and live models to the same records, renamed_tensors.py pairs tensors under other names,
and comparison.py makes the table of what differs.
"""
