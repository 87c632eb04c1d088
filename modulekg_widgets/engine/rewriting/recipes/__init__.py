"""Rewrites that are ready to use: folding, separable convolutions, fake quantisation, low-rank adapters."""
