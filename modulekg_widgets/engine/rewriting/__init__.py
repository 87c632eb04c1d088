"""`mk.rewrite`: finding, replacing, functions as modules, and ready recipes.

Read rewrite.py first (the public names), then select.py (names and classes), replace.py and undo.py (modules in each
other's place, and the way back), chains.py (runs along the data flow), function_modules/ (functions as modules) and
recipes/ (ready rewrites).
"""
