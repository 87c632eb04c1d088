"""Hooks on scheduled steps, and what they hand to the metrics.

Read module_hooks.py first (two hooks for all modules), then module_calls.py (what is read of a call, also for
metrics of several tensors, with attention_recorder.py and gradients.py), observation.py (what a call shows),
module_metric.py and value_writer.py (how a value is made and stored). missing_values.py says why a value is absent.
"""
