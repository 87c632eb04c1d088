"""Plain data for the widgets: payloads, call trees, findings and pictures.

Reading order: payload.py (how texts and numbers travel, and the hierarchy), call_tree.py and flow_tables.py (a forward
pass as tables), flow_edges.py and dataflow_payload.py (what the page gets of it), axes_payload.py, mask_payload.py,
forward_payload.py; metric_update.py and metric_reader.py (values while they come); knowledge_findings.py and
knowledge_payload.py; opening.py and flow_runs.py (what is open at first, and folded in a forward pass);
object_list.py (the side panel); pictures/.
"""
