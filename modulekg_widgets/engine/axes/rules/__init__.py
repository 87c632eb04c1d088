"""One file for each family of ATen operators: what a call says of the dimensions of its tensors.

Read elementwise.py first (dimensions that meet), then linalg.py and spatial.py (dimensions that are summed over),
reshaping.py and joining.py (products and sums of axes), indexing.py and ordering.py (what is frozen, and why).
reduction.py, normalization.py, recurrent.py and backward.py are more of the same. A rule is given a `Call` of
`engine.axes.terms.call`.
"""

from importlib import import_module
from pkgutil import iter_modules

# importing a file registers its rules, so a new family needs no more than its file
for _family in iter_modules(__path__):
    import_module(f"{__name__}.{_family.name}")
