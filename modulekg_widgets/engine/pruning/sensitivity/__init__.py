"""What each index costs.

Reading order: removal.py (what a model gives without an index), then sensitivity.py (how much a loss rises).
"""
