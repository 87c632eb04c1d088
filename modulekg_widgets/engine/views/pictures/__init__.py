"""Static pictures for saved notebooks, as SVG and PNG.

Reading order: shapes.py (what a picture is), svg.py and png.py (its two writers), boxes.py (cards, frames, rows),
hierarchy.py (a model), flow_parts.py and flow_column.py (a traced one), forward.py, masks.py, metrics.py, knowledge.py.
"""
