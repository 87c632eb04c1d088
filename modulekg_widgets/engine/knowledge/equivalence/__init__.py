"""Which models and modules compute the same function, told by their data flow: names and classes do not count.

Read flow_values.py first (what a value is computed of, each once), then moves.py (where elements come from) and
normal_forms.py (spellings of one function), reading.py (a trace, or the call of one module, in that form),
comparison.py (two models: the same or not, and which modules correspond), partings.py (where they part, in words) and
relation.py (models by name, and the relation sameAs over many).
"""
