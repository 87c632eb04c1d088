"""What each index costs.

Reading order: removal.py (what a model gives without an index; by cut_runs.py where data decide the way of forward),
then sensitivity.py (how much a loss rises) and masked_loss.py (the loss without many at once).
"""
