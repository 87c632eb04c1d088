"""What every part needs of torch: running a model without touching it, and what torch hides.

Read private.py first (every private name of torch, and why), then state.py, hooks.py, inputs.py and structure.py
(modules and calls as they are), look.py (running a model as its copy), shadow.py with instances.py, callables.py,
past_self.py and tensor_copies.py (how the copy is made), restore.py, process.py, rng.py and caches.py (what is put
back, what is drawn, what stays), threads.py (what other threads do), unfused.py (layers as their operators) and
written.py (what code may write).
"""
