"""A cut in place, wholly or not at all: what changes, the writes, and the way back."""
