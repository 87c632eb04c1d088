"""Ready rewrites: folding, separable convolutions, fake quantization, low-rank adapters."""
