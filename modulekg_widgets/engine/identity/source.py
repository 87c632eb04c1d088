"""Where a class is written, told from its code objects: `inspect` would parse whole files for it."""

from __future__ import annotations

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
            return f"{_short_file(first.co_filename, class_names(base)[0])}:{first.co_firstlineno}"
    return None


def _short_file(file: str, module: str) -> str:
    parts = PurePath(file).parts
    if parts and parts[-1].removesuffix(".py") == "__init__":
        return "/".join(parts[-1 - module.count(".") - 1 :])
    return "/".join(parts[-1 - module.count(".") :]) if parts else file
