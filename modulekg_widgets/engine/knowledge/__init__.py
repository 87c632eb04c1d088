"""What is known of many models together: the knowledge graph and its exchange formats."""
