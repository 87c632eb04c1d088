"""From structure to accuracy: what is published, how it is learnt, and how far it can be trusted."""
