"""Pruning: choosing indices, trying the cut, cutting for real, and undo.

Reading order: importance/ (which indices matter), plan/ (from a request through dry runs to a plan), cut/ (the plan on
a model, and undo), recover/ (accuracy after a cut), sensitivity/ (what each index costs), blocks/ (whole residual
blocks), saving/ (cut models as folders), nni/ (mask files). pruning.py is `mk.pruning`, pretrained.py has
`mk.save_model` and `mk.load_pretrained`, schedule.py a plan spread over a training, draft.py a plan by hand,
session.py the model that it is for, user_data.py its batches and loss, latency.py measured times. A plan is data:
nothing before cut/ writes to a model.
"""
