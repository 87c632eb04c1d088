"""`mk.rewrite`: finding, replacing, functions as modules, and ready recipes.

Read tools.py first (the public names), then select.py (names and classes), replace.py (modules in each other's place),
chains.py (runs along the data flow), function_modules/ (functions as modules) and recipes/ (ready rewrites).
"""
