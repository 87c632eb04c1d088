"""What each index costs: removal.py (outputs without an index), sensitivity.py (how much a loss rises)."""
