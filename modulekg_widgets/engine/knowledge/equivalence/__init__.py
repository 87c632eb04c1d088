"""Functional equivalence of models and modules by their traced data flow; names and classes do not count.

Read value_numbering.py first (each distinct expression is one value), then data_movement.py (operators that only move
elements), normal_forms.py (one form for alternative calls of a function), flow_reader.py (a trace as a function of
inputs and weights), comparison.py (two models compared), divergence.py (the first difference in words) and
equivalence_relation.py (models by name, and the relation `sameAs`).
"""
