"""Mask files of NNI and of torch's own pruning: read, completed along the axes, and made into a plan."""
