"""One forward pass on real inputs, call by call: the engine of the forward player.

Read player.py first (the pass, and running it again), then steps.py (recording the calls), summaries.py (what a tensor
holds, in numbers) and feature_maps.py (pictures of it).
"""
