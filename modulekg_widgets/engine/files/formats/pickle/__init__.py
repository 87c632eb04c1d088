"""Pickles of torch, followed without running them.

Read pickle_machine.py first (plain values in place of objects), then pickle_opcodes.py (the opcodes),
pickled_tensors.py and pickled.py (tensors and modules in them), torch_names.py (dtypes and storages), torch_zip.py
(the reader of checkpoints and TorchScript) and distributed.py (folders of shards).
"""
