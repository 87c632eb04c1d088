"""Plain data for the widgets: payloads, updates and pictures.

Reading order: payload.py with schema.py (how texts and numbers travel, and the hierarchy), flow_tables.py and
dataflow_payload.py (a forward pass), static_expansion.py (what is open while no canvas is known), file_payload.py,
forward_payload.py, mask_payload.py, metric_payload.py (values while they come) and knowledge_payload.py; object_list.py
lists a kernel's models; pictures/ draws for saved notebooks.
"""
