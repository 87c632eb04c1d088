"""One forward pass on real inputs, call by call: the engine of the forward player.

Read player.py first (the pass, and running it again), then steps.py (recording the calls), summaries.py (a tensor in a
few numbers, and its feature maps).
"""
