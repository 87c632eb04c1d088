"""The runtime of torch as every part needs it.

Read private.py first (every private name of torch, and why), then modules.py, hooks.py and pytree.py (modules and calls
as they are), isolation/ (running a copy of a model), process_settings.py, rng.py and caches.py (what is put back),
threads.py (other threads), decompose.py (layers as their operators), parallel.py (wrapped models), model_snapshot.py
(was a model changed).
"""
