"""The five classic dependency views over the axes: which layers must be pruned together, and how.

Read views.py first (sets that print, draw themselves and go into files), then channels.py (how each is found); the view
of attention comes from `engine.axes.inference.attention`.
"""
