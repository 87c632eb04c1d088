"""Facts of file formats, without any reader: tables of dtypes and names, and the header of safetensors files.

format_tables.json has the tables, of which the page's readers get a copy; format_tables.py reads them.
"""
