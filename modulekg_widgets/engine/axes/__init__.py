"""Which channels depend on which: named axes, inferred once from the data flow."""
