"""What a module is: the hierarchy, its fingerprints, and what repeats in it."""
