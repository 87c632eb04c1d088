"""The graph in a database: its tables, its rows, and what reads and writes them."""
