"""Where readings go while a training runs: files, TensorBoard, Weights & Biases, or an object of the user's.

To read: `base` says what a sink is, `targets` which one a path, a writer or an object stands for. Then the sinks:
`lines` with `jsonl` and `csv_lines`, `parquet`, `tensorboard`, `objects`; `values`, `naming` and `files` are what they
share. `sink_thread` and `sink_set` bring the rows of a history to them; `recording` reads a file back.
"""
