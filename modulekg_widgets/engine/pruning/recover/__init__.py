"""What a cut costs, and how a cut model gets back what it lost.

Reading order: removal.py (what a model gives without an index), sensitivity.py (what each index costs),
kept_positions.py (where the values of a cut model were in the uncut one), then distillation.py (a loss towards the
uncut model).
"""
