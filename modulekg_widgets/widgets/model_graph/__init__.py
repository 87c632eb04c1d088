"""ModelGraph: the hierarchy of a model."""
