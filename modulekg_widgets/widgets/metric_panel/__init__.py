"""MetricPanel: metric_panel.py (traits, and colors for a ModelGraph), stream.py (the thread that sends)."""
