"""Residual blocks `x + f(x)` in the data flow: which there are, and what the model does without some of them.

Read `additions`, then `blocks`, `removal` with its `stand_ins` and `followers`, and `trial`, which shows that it runs,
with `rest`: that it computes the rest as before.
"""
