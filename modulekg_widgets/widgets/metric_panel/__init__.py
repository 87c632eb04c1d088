"""MetricPanel: the values of trainings, live."""
