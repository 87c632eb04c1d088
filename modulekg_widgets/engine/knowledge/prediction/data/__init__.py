"""The data that predictors learn from: features of models, similarity, data sets, observed values.

Read features.py first, then design.py (similarity of models), datasets.py (similarity and kind of data), published.py
(torchvision's figures), observations.py (all values of a target by where they were measured) and scales.py.
"""
