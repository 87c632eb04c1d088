"""One forward pass recorded: operators, values, and the modules that called them.

Read dataflow.py first (the graph), then recorder.py (how it is recorded) with argument_recorder.py, source.py (lines
of code) and unregistered_tensors.py (tensors outside parameters and buffers), trace.py (meta, fake or real tensors),
execution.py (recorded operators on real tensors), flops.py and leaked_tensors.py (meta tensors left in the model).
"""
