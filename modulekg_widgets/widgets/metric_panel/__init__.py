"""MetricPanel: the values of trainings, live.

Reading order: metric_panel.py (traits), stream.py (the thread that sends, no faster than the page takes), links.py
(colors of a ModelGraph); what is sent is made by `Updates` in engine/views.
"""
