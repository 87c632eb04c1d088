"""The request, and the indices that it chooses.

Reading order: request.py with limits.py (what was asked), counts.py (how many), axis_choice.py and selection.py
(which), explicit_axes.py (axes by name), repeated_layers.py (layers alike), shared_size.py (axes that are one number),
size_attributes.py (numbers in modules), fullest_trace.py (train or eval mode).
"""
