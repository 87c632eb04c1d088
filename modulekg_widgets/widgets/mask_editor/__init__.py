"""MaskEditor: the axes of a model, pruned by hand.

Reading order: engine/pruning/plan/draft.py (what is drawn), engine/pruning/by_hand.py (the model and what was done to
it), mask_editor.py (traits), messages.py (what the page draws and asks for); js/src/core/masks/session.ts is its other
end.
"""
