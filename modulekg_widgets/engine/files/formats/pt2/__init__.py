"""Archives of `torch.export.save`: pt2.py reads the archive, pt2_graph.py the operators in its JSON."""
