"""Store of a knowledge graph in SQLite, PostgreSQL or memory: schema, rows, reader and writer."""
