"""Models for a task: known ones ranked, and new ones varied from them."""
