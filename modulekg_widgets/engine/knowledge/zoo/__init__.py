"""Builders of the models of torchvision, timm and transformers, and published results.

A builder is a callable named like its model, with an `example` call: torchvision_models.py, timm_models.py,
transformers_models.py. It runs inside of `meta_weights`, without memory for weights. published_results.py reads the
results that the package ships.
"""
