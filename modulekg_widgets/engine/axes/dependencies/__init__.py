"""The five classic dependency views over the axes, as other tools have them: which layers hang together, and how.

Read views.py for what they give (sets that print, draw themselves and go into files), then channels.py, groups.py and
reshapes.py for how each is found, and plot.py for the picture; the view of attention is `engine.axes.attention` with
the names of its layers.
"""
