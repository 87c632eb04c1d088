"""The canonical encoding of values: the same bytes in every process and every supported Python.

Read packing.py first (sized parts and digests), then python_values.py (plain values), code.py (functions and local
classes), torch_values.py (tensors, dtypes, arrays) and module_digests.py (all that a module itself has).
"""
