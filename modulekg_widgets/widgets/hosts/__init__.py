"""Notebooks that are no Jupyter servers: what each needs to show widgets. VS Code needs nothing.

Reading order: colab.py (Colab: leave to load them, or a page in their place), marimo.py (`mk.marimo`), family.py
(what a widget stands on), live_comm.py (between a widget and several pages), live_widget.py (an anywidget around it).
"""
