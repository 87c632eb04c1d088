"""Static pictures, which a saved notebook shows in place of the widgets."""
