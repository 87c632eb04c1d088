"""Functions as modules: which a forward calls, and the modules that serve them."""
