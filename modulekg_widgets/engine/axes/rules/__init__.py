"""What each ATen operator says about the dimensions of its tensors: one file per family, one function per rule."""

from importlib import import_module
from pkgutil import iter_modules

# importing a file registers its rules, so a new family needs no more than its file
for _family in iter_modules(__path__):
    import_module(f"{__name__}.{_family.name}")
