"""What is known of the operators of torch and of users, stated once: nothing here knows a graph or an axis.

Read recorded.py (a call, and the values in it), then signature.py (what a schema says of memory), arguments.py (reading
a call by names) with user_operators.py (which operator one is like), and traits.py: the table of what operators do.
formulas.py has what operators cost, cost.py looks it up.
To add an operator: a rule in axes/rules; a name in a row of traits.py, where it does what others do; a cost.
"""
