"""Finding and replacing modules, functions as modules, and ready recipes."""
