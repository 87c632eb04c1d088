"""Watching a training: hooks on scheduled steps, metrics that share what they read, and where the values go."""
