"""The store of a knowledge graph in SQLite, PostgreSQL or memory.

Read database.py first (opened with care, read in snapshots), with sqlite_file.py, then schema.py (tables), rows.py
(records as rows), reader.py and writer.py.
"""
