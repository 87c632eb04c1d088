"""What a cut costs, and how a cut model gets back what it lost.

Reading order: removal.py (what a model gives without an index), sensitivity.py (what each index costs). With the cut:
passes.py (batches through a model as it would be cut), statistics.py (running statistics), layer_calls.py (which layer
reads what), mixing.py (least squares), compensation.py (what helps is kept), recovery.py (all of it, before anything of
the model changes). After it: kept_positions.py (where the values of a cut model were in the uncut one), then
distillation.py (a loss towards the uncut model).
"""
