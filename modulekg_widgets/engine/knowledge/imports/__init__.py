"""Results that other programs recorded, made into jobs of the graph.

result_tables.py reads tables of published results, wandb.py runs that Weights & Biases exported, mlflow.py both stores
of MLflow, and convergence.py the histories of a training.
"""
