"""The ipywidgets: traitlets and protocol. They never compute and never import torch."""
