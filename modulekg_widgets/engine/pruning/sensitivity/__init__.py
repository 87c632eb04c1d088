"""The cost of each index: index_removal.py (outputs without an index), sensitivity.py (how much a loss rises)."""
