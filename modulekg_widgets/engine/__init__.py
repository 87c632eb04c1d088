"""The kernel side, which knows no widget: what a module is, and what is known of many models.

Reading order, from the ground up: errors.py, registry.py, safe_files.py and plugins.py; torch_runtime/ (what all parts
need of torch), operators/ and identity/; tracing/ (a model as a graph of operators), then axes/ and playback/ on it;
pruning/, rewriting/, monitoring/ and knowledge/, which do not need each other to be read; views/ (plain data for the
widgets) last.
"""
