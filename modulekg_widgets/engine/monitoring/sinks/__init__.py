"""Destinations of readings while a training runs: files, TensorBoard, Weights & Biases, or a user's object.

Read sink_targets.py first (which sink a path, a writer or an object stands for), then the sinks: line_files.py (JSON
lines, CSV), parquet_sink.py and loggers.py. sink_thread.py and sink_set.py bring the rows of a history to them,
json_values.py checks values, recording.py reads a file back.
"""
