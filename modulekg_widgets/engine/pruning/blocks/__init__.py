"""Whole residual blocks in plans: `planning` takes those out that `choice` names, by the scores of `scoring`."""
