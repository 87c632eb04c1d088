"""Merging of values over the ranks of a distributed training.

Read rules.py first (how values of several ranks become one, on plain arrays), then distributed.py (how they meet).
"""
