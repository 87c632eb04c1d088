"""Recording a forward pass as a graph of operators and values.

Read dataflow.py first (the graph), then trace.py (the ways that are tried), recorder.py (what is recorded of each
operator and module), held.py (the tensors that a model holds, under all their names), source.py (the line that called),
leftovers.py (what a pass without data must not leave behind) and changed_call.py (the same call on a changed model).
"""
