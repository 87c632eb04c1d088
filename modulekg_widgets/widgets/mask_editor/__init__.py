"""MaskEditor: the axes of a model, edited by hand."""
