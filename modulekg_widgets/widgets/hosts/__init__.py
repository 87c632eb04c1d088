"""The widgets in hosts other than Jupyter.

Reading order: colab.py (Colab: loading from a content delivery network), marimo.py (`mk.marimo`), live_widget.py (an
anywidget that holds widgets of this package).
"""
