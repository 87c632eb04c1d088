"""Where a class is written, told from its code objects: `inspect` would parse whole files for it."""

from __future__ import annotations

import sys
import types
from pathlib import PurePath

from modulekg_widgets.engine.identity.encoding import class_dict, class_mro, class_names, is_heap_type


def source_of(cls: type) -> str | None:
    """File and line of the first method of `cls`, such as `torch/nn/modules/conv.py:337`; None where there is none.

    The file is named from its top-level package down, so that it reads the same on every machine.
    """
    for base in class_mro(cls):
        if not is_heap_type(base):
            continue
        codes = [v.__code__ for v in class_dict(base).values() if type(v) is types.FunctionType]
        if codes:
            first = min(codes, key=lambda code: code.co_firstlineno)
            file = cell_of(first.co_filename) or _short_file(first.co_filename, class_names(base)[0])
            return f"{file}:{first.co_firstlineno}"
    return None


def cell_of(file: str) -> str | None:
    """The cell of a notebook that Python knows as `file`, such as `In[3]`; None for any other file.

    The file of a cell has a number for a name, which no reader can find; IPython has counted it.
    """
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    name_of = getattr(getattr(shell, "compile", None), "format_code_name", None)
    found = name_of(file) if name_of is not None else None
    return None if found is None else found[1]


def _short_file(file: str, module: str) -> str:
    parts = PurePath(file).parts
    if parts and parts[-1].removesuffix(".py") == "__init__":
        return "/".join(parts[-1 - module.count(".") - 1 :])
    return "/".join(parts[-1 - module.count(".") :]) if parts else file
