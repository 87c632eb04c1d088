"""MaskEditor: interactive pruning of axes and blocks.

Reading order: mask_editor.py (traits), index_costs.py (importances, and what data of the user say), measured_loss.py
(the loss without what goes), messages.py (what the page draws and asks for), whose other end is
js/src/core/masks/session/session.ts. What is drawn is `Draft` in engine/pruning, the model and what was done to it
`PruningSession` there.
"""
