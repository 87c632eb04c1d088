"""Facts about ATen operators and users' operators, each in one place; graphs and axes are unknown here.

Read recorded_call.py (a call and its values), then signature.py (memory: writes and views), arguments.py (arguments by
name) with user_operators.py (operators like others), and traits.py: the table of operator traits. formulas.py has the
FLOPs, cost.py looks them up. To add an operator: a rule in axes/rules; a name in a row of traits.py, if it behaves as
the others there; its FLOPs.
"""
