"""What metrics share about one tensor: moments, spectra, channels, logits of attention."""
