"""Models of other libraries by name, without memory for their weights, and what is published of them.

A builder is a function by the name of its model: torchvision_models.py, timm_models.py, transformers_models.py. They
run inside of `meta_weights`. published_results.py reads the figures that this package ships.
"""
