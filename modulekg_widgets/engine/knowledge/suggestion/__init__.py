"""Models for a task: known ones ranked, and new ones varied from them.

Read candidates.py first (what a search returns, and how a model is tried without weights), then known_models.py (which
known models suit). mutations.py has the changes that keep a model running, with resizing.py for those of its widths,
and generation.py searches with them for new models.
"""
