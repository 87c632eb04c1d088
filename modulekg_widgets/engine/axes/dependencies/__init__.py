"""The five classic dependency views over the axes, as other tools have them: which layers hang together, and how.

Read views.py for what they give (sets that print, draw themselves and go into files), then channels.py, groups.py and
reshapes.py for how each is found; the attention view is axes/attention.py with the names of its layers.
"""
