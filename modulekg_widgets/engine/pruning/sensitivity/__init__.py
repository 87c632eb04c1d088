"""The cost of each index: removal.py (outputs without an index), sensitivity.py (how much a loss rises)."""
