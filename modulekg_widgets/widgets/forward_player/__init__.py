"""ForwardPlayer: the forward pass on one's own input."""
