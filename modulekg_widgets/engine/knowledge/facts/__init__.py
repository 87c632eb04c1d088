"""The facts that a knowledge graph keeps: models, structures, jobs, results, users, data sets.

Read records.py first (a model), contents.py (all of a graph), jobs.py and results.py (trainings and what they reached,
with units.py), then traced.py (what a forward pass adds). property_values.py writes values as text without loss,
tables.py makes DataFrames, usage.py counts who uses what.
"""
