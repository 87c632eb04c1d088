"""Identity of modules: the walk over a model, the encoding of its values, and fingerprints made of these.

Read skeleton_source.py (files in the place of a model) and walk.py first (modules, paths, slots), with tensors.py and
classes.py (what is read of each), then encoding/ (any value as bytes) and fingerprint.py (digests), with
modulekg_v1_hash.py and weight_fingerprint.py (of the state). levels.py (stages and blocks), statistics.py,
hierarchy.py, folding.py and diff.py (what people see) stand on top.
"""
