"""See and question a PyTorch model without leaving the notebook.

The public names are stated in `__init__.pyi`, each with its home, and loaded at first use: torch, pandas and the
widgets take longer than a user should wait for an import.
"""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pkgutil import get_data
from typing import Any


def _defining_modules() -> dict[str, str]:
    """The module that each public name is imported from."""
    stub = ast.parse(get_data(__name__, "__init__.pyi") or b"")
    imports = (statement for statement in stub.body if isinstance(statement, ast.ImportFrom))
    return {each.name: str(line.module) for line in imports for each in line.names}


_DEFINING_MODULES = _defining_modules()
__all__ = sorted(_DEFINING_MODULES)  # noqa: PLE0605  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _DEFINING_MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    loaded = name == "__version__" or import_module(f"{__name__}.engine.plugins").load()
    home = import_module(_DEFINING_MODULES[name])
    value = getattr(home, name) if hasattr(home, name) else import_module(f"{home.__name__}.{name}")
    if loaded:  # else the next use, in another thread, still has to wait for the plugins
        globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)


if "ipykernel" in sys.modules:  # JupyterLab lists what a kernel has from this import on, whichever name is used first
    import_module(f"{__name__}.widgets.lab")
