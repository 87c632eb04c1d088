"""Whole residual blocks that a plan takes: `choice` by the scores of `scoring`, and `removal_file` for plan files."""
