"""What a cut model gets back of what it could do: statistics renewed, outputs compensated, lessons of the uncut one.

Reading order: passes.py (batches through a model as it would be cut), statistics.py (running statistics),
layer_calls.py (which layer reads what), mixing.py (least squares), compensation.py (what helps is kept), recovery.py
(all of it, before anything of the model changes); then kept_positions.py (where the values of a cut model were in the
uncut one), teacher.py (whether a model is that one) and distillation.py (a loss towards it).
"""
