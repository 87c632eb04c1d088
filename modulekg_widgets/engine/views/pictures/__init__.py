"""Static pictures, which a saved notebook shows in place of the widgets.

Reading order: boxes.py (cards, and how texts get into an SVG), hierarchy.py (the picture of a model), flow_parts.py
(of a traced one: what is drawn, and the data edges), flow_column.py and tracks.py (where), forward.py, masks.py,
metrics.py and knowledge.py (those of the other widgets), rows.py (several pictures as one), raster.py (each as
PNG, too).
"""
