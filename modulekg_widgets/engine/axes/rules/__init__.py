"""What each ATen operator says about the dimensions of its tensors: one file per family, one function per rule.

Read elementwise.py first (dimensions that meet), then matmul.py and convolution.py (which are summed over),
reshaping.py and joining.py (products and sums of axes), indexing.py and ordering.py (what is frozen, and why). The
other families are more of the same, each on its own; what a rule is given is the `Call` of `engine.axes.call`.
"""

from importlib import import_module
from pkgutil import iter_modules

# importing a file registers its rules, so a new family needs no more than its file
for _family in iter_modules(__path__):
    import_module(f"{__name__}.{_family.name}")
