"""Several processes, one training: their values become the value of all.

To read: `rules` for what becomes of the values of several ranks, on plain arrays; `distributed` for how they meet.
"""
