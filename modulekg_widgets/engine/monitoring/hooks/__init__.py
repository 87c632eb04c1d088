"""How a module is measured: hooks on scheduled steps, and what they hand to the metrics."""
