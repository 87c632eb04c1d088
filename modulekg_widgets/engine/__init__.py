"""Kernel side of the package: analysis of PyTorch models, without widgets and traitlets.

Read errors.py and registry.py first, which all of it uses, then identity/ (what a module is), tracing/ (what a forward
pass does, as a graph), operators/ (what is said of ATen's operators) and axes/ (which indices hang together). On these
stand pruning/, rewriting/, monitoring/ and playback/; knowledge/ is about many models, and views/ makes of all of it
the plain data that the widgets show. torch_runtime/ is how torch itself is dealt with; adapters.py tells what is known
of layers by their class, plugins.py finds the packages that extend this one, versions.py says what a bug report needs,
and deprecation.py marks public names that are on their way out.
"""
