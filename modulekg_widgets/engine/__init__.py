"""The kernel side: identity, knowledge and (as they land) tracing, axes, pruning, rewriting and monitoring. Knows no widget."""
