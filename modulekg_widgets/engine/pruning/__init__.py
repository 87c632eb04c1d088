"""Choosing what goes, trying it, cutting it for real, and taking it back."""
