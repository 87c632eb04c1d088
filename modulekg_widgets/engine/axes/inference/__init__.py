"""From recorded operators to the terms of every dimension, and what these terms tell.

Read inference.py first (one pass over the operators), then layers.py (operators with a weight), attention.py (heads and
channels), names.py (readable names). triangular.py, liveness.py and uncalled_modules.py are cases of the pass;
registration.py is `mk.axis_rule`.
"""
