"""Merging of values over the ranks of a distributed training.

To read: `rules` for what becomes of the values of several ranks, on plain arrays; `distributed` for how they meet.
"""
