"""What a module is: the walk over a model, the encoding of what it meets, and the fingerprints made of that.

Read paths.py and walk.py first (modules, paths, slots), with tensors.py and classes.py (what is read of each) and
skeleton_source.py (what is looked at in the place of a model); then
packing.py, code.py, encoding.py, values.py and torch_values.py (any value as bytes); own_structure.py, merkle.py and
fingerprint.py (digests), with seed.py (ModuleKG's) and weights.py (of the state); levels.py (stages and blocks),
figures.py, hierarchy.py, hyperparameters.py, folding.py and diff.py (what people see) stand on top.
"""
