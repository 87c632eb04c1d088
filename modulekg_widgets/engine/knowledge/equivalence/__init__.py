"""Functional equivalence of models and modules by their traced data flow; names and classes do not count.

Read value_numbering.py first (each distinct expression is one value), then data_movement.py (operators that only move
elements), normal_forms.py (one form for alternative calls of a function), flow_reader.py (a trace as a function of
inputs and weights) and comparison.py (two models compared, the first difference in words, and the relation `sameAs`).
"""
