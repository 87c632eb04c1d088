"""The canonical encoding of values: the same bytes in every process and every supported Python.

Read packing.py first (sized parts and digests), then values.py (plain values), code.py (functions and local classes),
torch_values.py (tensors, dtypes, arrays) and own_structure.py (all that a module itself has).
"""
