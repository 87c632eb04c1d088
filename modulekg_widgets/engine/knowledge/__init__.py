"""The knowledge graph: many models in one graph, in which identical modules are one node.

Read facts/ first (records of models, jobs and results), then repository.py and graph.py (the store with what was read
of it, and the class around it), editing.py (how it is changed) and questions/ (what can be asked). zoo/ builds the
models of other libraries, indexing.py brings many in; importers.py has the methods for results of others, imports/ does
the work. store/ keeps the contents
in a database, exchange/ in files. analysis/ and equivalence/ answer from structure and data flow, prediction/
estimates values of models, suggestion/ finds and makes models.
"""
