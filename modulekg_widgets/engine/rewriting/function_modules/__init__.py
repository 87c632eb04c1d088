"""Functions as modules: which a forward calls, and the modules that serve them.

Read function_module.py first, then interception.py (hearing the functions that a forward calls), recording.py (what
it called, with a name for each place), dispatch.py (modules in their place), compatibility.py (does a module fit) and
context.py (the public context).
"""
