"""Pickles of torch, followed without running them.

Read pickle_machine.py first (plain values in place of objects), then pickle_opcodes.py (the opcodes),
pickled_tensors.py and pickle_contents.py (tensors and modules in them), torch_names.py (what is safe),
torch_checkpoint.py (the reader of checkpoints and TorchScript) and distributed_checkpoint.py (folders of shards).
"""
