"""`mk.rewrite`: finding, replacing, functions as modules, and ready recipes.

Read rewrite.py first (the public names), then select.py (names and classes), replace.py and undo.py (replacing modules,
and undoing it), chains.py (chains along the data flow), function_modules/ (functions as modules) and recipes/ (ready
rewrites).
"""
