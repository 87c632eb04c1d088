"""The forward pass on real inputs, call by call, for the forward player."""
