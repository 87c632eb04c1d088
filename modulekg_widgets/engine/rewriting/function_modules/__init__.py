"""Functions as modules: which a forward calls, and the modules that serve them.

Read functions.py (names of functions) and function_module.py first, then listening.py (hearing the functions that a
forward calls), recording.py (what it called), sites.py (a name for each place), serving.py (modules in their place),
fitting.py (whether a module fits) and context.py (the public context).
"""
