"""Plain data for the widgets: payloads, call trees, findings and pictures."""
