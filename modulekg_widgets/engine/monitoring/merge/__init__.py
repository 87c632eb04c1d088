"""Several processes, one training: their values become the value of all."""
