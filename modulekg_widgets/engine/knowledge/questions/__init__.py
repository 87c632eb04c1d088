"""Methods of `mk.KnowledgeGraph` that answer questions from the contents of the graph.

usage.py (who used what), analysis.py (types, centrality, overlap of models), equivalence.py (models that compute the
same), prediction.py (values of models, models for a task) and exchange.py (export). They are functions whose first
parameter is the graph; each imports the file that computes its answer when it is called.
"""
