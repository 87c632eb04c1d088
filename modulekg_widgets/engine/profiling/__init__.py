"""How long a model takes on its device: whole passes side by side, and the time of each module in them.

Nothing is measured unless somebody asks, and copies of the model run, never the model itself.
"""
