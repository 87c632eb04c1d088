"""KnowledgeExplorer: the graph of many models."""
