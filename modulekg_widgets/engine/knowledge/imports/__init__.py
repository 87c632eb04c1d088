"""Results that other programs recorded, made into jobs of the graph.

result_tables.py reads tables of published results, tracked_runs.py runs of Weights & Biases (its exports are read by
wandb_tables.py), mlflow.py both stores of MLflow, and convergence.py the histories of a training.
"""
