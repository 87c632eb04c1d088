"""The time of a model and of its cuts on the model's device.

measured.py runs a cut copy beside an uncut one, operator_times.py shares the time of modules among operators,
size_times.py keeps these times by what an operator computes, stopwatch.py keeps what was measured.
"""
