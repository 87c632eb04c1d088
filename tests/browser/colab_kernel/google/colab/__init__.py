"""Stands in for the package that a kernel in Colab has imported."""
