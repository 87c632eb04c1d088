"""What is known of many models together: the knowledge graph and its exchange formats.

Read records.py and contents.py first, which are what the graph keeps, then stored.py, editing.py and graph.py (how it
is read, changed and opened) and questions/ (what can be asked). traced.py adds what only a forward pass tells;
zoo/ builds the models of other libraries, indexing.py brings many in; taking_over.py brings in what others measured:
result_tables.py makes jobs of published results, tracked_runs.py of runs of W&B, convergence.py reads their histories,
and results.py tells what any job reached. store/ keeps the contents in a database, exchange/ in files of others;
property_values.py is how both write a value. usage.py and analysis/ answer from the contents alone, equivalence/
from the data flow of models, prediction/ estimates values of models, suggestion/ finds and makes models.
"""
