"""Static pictures, which a saved notebook shows in place of the widgets.

Reading order: hierarchy.py (the picture of a model, and how texts get into an SVG), forward.py, masks.py, metrics.py
and knowledge.py (those of the other widgets), rows.py (several pictures as one), raster.py (each as PNG, too).
"""
